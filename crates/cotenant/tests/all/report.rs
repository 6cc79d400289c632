//! `cotenant report`: the page is well-formed, needs no network, holds the data as text, and opens without errors.

use cotenant_model::host::Mode;
use cotenant_model::policy::{Ctx, NoSettings, Policy};
use cotenant_model::usage::{Seen, Usage};
use cotenant_model::view::TaskView;
use cotenant_model::{
    Action, ActionOutcome, AppId, Decision, Owns, Proposal, Reason, Round, Signal, TaskId, Time, View,
};
use cotenant_record::testing::{Gather, Role, Scripted, header, record};
use cotenant_record::{Header, RecordWriter, RecordedRule, Recording};
use cotenant_testing::browser::Browser;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-report-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn report(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.arg("report").args(args).stdin(Stdio::null()).output().unwrap()
}

/// The page of these files.
fn page(folder: &Folder, files: &[&str]) -> String {
    let out = folder.path("out.html");
    let output = report(&[files, &["-o", &out]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(out).unwrap()
}

/// The one line of an error with exit code 2.
fn refused(args: &[&str]) -> String {
    let output = report(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    text
}

/// Three tasks of one application share data across packages; one of them is unmovable.
fn script(tasks: u32) -> Vec<Role> {
    let sharer = |cpu| Role { sharing: 110_000, ..Role::new(0, cpu) };
    let others = (3..tasks).map(|i| Role::new(1 + i % 2, 12 + i * 7 % 28));
    [0, 10, 11].map(sharer).into_iter().chain(others).collect()
}

fn recording(tasks: u32, ticks: u64) -> Vec<u8> {
    let mut host = Scripted::new(&script(tasks), ticks);
    host.denied.insert(TaskId(2));
    record(&header("gather", Mode::Enforce), &mut host, &Gather)
}

/// Moves every task to the other package, every round.
#[derive(Debug)]
struct Swing;

impl Policy for Swing {
    const SECTION: &'static str = "swing";
    type State = ();
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "swing"
    }

    fn decide(&self, ctx: &Ctx<'_>, view: &View, _: &[ActionOutcome], (): (), now: Time) -> Decision<()> {
        let there = |task: &TaskView| 1 - task.cpu.and_then(|cpu| ctx.topology.package_of(cpu)).unwrap_or(0);
        let place = |task: &TaskView| {
            let contexts = ctx.topology.package_contexts()[there(task)].iter().copied().collect();
            let reason = Reason::new("swing", "to the other package");
            Proposal { action: Action::Place { task: task.info.id, contexts }, reason }
        };
        let proposals = view.tasks.iter().map(place).collect();
        Decision::new(proposals, (), now + ctx.config.interval, Vec::new())
    }
}

const SIM: &str = r#"{"policies": [
    {"name": "none", "kernel": "eevdf", "seeds": 10, "makespan_s": 120.5, "migrations": 341, "throughput": 0.024,
     "apps": [{"name": "canneal", "time_s": 100, "slowdown": 1.93, "progress": 0.518, "slowdown_min": 1.7, "slowdown_max": 2.2},
              {"name": "<b>evil</b>", "time_s": 60, "slowdown": 1.1, "progress": 0.91, "backlog": 0.0004,
               "latency_s": {"p50": 0.001, "p95": 0.004, "p99": 0.0081, "p99_min": 0.0071, "p99_max": 0.0091}}],
     "weighted_speedup": 1.43, "art_s": 92, "fairness": {"min": 0.518, "max": 0.91}, "over_linux": {"mean": 0, "ci95": 0.03}, "over_linux_best": -0.021},
    {"name": "optimal", "search": {"label": "best found", "evaluations": 500, "classes": "13445", "map": "XA.."}, "seeds": [1, 2], "apps": [{"name": "canneal", "slowdown": 1.4}],
     "over_linux": {"mean": 0.25, "ci95": [0.2, 0.3]}, "a key of the future": 1}],
    "machine": "a-machine", "guesses": ["smt = 0.6"]}"#;

const REPRODUCTION: &str = r#"[
    {"experiment": "sam-fig6", "figure": "Figure 6", "verdict": "the effect appears", "note": "Ten seeds.",
     "rows": [{"label": "lowest progress", "paper": 0.83, "measured": 0.81, "unit": "fraction"},
              {"label": "mix 12", "paper": null, "measured": "no fixed point", "unit": "×"},
              {"label": "mix 1: SAM", "paper": null, "measured": 0.9, "unit": "x"},
              {"label": "mix 1: SAM, slowest application", "paper": null, "measured": 0.7, "unit": "x"},
              {"label": "mix 1: SAM, fastest application", "paper": null, "measured": 0.97, "unit": "x"},
              {"label": "mix 1: Linux, best seed", "paper": null, "measured": 0.85, "unit": "x"},
              {"label": "SAM: slowest application", "paper": 0.83, "measured": 0.7, "unit": "x"}]},
    {"experiment": "sam-overhead", "rows": [], "verdict": "not run"}]"#;

/// The text of the whole page; checks that it is well-formed, accessible, and needs no network.
fn examined(page: &str) -> String {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
    let document = roxmltree::Document::parse_with_options(page, options).unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let tag = node.tag_name().name();
        assert!(!["img", "iframe", "object", "embed"].contains(&tag), "<{tag}>");
        if tag == "script" {
            let text = node.text().unwrap();
            match node.attribute("type") {
                Some("application/json") => assert!(serde_json::from_str::<Value>(text).unwrap().is_object()),
                kind => assert!(kind.is_none() && text.contains("github.com/leeoniya/uPlot"), "our own ones alone"),
            }
        }
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            assert!(!name.starts_with("on"), "{name}");
            assert!(!["src", "href"].contains(&name) || value.starts_with('#') || value == "data:,", "{name}={value}");
            assert!(name != "id" || ids.insert(value), "two of {value}");
        }
        let has = |child: &str| node.children().any(|c| c.tag_name().name() == child);
        match tag {
            "svg" => assert!(has("title") && has("desc") && node.attribute("role") == Some("img")),
            "table" => assert!(has("caption") && has("thead") && has("tbody")),
            "html" => assert!(node.attribute("lang").is_some()),
            "style" => assert!(!node.text().unwrap().contains("url(") && !node.text().unwrap().contains("@import")),
            _ => {}
        }
    }
    let is_script = |node: &roxmltree::Node| node.parent().is_some_and(|parent| parent.has_tag_name("script"));
    let texts = document.descendants().filter(|node| node.is_text() && !is_script(node)).filter_map(|node| node.text());
    texts.collect::<Vec<_>>().join("\n")
}

/// The drawings of a page's scripts.
fn embedded(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"s0-data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn corpus(name: &str) -> String {
    format!("{}/../../fixtures/corpus/0.1.0/recordings/{name}.rec", env!("CARGO_MANIFEST_DIR"))
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn a_recording_becomes_a_page_that_holds_what_was_recorded() {
    let folder = Folder::new("recording");
    let file = folder.write("a&b.rec", recording(20, 30));
    let text = examined(&page(&folder, &[&file]));
    has(
        &text,
        &["a&b.rec", "gather", "enforce: decided and applied", "20 in all", "40 CPUs", "stall_cycles", "in 30 rounds"],
    );
    has(
        &text,
        &["applied", "not permitted", "Instructions per cycle", "events/cycle", "program1", "package 1", "All "],
    );
}

#[test]
fn a_thousand_threads_are_shown_together() {
    let folder = Folder::new("thousand");
    let mut host = Scripted::new(&script(1_000), 12);
    let file = folder.write("a.rec", record(&header("swing", Mode::Enforce), &mut host, &Swing));
    let page = page(&folder, &[&file]);
    has(
        &examined(&page),
        &[
            "Tasks that ran, by package, over time",
            "1000 in all",
            "orders the first 500 about tasks",
            "Moves, naps and limits by reason and outcome",
        ],
    );
    assert!(page.len() < 500_000, "{} bytes", page.len());
}

/// Makes the second program nap for the first one, every round.
#[derive(Debug)]
struct Nap;

impl Policy for Nap {
    const SECTION: &'static str = "nap";
    type State = ();
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "nap"
    }

    fn decide(&self, ctx: &Ctx<'_>, _: &View, _: &[ActionOutcome], (): (), now: Time) -> Decision<()> {
        let reason = Reason { app: Some(AppId(0)), ..Reason::new("controller", "contention with {app}") };
        let nap = |until| Proposal { action: Action::Nap { app: AppId(1), until }, reason: reason.clone() };
        let limit =
            Proposal { action: Action::Limit { app: AppId(1), cpu_permille: Some(250) }, reason: reason.clone() };
        let proposals = vec![nap(now + Duration::from_millis(50)), nap(now), limit];
        Decision::new(proposals, (), now + ctx.config.interval, Vec::new())
    }
}

/// Holds record/why.
#[test]
fn naps_and_limits_are_listed_with_their_reasons() {
    let folder = Folder::new("naps");
    let of = |ticks| {
        let bytes = record(&header("nap", Mode::Enforce), &mut Scripted::new(&script(5), ticks), &Nap);
        examined(&page(&folder, &[&folder.write("a.rec", bytes)]))
    };
    let text = of(10);
    has(
        &text,
        &["All 30 orders", "Moves, naps and limits by reason and outcome", "CPU time", "contention with program0"],
    );
    has(&text, &["program1", "naps for 50 ms", "runs on", "at most 0.250 CPUs", "advice only"]);
    has(&of(300), &["Of 900 orders the first 500 about applications"]);
}

#[test]
fn a_goal_is_shown_with_what_was_done_for_it() {
    let folder = Folder::new("goal");
    let text = page(&folder, &[&corpus("qos-steady-latency")]);
    has(
        &text,
        &["Goal and throttling", "goal 95 %", "p99 ", "(alone ", ", goal ", "not judged: ", "Throttled: time in naps"],
    );
    let text = page(&folder, &[&corpus("qos-outside")]);
    has(&text, &["Throttled applications", "Naps carried out", "% of the time", ", naps); "]);
}

/// Where others fill the machine no goal is judged, as the run itself said; earlier releases recorded nothing of them.
/// Holds run/busy.
#[test]
fn a_recording_knows_that_others_filled_the_machine() {
    let folder = Folder::new("busy");
    let usage = |others| Some(Usage { seconds: 1.0, of_cpus: 1, others, ..Usage::default() });
    let verdict = |seen: &Seen| {
        let bytes = written_again("qos-tracking", Header::clone, seen);
        examined(&page(&folder, &[&folder.write("a.rec", bytes)]))
    };
    let of_before = verdict(&Seen::default());
    assert!(!of_before.contains("this machine was busy"), "{of_before}");
    has(
        &verdict(&Seen { before: usage(0.9), during: usage(0.0) }),
        &["not judged: this machine was busy before the start (0.9"],
    );
    has(
        &verdict(&Seen { before: usage(0.0), during: usage(0.9) }),
        &["not judged: this machine was busy meanwhile (0.9"],
    );
    assert_eq!(verdict(&Seen { before: usage(0.0), during: usage(0.0) }), of_before);
}

/// A recording of the corpus, altered so that its first rule has another policy.
fn under_rules(name: &str) -> Vec<u8> {
    let header = |header: &Header| {
        let rule = |policy: &str| RecordedRule {
            policy: policy.to_owned(),
            owns: Owns::default(),
            config: header.config.clone(),
        };
        Header { policy: "auto".to_owned(), rules: vec![rule("qos"), rule("auto")], ..header.clone() }
    };
    written_again(name, header, &Seen::default())
}

/// A recording of the corpus with another header and added use of the machine.
fn written_again(name: &str, header: impl Fn(&Header) -> Header, usage: &Seen) -> Vec<u8> {
    let bytes = fs::read(corpus(name)).unwrap();
    let mut recording = Recording::read(&*bytes).unwrap();
    let mut writer = RecordWriter::new(Vec::new(), &header(recording.header()), u64::MAX).unwrap();
    writer.used(&Seen { during: None, ..usage.clone() });
    let mut last = None;
    for round in recording.by_ref() {
        let view = View::new(&round.prev, &round.sample);
        let before = last.replace(round.sample.clone()).unwrap_or_else(|| round.prev.clone());
        let told = Round {
            rule: 0,
            last: &before,
            prev: &round.prev,
            sample: &round.sample,
            whole: true,
            view: &view,
            policy: None,
            decision: round.decision.as_ref(),
            orders: &round.orders,
            outcomes: &round.outcomes,
        };
        writer.round(&told).unwrap();
    }
    writer.used(usage);
    writer.finish().unwrap()
}

/// Whoever's policy it was, what is known of goals is drawn; with scripts and without.
#[test]
fn goals_are_drawn_whatever_the_first_policy_was() {
    let folder = Folder::new("rules");
    let page = page(&folder, &[&folder.write("rules.rec", under_rules("qos-steady-latency"))]);
    has(&examined(&page), &["Goal and throttling", "Share of the last minute in which", "Throttled applications"]);
    assert!(page.contains("data-part=\"goals\""));
    let plots = embedded(&page)["history"]["plots"].clone();
    let ids: Vec<&str> = plots.as_array().unwrap().iter().filter_map(|plot| plot["id"].as_str()).collect();
    assert!(ids.contains(&"throttled"), "{ids:?}");
}

/// Where misses are counted, what came from memory is drawn.
#[test]
fn memory_is_drawn_where_misses_were_counted() {
    let folder = Folder::new("memory");
    let page = page(&folder, &[&folder.write("a.rec", recording(6, 30))]);
    has(&examined(&page), &["Bytes from memory, by misses of the last-level cache"]);
    assert!(page.contains("data-part=\"memory\""));
    let plots = embedded(&page)["history"]["plots"].clone();
    let bandwidth = plots.as_array().unwrap().iter().find(|plot| plot["part"] == "memory").unwrap();
    let values = bandwidth["lines"][0]["values"].as_array().unwrap().iter();
    assert!(values.filter_map(Value::as_f64).any(|bytes| bytes > 1e5), "{bandwidth}");
    assert!(!self::page(&folder, &[&corpus("qos-steady-latency")]).contains("data-part=\"memory\""), "none counted");
}

/// Rounds are merged once there are more than a page is wide.
#[test]
fn a_long_recording_has_no_more_points_than_a_page_can_show() {
    let folder = Folder::new("long");
    let page = page(&folder, &[&folder.write("long.rec", recording(4, 2_000))]);
    let lines = page.split("points=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let most = lines.map(|points| points.split_whitespace().count()).max().expect("lines are drawn");
    assert!((400..=801).contains(&most), "{most} points of 2,000 rounds");
}

/// Seconds of CPU time by application: what the recording says, and the areas on the page.
/// Holds record/adds-up.
#[test]
fn areas_are_the_cpu_time_that_was_used() {
    let folder = Folder::new("areas");
    for name in ["qos-outside", "qos-steady-latency", "run-none", "sim-sam", "sim-qos-balanced"] {
        let (mut used, mut begun) = (BTreeMap::<String, f64>::new(), None);
        let mut names = BTreeMap::new();
        for round in Recording::read(&*fs::read(corpus(name)).unwrap()).unwrap() {
            let view = View::new(&round.prev, &round.sample);
            begun.get_or_insert(round.prev.at.as_secs_f64());
            names.extend(round.sample.apps.iter().map(|app| (app.id, app.name.clone())));
            for task in view.tasks.iter().filter(|task| task.cpu.is_some()) {
                let seconds = task.per_s(Signal::CpuTime).unwrap_or(0.0) / 1e9 * view.interval.as_secs_f64();
                *used.entry(names[&task.info.app].clone()).or_default() += seconds;
            }
        }
        let embedded = embedded(&page(&folder, &[&corpus(name)]));
        let ends: Vec<f64> =
            embedded["history"]["at_s"].as_array().unwrap().iter().map(|at| at.as_f64().unwrap()).collect();
        let begins = [begun.unwrap()].into_iter().chain(ends.iter().copied());
        let lengths: Vec<f64> = begins.zip(&ends).map(|(begin, end)| end - begin).collect();
        let mut drawn = BTreeMap::<String, f64>::new();
        let plots = embedded["history"]["plots"].as_array().unwrap();
        for line in
            plots.iter().filter(|plot| plot["part"] == "places").flat_map(|plot| plot["lines"].as_array().unwrap())
        {
            let values = line["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
            let area: f64 = values.zip(&lengths).map(|(cpus, length)| cpus * length).sum();
            // Two with the same name stay distinct.
            let name = line["name"].as_str().unwrap().split(" (app ").next().unwrap();
            *drawn.entry(name.to_owned()).or_default() += area;
        }
        let all: f64 = used.values().sum();
        assert!(all > 0.0 && used.len() <= 7, "{name}: {used:?}");
        for (app, seconds) in &used {
            let area = drawn.get(app).copied().unwrap_or(0.0);
            assert!(
                (area - seconds).abs() <= 0.02 * seconds + 0.005 * all,
                "{name}, {app}: {seconds} s drawn as {area} s"
            );
        }
    }
}

/// Whatever programs call themselves, their names end neither the data nor the page.
/// Promise record/report-safe: A report loads nothing from outside, runs no script but its own, and escapes what
/// comes from data.
#[test]
fn what_a_recording_holds_stays_data() {
    let folder = Folder::new("data");
    let evil = "</script><script>document.title='owned'</script><!--]]>&";
    let mut header = header("gather", Mode::Enforce);
    header.policy = evil.to_owned();
    let mut host = Scripted::new(&script(6), 20);
    let file = folder.write("a.rec", record(&header, &mut host, &Gather));
    let page = page(&folder, &[&file]);
    examined(&page);
    assert_eq!(page.matches("<script").count(), 2, "the data, and our own scripts");
    let last = &embedded(&page)["last"];
    assert!(last[0]["why"]["text"].as_str().is_some_and(|text| !text.is_empty()), "{last}");
}

/// A recording of `shapes` on two simulated programs.
fn of_trials(folder: &Folder) -> String {
    let app = |name: &str, program: &str| {
        format!("[[app]]\nname = '{name}'\nprogram = '{program}'\nthreads = 2\nwork_s = 20\n")
    };
    let apps = app("mcf", "mcf06") + &app("stream", "membench");
    let scenario = folder.write("trials.toml", format!("machine = 'clovertown-2s'\nend_s = 60\n{apps}"));
    let recording = folder.path("trials.rec");
    let mut sim = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    sim.args(["sim", &scenario, "--policy", "shapes", "--seeds", "1", "--no-band", "--record", &recording]);
    let output = sim.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    recording
}

#[test]
fn trials_are_told_with_their_intervals() {
    let folder = Folder::new("trials");
    let page = page(&folder, &[&of_trials(&folder)]);
    let text = examined(&page);
    let trials = &embedded(&page)["trials"];
    let trials = trials.as_array().unwrap();
    assert!(trials.len() >= 5, "{trials:?}");
    for trial in trials {
        let figure = |of: &Value| of.as_f64().unwrap();
        let gain = figure(&trial["gain"]);
        if let [low, high] = trial["interval"].as_array().map_or(&[][..], Vec::as_slice) {
            assert!(figure(low) <= gain && gain <= figure(high), "{trial}");
        }
    }
    has(&text, &["Trials", "mcf 2", trials[0]["shape"].as_str().unwrap()]);
}

/// The output of `sim --mix`.
const MIX: &str =
    r#"{"apps": [{"name": "mcf06", "slowdown": 1.258, "progress": 0.795, "ipc": 0.46, "gbs": 2.33}], "machine": "x"}"#;

/// Summaries of `qos`, `schedule`, `compare` and `bench`.
fn summaries() -> [String; 4] {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/results");
    ["qos", "schedule", "compare", "bench"].map(|name| fs::read_to_string(format!("{folder}/{name}.json")).unwrap())
}

#[test]
fn summaries_of_runs_become_pages() {
    let folder = Folder::new("summaries");
    let [qos, schedule, compare, bench] = summaries();
    for (name, json, parts) in [
        (
            "qos",
            &qos,
            &[
                "steady",
                "91.7 %",
                "88.0 % to 95.0 %",
                "at the goal: 92 % (88 to 95; goal 90 %)",
                "p99",
                "182 µs",
                "freezer",
                "25.0 %",
                "<b>",
            ][..],
        ),
        ("schedule", &schedule, &["33.20 s", "xz -9 <i>", "not started: no such file", "12.25", "1.0", "das"]),
        (
            "compare",
            &compare,
            &["faster by 16.4 %", "1.164 (1.101 to 1.231)", "lower", "1.167", "with auto", "steal 3 %"],
        ),
        (
            "bench",
            &bench,
            &["yorkfield, simulated", "+6.5 % (+5.1 to +7.9)", "+10.0 %–", "2 mcf + 2 namd", "75.25", "one round only"],
        ),
    ] {
        let text = examined(&page(&folder, &[&folder.write(&format!("{name}.json"), json)]));
        has(&text, parts);
    }
}

#[test]
fn results_in_json_become_tables_and_figures() {
    let folder = Folder::new("json");
    let (sim, reproduction) = (folder.write("s.json", SIM), folder.write("r.json", REPRODUCTION));
    let svgs = folder.path("figures/new");
    let page = page(&folder, &[&sim, &reproduction, "--title", "Both <i>", "--svg-dir", &svgs]);
    let text = examined(&page);
    has(
        &text,
        &[
            "Both <i>",
            "best found mapping",
            "XA..; 500 evaluated of 13445 classes",
            "on a-machine under",
            "smt = 0.6",
            "Best-case Linux",
            "-2.1 %",
            "7.1 to 9.1",
            "1.7 to 2.2",
            "<b>evil</b>",
            "1.93",
            "0.518",
            "+25.0 % (+20.0 to +30.0)",
            "+0.0 % (-3.0 to +3.0)",
            "0.518, 0.91",
        ],
    );
    has(
        &text,
        &["sam-fig6", "0.83", "0.81", "no fixed point", "the effect appears", "Ten seeds.", "not run", "Figure 6"],
    );
    has(
        &text,
        &["case by case, x; whiskers: slowest and fastest application", "mix 1: SAM 0.9, Linux, best seed 0.85"],
    );
    has(
        &examined(&self::page(&folder, &[&folder.write("m.json", MIX)])),
        &["mcf06", "1.26", "0.795", "Predicted, not measured"],
    );
    let mut names: Vec<_> = fs::read_dir(&svgs).unwrap().map(|f| f.unwrap().path()).collect();
    names.sort();
    assert_eq!(names.len(), page.matches("<svg ").count());
    for name in &names {
        let svg = fs::read_to_string(name).unwrap();
        roxmltree::Document::parse(&svg).unwrap();
        assert!(!svg.contains("currentColor"), "stands on its own");
    }
    assert!(names.iter().any(|name| name.ends_with("s.json-slowdown.svg")), "{names:?}");
}

#[test]
fn what_is_left_of_a_damaged_recording_is_reported() {
    let folder = Folder::new("damaged");
    let whole = recording(6, 300);
    let cut = folder.write("cut.rec", &whole[..whole.len() * 2 / 3]);
    let out = folder.path("out.html");
    let output = report(&[&cut, "-o", &out]);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stderr).contains("truncated at byte"));
    has(&examined(&fs::read_to_string(&out).unwrap()), &["Note:", "truncated at byte", "rounds before it are used"]);
    // Only the header is left: a recording without rounds.
    let first = (13..whole.len()).find(|&end| cotenant_record::Recording::read(&whole[..end]).is_ok()).unwrap();
    let empty = folder.write("empty.rec", &whole[..first]);
    has(&examined(&page(&folder, &[&empty])), &["holds no rounds", "gather"]);
    has(&examined(&page(&folder, &[&folder.write("none.rec", recording(3, 0))])), &["holds no rounds"]);
}

#[test]
fn wrong_files_are_refused_and_nothing_is_written() {
    let folder = Folder::new("refused");
    let good = folder.write("good.json", SIM);
    let out = folder.path("out.html");
    for (name, bytes, why) in [
        ("empty", &b""[..], "the file is empty"),
        ("text", b"hello", "neither a recording nor JSON"),
        ("binary", b"\xff\xfe\x00", "neither a recording nor text"),
        ("other.json", b"{\"a\": 1}", "not a known result"),
        ("list.json", b"[]", "not a known result"),
        ("wrong.json", b"{\n\"policies\": [{\"name\": 3}]}", "line 2"),
        ("cut.rec", b"\x89CTN\r\n\x1a\n\x01\x00\x00\x00", "header is not readable"),
    ] {
        let file = folder.write(name, bytes);
        let told = refused(&[&good, &file, "-o", &out]);
        assert!(told.contains(&file) && told.contains(why), "{told}");
    }
    assert!(refused(&[&folder.path("missing"), "-o", &out]).contains("missing"));
    assert!(refused(&[folder.0.to_str().unwrap(), "-o", &out]).contains("give a recording"));
    assert!(!Path::new(&out).exists());
    for place in ["/proc/nonexistent/out.html", folder.0.to_str().unwrap()] {
        let output = report(&[&good, "-o", place]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("choose another place with -o") && told.lines().count() == 1, "{told}");
    }
    let output = report(&[&good, "-o", "-"]);
    assert!(output.status.success() && output.stdout.starts_with(b"<!DOCTYPE html>"));
}

/// Whether the first plot of CPU 1's programs has the colour of its second program.
const AS_IN_THE_KEY: &str = "(() => {
    const figure = document.querySelector('[data-plot=place-1]');
    const canvas = figure.querySelector('canvas');
    const wanted = getComputedStyle(figure.querySelectorAll('.swatch')[1]).backgroundColor.match(/\\d+/g).join();
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < data.length; i += 4) if (data.slice(i, i + 3).join() === wanted && data[i + 3] === 255) return true;
    return false;
})()";

/// On a desk and on a phone, by day and by night.
/// Holds record/report-safe.
#[test]
fn chromium_draws_it_all_without_a_complaint() {
    let folder = Folder::new("chromium");
    let Some(mut browser) = Browser::start("report") else { return };
    let mut files = vec![
        corpus("qos-steady-latency"),
        of_trials(&folder),
        folder.write("a.rec", recording(20, 30)),
        folder.write("s.json", SIM),
        folder.write("r.json", REPRODUCTION),
    ];
    files.push(folder.write("m.json", MIX));
    let source = folder.write("source.c", "int main(void) {\n    return 0;\n}\n");
    let region = format!("[[region]]\nfile = '{source}'\nlines = [2, 2]\nscore = 1.0\ncoverage = 0.5\n");
    files.push(folder.write("regions.toml", region));
    files.extend(summaries().iter().enumerate().map(|(i, json)| folder.write(&format!("{i}.json"), json)));
    page(&folder, &files.iter().map(String::as_str).collect::<Vec<_>>());
    let url = format!("file://{}", folder.path("out.html"));
    for (size, dark) in [((1440, 900), false), ((1440, 900), true), ((390, 844), false), ((390, 844), true)] {
        browser.dress(size, dark);
        browser.go(&url);
        browser.until("document.querySelectorAll('.drawn').length === 3");
        let plots = browser.plots();
        let ids: Vec<&str> = plots.iter().map(|plot| plot.0.as_str()).collect();
        for id in ["goal-0", "throttled", "place-0", "bandwidth"] {
            assert!(ids.contains(&id), "{id}: {ids:?}");
        }
        assert!(browser.value("document.querySelectorAll('table.trials tbody tr').length").as_u64() >= Some(5));
        assert!(plots.iter().all(|(_, inked)| *inked > 1_000), "{plots:?}");
        assert_eq!(browser.value(AS_IN_THE_KEY), true, "each section keeps its colours");
        let open = "document.querySelector('[data-part=decisions] summary').click();
            document.querySelector('[data-part=decisions] dl').checkVisibility()";
        assert_eq!(browser.value(open), true, "all of why is a click away");
        assert_eq!(browser.pale(), [] as [Value; 0], "{size:?}, dark: {dark}");
        assert_eq!(browser.value("document.documentElement.scrollWidth"), size.0, "{size:?}");
        browser.shoot(&format!("report-{}-{}", size.0, if dark { "dark" } else { "light" }));
    }
    assert_eq!(browser.complaints, [] as [String; 0]);
}

/// Everything in a report can be reached and opened by keys alone, and it is seen where one is.
/// Holds record/report-safe.
#[test]
fn a_keyboard_is_enough_for_a_report() {
    let folder = Folder::new("keys");
    let Some(mut browser) = Browser::start("report-keys") else { return };
    page(&folder, &[&corpus("qos-steady-latency")]);
    browser.dress((1440, 900), false);
    browser.go(&format!("file://{}", folder.path("out.html")));
    browser.until("document.querySelectorAll('.drawn').length === 1");
    let (mut reached, mut decided) = (BTreeMap::<String, usize>::new(), false);
    for _ in 0..400 {
        browser.press("Tab");
        let at = browser.value(
            "(() => { const at = document.activeElement; const box = at.getBoundingClientRect();
              return [at.tagName, at.closest('[data-part]')?.dataset.part ?? '', box.width > 0,
                      getComputedStyle(at).outlineStyle, at.getAttribute('aria-label') ?? at.textContent]; })()",
        );
        let (tag, part) = (at[0].as_str().unwrap(), at[1].as_str().unwrap());
        if tag == "BODY" {
            break;
        }
        assert!(at[2] == true && at[3] != "none" && at[4] != "", "the focus is seen, and has a name: {at}");
        *reached.entry(format!("{tag} {part}")).or_default() += 1;
        if (tag, part) == ("SUMMARY", "decisions") && !decided {
            browser.press("Enter");
            let why = browser.value("document.activeElement.parentElement.querySelector('dl').checkVisibility()");
            assert_eq!(why, true);
            decided = true;
        }
        if at[4].as_str().unwrap().contains("arrow keys") && part == "goals" {
            browser.press("Home");
            let said = "document.activeElement.closest('figure').querySelector('[aria-live]').textContent";
            assert!(browser.value(said).as_str().unwrap().contains(':'));
        }
    }
    for stop in ["DIV ", "DIV goals", "SUMMARY goals", "DIV places", "SUMMARY decisions"] {
        assert!(reached.contains_key(stop), "{stop}: {reached:?}");
    }
    let plots = browser.plots().len();
    let stops: usize = ["goals", "places"].iter().filter_map(|part| reached.get(&format!("DIV {part}"))).sum();
    assert!(decided && stops >= plots, "{stops} stops at {plots} plots");
    assert_eq!(browser.complaints, [] as [String; 0]);
}

/// A region file comes from somebody else: what it names is read only where it is a file, up to a size, and the page's
/// maker is told whose lines are on it.
#[test]
fn sources_that_are_no_files_are_not_read() {
    let folder = Folder::new("hostile");
    let pipe = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let secret = folder.write("secret", "one\ntwo\nthree\n");
    let long = folder.write("long", "x".repeat(1 << 20));
    let huge = folder.path("huge");
    fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    let region = |file: &str| format!("[[region]]\nfile = '{file}'\nlines = [2, 2]\nscore = 1.0\ncoverage = 0.5\n");
    let files = ["/dev/zero", &pipe, &huge, &long, &secret, "gone.c"];
    let regions = folder.write("regions.toml", files.map(region).concat());
    let out = folder.path("out.html");
    // Without a limit, /dev/zero exhausts the memory.
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 2000000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_cotenant"), "report"])
        .args([&regions, "-o", &out])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}");
    assert!(told.contains(&format!("the page shows lines of {secret}; look at them before you share")), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    let page = fs::read_to_string(out).unwrap();
    for (file, why) in [
        ("/dev/zero", "it is not a regular file"),
        (&pipe, "it is not a regular file"),
        (&huge, "it has more than 64 MiB"),
        (&long, "with it the page would show more than 1024 KiB of sources"),
        ("gone.c", "the source is not here"),
    ] {
        assert!(page.contains(&format!("{file}: {why}, so it is not shown.")), "{file}: {page}");
    }
    assert!(page.contains(&format!("look at them before you share it: {secret}.")), "{page}");
    assert!(page.contains("three") && page.len() < 100_000, "{}", page.len());
}

/// Wherever a file can be named.
#[test]
fn devices_are_not_read() {
    let folder = Folder::new("devices");
    let scenario = folder.write("scenario.toml", "machine = '/dev/zero'\n[[app]]\nprogram = 'cpu'\n");
    for args in [
        &["report", "/dev/zero"][..],
        &["decide", "--machine", "x3320", "--snapshot", "/dev/zero"],
        &["decide", "--machine", "/dev/zero", "--snapshot", "-"],
        &["sim", "/dev/zero"],
        &["sim", &scenario],
        &["bench", "/dev/zero"],
        &["schedule", "/dev/zero"],
        &["replay", "/dev/zero"],
        &["run", "--config", "/dev/zero", "true"],
        &["run", "--profiles", "/dev/zero", "true"],
    ] {
        let output = Command::new("sh")
            .args(["-c", "ulimit -v 2000000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_cotenant")])
            .args(args)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{args:?}: {told}");
        assert!(told.contains("regular file"), "{args:?}: {told}");
    }
    let input = Command::new("sh")
        .args(["-c", "ulimit -v 2000000; exec \"$0\" decide --machine x3320 --snapshot - < /dev/zero"])
        .arg(env!("CARGO_BIN_EXE_cotenant"))
        .output()
        .unwrap();
    let told = String::from_utf8(input.stderr).unwrap();
    assert!(told.contains("standard input: it has more than 64 MiB"), "{told}");
}
