//! `cotenant-lab reproduce` through the binary.

use cotenant_testing::pass;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const ALL: &[&str] = &[
    "sam-fig1",
    "sam-fig2",
    "sam-fig5",
    "sam-fig6",
    "sam-fig7",
    "sam-fig8",
    "sam-sensitivity",
    "sam-overhead",
    "sam-assumptions",
    "feliu-characterization",
    "feliu-memory",
    "feliu-l2",
    "feliu-degradation",
    "feliu-speedup",
    "feliu-balance",
    "feliu-timeline",
    "feliu-fairness",
    "feliu-chiplets",
    "resense-sensitivity",
    "resense-small",
    "resense-medium",
    "resense-large",
    "resense-fixed-signs",
    "resense-optimal",
    "tang-solo",
    "tang-corun",
    "tang-threads",
    "tang-characteristics",
    "tang-heuristic",
    "tang-atom",
    "tang-contentiousness",
    "tang-model",
    "tang-padding",
    "tang-naps",
    "tang-qos-compile",
    "tang-phases",
    "tang-rn-simple",
    "tang-rn-targeted",
    "tang-rn-phases",
    "tang-rn-overhead",
    "tumanov-heatmap",
    "tumanov-distance",
    "tumanov-stream",
    "tumanov-bench2",
    "tumanov-spread",
];

const LAB: &str = env!("CARGO_BIN_EXE_cotenant-lab");

fn reproduce(args: &[&str]) -> Output {
    Command::new(LAB).arg("reproduce").args(args).output().unwrap()
}

/// The users' binary, which `cargo test --workspace` builds too.
fn cotenant() -> Option<PathBuf> {
    let path = Path::new(LAB).with_file_name("cotenant");
    if !path.is_file() {
        eprintln!("skipped: there is no {}; cargo build -p cotenant", path.display());
        return None;
    }
    Some(path)
}

/// Promise sim/reproduce: `reproduce` sets the papers' figures beside ours with a verdict, gives the same bytes each
/// time, and pairs runs on this machine.
#[test]
fn every_experiment_is_listed_and_others_are_refused() {
    let output = reproduce(&["--list"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ALL);

    for args in [&["sam-fig9"][..], &["--seeds", "0"]] {
        let output = reproduce(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
    let output = reproduce(&["sam-fig9"]);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no experiment 'sam-fig9'; known: sam-fig1"),
        "{output:?}"
    );
}

/// Holds sim/reproduce.
#[test]
fn a_quick_reproduction_has_its_keys_and_makes_a_report() {
    let output = reproduce(&["--quick", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let results: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results.iter().map(|r| r["experiment"].as_str().unwrap()).collect::<Vec<_>>(), ALL);
    for result in &results {
        let words = |key: &str| !result[key].as_str().unwrap().is_empty();
        assert!(words("figure") && words("verdict") && words("note"), "{result}");
        let rows = result["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{result}");
        for row in rows {
            assert!(row["label"].is_string() && row["unit"].is_string() && row["measured"].is_f64(), "{row}");
            assert!(!row["verdict"].as_str().unwrap().is_empty(), "every row says something: {row}");
            let verdict = row["verdict"].as_str().unwrap().trim_start_matches("not as in the paper: ");
            assert!(row["met"] != false || verdict.contains(": "), "what is missed says why: {row}");
            let silent = row["verdict"] == "no figure in the paper's text";
            assert!(row["paper"].is_null() || !silent, "figures of the paper are judged: {row}");
        }
    }
    as_before(&results);
    let alone = || reproduce(&["--quick", "--json", "sam-fig5"]).stdout;
    let one = alone();
    assert!(one == alone(), "the same bytes again");
    let one: Vec<Value> = serde_json::from_slice(&one).unwrap();
    assert!(one == results[2..3], "alone as among the others");

    let json = std::env::temp_dir().join(format!("cotenant-reproduce-{}.json", std::process::id()));
    let page = json.with_extension("html");
    let Some(cotenant) = cotenant() else { return };
    fs::write(&json, &output.stdout).unwrap();
    let made = Command::new(cotenant).arg("report").arg(&json).arg("-o").arg(&page).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(ALL.iter().all(|name| html.contains(name)), "every experiment stands on the page");
    for path in [json, page] {
        fs::remove_file(path).unwrap();
    }
}

/// A machine of the user's that has the name of a shipped one is theirs, and no figure of a paper's experiment.
/// Holds sim/reproduce.
#[test]
fn machines_of_the_users_change_nothing_but_where_they_are_asked_for() {
    let data = std::env::temp_dir().join(format!("cotenant-own-machines-{}", std::process::id()));
    let machines = data.join("cotenant/machines");
    fs::create_dir_all(&machines).unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/tilepro64.toml");
    let other = fs::read_to_string(shipped).unwrap().replace("hop_ns = 2.31", "hop_ns = 23.1");
    fs::write(machines.join("tilepro64.toml"), other).unwrap();
    let spread = |args: &[&str]| {
        let mut command = Command::new(LAB);
        command.args(["reproduce", "--quick", "--json", "tumanov-heatmap"]).args(args).env("XDG_DATA_HOME", &data);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let results: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let note = results[0]["note"].as_str().unwrap();
        (results[0]["rows"][0]["measured"].as_f64().unwrap(), note.contains(" come before the shipped ones."))
    };
    let (percent, said) = spread(&[]);
    assert!((13.0..15.0).contains(&percent) && !said, "{percent} {said}");
    let (percent, said) = spread(&["--machines", machines.to_str().unwrap()]);
    assert!(percent > 100.0 && said, "{percent} {said}");
    let missing = reproduce(&["--machines", "/nowhere"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    fs::remove_dir_all(data).unwrap();
}

/// Runs a command line in a terminal of 80 columns; `None`, with a message, without `script`.
fn in_a_terminal(line: &str) -> Option<Child> {
    let probe = Command::new("script").args(["-qec", "test -t 2", "/dev/null"]).stdin(Stdio::null()).output();
    if !probe.is_ok_and(|out| out.status.success()) {
        eprintln!("skipped: no terminal from script(1)");
        return None;
    }
    let line = format!("stty cols 80 rows 24; exec {line}");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
    Some(script.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
}

/// Holds run/terminal.
#[test]
fn tables_fit_the_terminal() {
    for what in ["--list", "--quick --seeds 1 sam-fig2"] {
        let Some(script) = in_a_terminal(&format!("{LAB} reproduce {what}")) else { return };
        let out = script.wait_with_output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let text = text.rsplit("\r\x1b[K").next().unwrap().replace("\x1b[1m", "").replace("\x1b[0m", "");
        assert!(out.status.success() && text.lines().count() > 10, "{text}");
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{text}");
    }
}

/// Holds run/terminal.
#[test]
fn how_far_it_is_is_shown_however_long_a_part_takes() {
    let Some(mut script) = in_a_terminal(&format!("{LAB} reproduce resense-optimal")) else { return };
    let mut shown = String::new();
    let mut bytes = [0; 4096];
    let mut screen = script.stdout.take().unwrap();
    // Redraws although nothing has ended meanwhile.
    let again = |shown: &str| {
        let drawn: Vec<&str> = shown.split('\r').filter(|line| line.ends_with(" simulations\x1b[K")).collect();
        drawn.windows(2).any(|two| two[0] == two[1])
    };
    while !again(&shown) {
        let n = screen.read(&mut bytes).unwrap();
        assert!(n > 0, "it ended: {shown}");
        shown += &String::from_utf8_lossy(&bytes[..n]);
    }
    script.kill().unwrap(); // it hangs up
    script.wait().unwrap();
}

/// Guards simulated results against unintended changes: rows of each experiment, and the sum of their figures.
fn as_before(results: &[Value]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/quick.txt");
    let now = results.iter().map(|result| {
        let rows = result["rows"].as_array().unwrap();
        let sum: f64 = rows.iter().map(|row| row["measured"].as_f64().unwrap()).sum();
        (result["experiment"].as_str().unwrap(), rows.len(), sum)
    });
    if std::env::var_os("COTENANT_BLESS").is_some() {
        let lines: Vec<String> = now.map(|(name, rows, sum)| format!("{name} {rows} {sum:.9e}")).collect();
        return fs::write(path, lines.join("\n") + "\n").unwrap();
    }
    let text = fs::read_to_string(path).unwrap();
    assert_eq!(text.lines().count(), ALL.len());
    for ((name, rows, sum), before) in now.zip(text.lines()) {
        let [of, count, figures] = before.split(' ').collect::<Vec<_>>()[..] else { panic!("{before}") };
        let figures: f64 = figures.parse().unwrap();
        // Another libm may round a logarithm differently, so that the last digits may differ.
        let same = (sum - figures).abs() <= 1e-6 * figures.abs().max(1e-9);
        assert!(
            (name, rows.to_string().as_str()) == (of, count) && same,
            "{name}: {rows} rows, {sum:.9e}; before: {before}; if this is meant, COTENANT_BLESS=1"
        );
    }
}

fn on_this_machine(data: Option<&Path>, names: &[&str]) -> Output {
    let mut command = Command::new(LAB);
    command.args(["reproduce", "--real", "--quick", "--json"]).args(names).env_remove("COTENANT_CC");
    command.envs(data.map(|data| ("XDG_DATA_HOME", data)));
    command.output().unwrap()
}

/// Results of studies on this machine with this data folder; `None` if two programs lack two free CPUs.
fn real(data: Option<&Path>, names: &[&str]) -> Option<Vec<Value>> {
    cotenant()?;
    let output = on_this_machine(data, names);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(1) && ["two CPUs", "is a CPU free"].iter().any(|why| said.contains(why)) {
        eprintln!("skipped: {said}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Holds sim/reproduce.
#[test]
fn pairs_are_measured_on_this_machine() {
    let refused = reproduce(&["--real", "sam-fig1"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && error.contains("there are tang-contentiousness"), "{error}");
    let Some(results) = real(None, &["tang-contentiousness"]) else { return };
    let rows = results[0]["rows"].as_array().unwrap();
    let of = |label: &str| rows.iter().find(|row| row["label"].as_str().unwrap().starts_with(label));
    let row = of("bst-4mb beside naive-50mb").expect("each beside all");
    let ends = row["interval"].as_array().unwrap();
    let [least, most] = [&ends[0], &ends[1]].map(|end| end.as_f64().unwrap());
    let mean = row["measured"].as_f64().unwrap();
    assert!(least <= mean && mean <= most && mean <= 100.0, "{row}");
    assert_eq!(of("correlation of sensitivity and contentiousness").unwrap()["paper"], 0.48);
    let note = results[0]["note"].as_str().unwrap();
    assert!(note.starts_with("CPUs ") && note.contains("others used"), "{note}");
    assert!(of("xz: suffers").is_some() || note.contains("xz is left out"), "{note}");
}

/// Holds sim/reproduce.
#[test]
fn naps_are_weighed_on_this_machine() {
    let Some(results) = real(None, &["tang-rn-simple", "tang-rn-overhead"]) else { return };
    let names: Vec<&str> = results.iter().map(|result| result["experiment"].as_str().unwrap()).collect();
    assert_eq!(names, ["tang-rn-simple", "tang-rn-overhead"]);
    let rows = |study: usize| results[study]["rows"].as_array().unwrap();
    let of = |study: usize, label: &str| rows(study).iter().find(|row| row["label"] == label).expect(label);
    for way in ["as it is", "utilisation-biased", "balanced", "qos-biased"] {
        let kept = of(0, &format!("blockie-large beside sledge-large, {way}: speed kept"));
        let [least, most] = [0, 1].map(|end| kept["interval"][end].as_f64().unwrap());
        let median = kept["measured"].as_f64().unwrap();
        assert!(0.0 < least && least <= median && median <= most, "{kept}");
    }
    let used = of(0, "blockie-large beside sledge-large, qos-biased: utilisation of sledge-large");
    assert!(used["measured"].as_f64().unwrap() > 0.0, "{used}");
    let note = results[0]["note"].as_str().unwrap();
    assert!(note.contains("aps by "), "how they napped: {note}");
    let xz = rows(0).iter().any(|row| row["label"].as_str().unwrap().starts_with("blockie-large beside xz"));
    assert!(xz || note.contains("xz is left out"), "{note}");

    let loss = of(1, "looks every 10 ms, no naps: loss of the program of high priority");
    assert_eq!(
        (&loss["paper"], of(1, "tracking: Cotenant's own CPU time")["unit"].as_str()),
        (&1.0.into(), Some("% of a CPU"))
    );
    assert!(of(1, "tracking: Cotenant's own CPU time")["measured"].as_f64().unwrap() > 0.0, "somebody looked");
}

/// Holds sim/reproduce.
#[test]
fn naps_and_padding_are_studied_on_this_machine() {
    let Some(data) = pass::installed(env!("CARGO_TARGET_TMPDIR")) else { return };
    let names = ["tang-naps", "tang-padding", "tang-qos-compile"];
    let Some(results) = real(Some(data), &names) else { return };
    let of = |study: &str, label: &str| {
        let found = results.iter().find(|result| result["experiment"] == study).unwrap();
        let rows = found["rows"].as_array().unwrap();
        rows.iter().find(|row| row["label"].as_str().unwrap().starts_with(label)).cloned()
    };
    let row = of("tang-naps", "naps 10/20 ms: share of the time").expect("a program that naps");
    assert!((row["paper"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-9, "{row}");
    // It naps under any load; the benchmark checks how well it keeps the rate.
    assert!((0.01..0.9).contains(&row["measured"].as_f64().unwrap()), "{row}");
    for label in
        ["batch as it is: speed of bst-8mb", "batch 10/20 ms: speed of bst-8mb", "batch 10/20 ms: its own rate"]
    {
        let row = of("tang-naps", label).unwrap_or_else(|| panic!("{label}"));
        assert!(row["measured"].as_f64().unwrap() > 0.0 && row["interval"].is_array(), "{row}");
    }
    assert!(of("tang-padding", "batch padded with 100 nops: its own rate").is_some(), "{results:?}");
    let row =
        of("tang-qos-compile", "utilisation gained over no co-location, mean").expect("a batch program that naps");
    assert!(row["paper"] == 36.0 && row["measured"].as_f64().unwrap() > 0.0, "{row}");
    // Without the pass it is one line.
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-pass");
    fs::create_dir_all(&empty).unwrap();
    let output = on_this_machine(Some(&empty), &names);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.trim_end().lines().count() == 1, "{said}");
    assert!(said.contains("install-pass"), "{said}");
}
