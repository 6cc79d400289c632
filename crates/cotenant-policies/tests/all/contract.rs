//! States and settings of policies, as the contract defines them.

use cotenant_model::TaskId;
use cotenant_model::policy::settings::value;
use cotenant_model::policy::{Config, Needs, Settings, State};
use cotenant_policies::sam::Origin;
use cotenant_policies::{
    Atom, AtomConfig, CoSchedule, Dino, Numad, NumadState, Qos, QuantumSettings, Sam, SamConfig, SamState, Static,
    standard,
};
use serde_json::json;
use std::time::Duration;

fn sam() -> SamState {
    SamState { origins: vec![Origin { task: TaskId(3), unit: 1, displaced: false }], ..SamState::default() }
}

#[test]
fn typed_and_json_are_the_same_state() {
    let typed = State::of::<Sam>(sam());
    let text = serde_json::to_string(&typed).unwrap();
    assert!(text.starts_with("{\"sam\":{"), "{text}");
    let json: State = serde_json::from_str(&text).unwrap();
    assert_eq!((&json, json.section()), (&typed, Some("sam")));
    assert_eq!(serde_json::to_string(&json).unwrap(), serde_json::to_value(&typed).unwrap().to_string());
    assert_eq!((json.read::<Sam>().as_deref(), json.clone().take::<Sam>()), (Some(&sam()), Ok(sam())));
    assert_eq!((typed.read::<Sam>().as_deref(), typed.clone().take::<Sam>()), (Some(&sam()), Ok(sam())));
    assert_ne!(typed, State::of::<Sam>(SamState::default()));
    assert_ne!(State::of::<Sam>(SamState::default()), State::of::<Numad>(NumadState::default()));
}

#[test]
fn what_is_no_state_of_a_policy_is_told() {
    assert_eq!(State::default().take::<Sam>(), Ok(SamState::default()));
    assert!(State::default().read::<Sam>().is_none());
    for foreign in [State::of::<Numad>(NumadState::default()), State::json("numad", json!({}))] {
        assert!(foreign.read::<Sam>().is_none());
        assert_eq!(foreign.take::<Sam>().unwrap_err(), "the state is of numad");
    }
    let corrupt = State::json("sam", json!({ "origins": 7 }));
    assert!(corrupt.read::<Sam>().is_none());
    assert!(corrupt.take::<Sam>().unwrap_err().starts_with("its state cannot be read (invalid type: integer"));
}

#[test]
fn only_empty_and_one_section_are_states() {
    assert_eq!(serde_json::to_string(&State::default()).unwrap(), "\"empty\"");
    assert_eq!(serde_json::from_str::<State>("\"empty\"").unwrap(), State::default());
    for bad in ["\"full\"", "{}", "{\"sam\":{},\"auto\":{}}", "7", "null"] {
        assert!(serde_json::from_str::<State>(bad).is_err(), "{bad}");
    }
}

#[test]
fn keys_are_set_one_by_one() {
    let mut settings = Settings::default();
    assert_eq!(settings.of::<Sam>(), Ok(SamConfig::default()));
    settings.set("sam", "cooldown", value("false"));
    settings.set("atom", "turn", value("2s"));
    settings.set("atom", "settle", value("25%"));
    settings.set("atom", "rounds", value("7"));
    settings.set("quantum", "quantum", value("50"));
    settings.set("static", "map", value("X*X*"));
    assert_eq!(settings.of::<Sam>(), Ok(SamConfig { cooldown: false, ..SamConfig::default() }));
    let atom = AtomConfig { turn: Duration::from_secs(2), settle: 0.25, rounds: 7, ..AtomConfig::default() };
    assert_eq!(settings.of::<Atom>(), Ok(atom));
    let quantum = QuantumSettings { quantum: Duration::from_millis(50), ..QuantumSettings::default() };
    assert_eq!(settings.of::<CoSchedule>(), Ok(quantum));
    assert_eq!(settings.of::<Static>().unwrap().map.as_deref(), Some("X*X*"));
    let stored: Settings = serde_json::from_str(&serde_json::to_string(&settings).unwrap()).unwrap();
    assert_eq!((stored.of::<Atom>(), &stored), (Ok(atom), &settings));
}

#[test]
fn what_a_policy_does_not_take_is_refused() {
    let wrong = |section: &str, key: &str, text: &str| {
        let mut settings = Settings::default();
        settings.set(section, key, value(text));
        standard().check(section, &settings).unwrap_err().to_string()
    };
    assert!(wrong("sam", "coldown", "false").starts_with("settings of sam: unknown field `coldown`, expected one of"));
    assert!(wrong("sam", "cooldown", "no").contains("expected a boolean"));
    assert!(wrong("dino", "x", "1").contains("unknown field `x`"));
    assert!(wrong("atom", "rounds", "0").contains("0 is out of range: 1 to 1000"));
    assert!(wrong("atom", "classes", "1").contains("out of range: 2 to 10000"));
    assert!(wrong("atom", "settle", "1").contains("1 is out of range: 0 to 0.9"));
    assert!(wrong("atom", "turn", "soon").contains("is not a unit of time"));
    assert!(wrong("quantum", "quantum", "0").contains("out of range: 1ms to 86400s"));
}

#[test]
fn names_lead_to_sections() {
    let registry = standard();
    assert_eq!((registry.section("cas"), registry.section("quantum")), (Ok("quantum"), Ok("quantum")));
    assert_eq!(registry.section("qos"), Ok("qos"));
    assert!(registry.section("auto").unwrap_err().contains("those of shapes and sam"));
    assert!(registry.section("nope").unwrap_err().starts_with("there is no policy 'nope'; known: auto, shapes"));
}

/// Hosts read it once before the first round.
#[test]
fn what_policies_need() {
    let needs = |name: &str| {
        let Needs { task_changes, pauses, profiles, pages, accesses, proxies, exact, glances, counts } =
            standard().make(name, &Config::default()).unwrap().needs();
        let all = [task_changes, pauses, profiles, pages, accesses, proxies, exact, glances, counts]
            .into_iter()
            .zip(["hurry", "pauses", "profiles", "pages", "accesses", "proxies", "exact", "glances", "counts"]);
        all.filter(|(needed, _)| *needed).map(|(_, what)| what).collect::<Vec<_>>().join(" ")
    };
    for (names, expected) in [
        ("none dino", ""),
        ("static", "hurry exact"),
        ("qos", "glances"),
        ("heuristic resense resense-sum", "hurry profiles"),
        ("fifo mas cas das", "hurry pauses profiles"),
        ("atom", "hurry profiles pages"),
        ("sam numad", "pages"),
        ("shapes auto", "pages proxies exact"),
        ("weighted brute-force assignment", "hurry pages accesses"),
        ("overhead", "pages accesses"),
    ] {
        names.split(' ').for_each(|name| assert_eq!(needs(name), expected, "{name}"));
    }
}

/// What recordings held before settings were one map.
#[test]
fn settings_of_older_recordings_are_read() {
    let text = r#"{"interval":{"secs":0,"nanos":5},"pin":"cpu","foreign_busy":0.2,"map":"XX","sam":{"cooldown":false},
                   "quantum":{"secs":1,"nanos":0},"atom":{"turn":{"secs":3,"nanos":0},"execute":null},"move_pages":true}"#;
    let config: Config = serde_json::from_str(text).unwrap();
    let settings = &config.settings;
    assert_eq!((config.interval, config.foreign_busy, config.move_pages), (Duration::from_nanos(5), 0.2, true));
    assert_eq!(settings.of::<Static>().unwrap().map.as_deref(), Some("XX"));
    assert!(!settings.of::<Sam>().unwrap().cooldown);
    assert_eq!(settings.of::<CoSchedule>().unwrap().quantum, Duration::from_secs(1));
    assert_eq!(settings.of::<Atom>(), Ok(AtomConfig { turn: Duration::from_secs(3), ..AtomConfig::default() }));
    assert_eq!((settings.of::<Qos>(), settings.of::<Dino>().is_ok()), (Ok(None), true));
    let again: Config = serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
    assert_eq!(again, config);
    assert_eq!(serde_json::to_value(Config::default()).unwrap().get("settings"), None);
}
