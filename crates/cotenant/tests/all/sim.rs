//! `cotenant sim FILE` through the binary.

use cotenant_record::Recording;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GOOD: &str = "\
machine = 'two.toml'
[[app]]
program = 'membench'
threads = 3
work_s = 0.1
[[app]]
program = 'hubench'
threads = 2
work_s = 0.1
";

const MACHINE: &str = "\
name = 'two'
description = 'two sockets'
source = 'test'
clock_hz = 2e9
topology = { synthetic = 'package:2 [numa] l3:1(size=20MiB) core:4 pu:1' }
thresholds = { coherence_per_cycle = 2.5e-4, socket_bandwidth_per_s = 75e6, remote_per_cycle = 3.9e-4 }
simulator = { memory_gbs = 40, memory_ns = 80, remote_ns = 60, link_gbs = 15 }
";

/// A folder with the scenario and its machine, removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, scenario: &str, machine: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-sim-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("s.toml"), scenario).unwrap();
        fs::write(path.join("two.toml"), machine).unwrap();
        Self(path)
    }

    fn sim(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
        command.current_dir(&self.0).args(["sim", "s.toml", "--seeds", "2"]).args(args).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(Path::new(&self.0));
    }
}

fn refused(name: &str, scenario: &str, machine: &str, args: &[&str], code: i32, says: &str) {
    let output = Folder::new(name, scenario, machine).sim(args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{says}: {error}");
    assert!(error.contains(says) && error.trim_end().lines().count() == 1, "wanted {says}: {error}");
    assert!(output.stdout.is_empty(), "{says}: {}", String::from_utf8_lossy(&output.stdout));
}

/// Holds run/wrong-input.
#[test]
fn wrong_scenarios_are_refused_where_they_are_wrong() {
    let program = "[program.p]\ncpi = 1\nllc_apki = 1\nfootprint_bytes = 1e6\nmiss_ratio = [[1e5, 0.5]]\n";
    let with = |more: &str| format!("machine = 'two.toml'\n{program}{more}\n[[app]]\nprogram = 'p'\n");
    let cases = [
        (GOOD.replace("hubench", "hubenhc"), "s.toml:7:11: there is no program 'hubenhc'"),
        (GOOD.replace("two.toml", "nowhere"), "s.toml:1:11: machine 'nowhere': no such name"),
        (format!("kernel = 'cfs'\n{GOOD}"), "s.toml:1:10: there is no kernel 'cfs'; known: eevdf"),
        (GOOD.replacen("threads = 3", "threads = 0", 1), "s.toml:4:11: threads of app membench is 0"),
        (GOOD.replacen("threads = 3", "threads = -1", 1), "s.toml:4:11: threads of app membench is -1"),
        (GOOD.replacen("0.1", "nan", 1), "s.toml:5:10: work_s of app membench is NaN; it must be above 0"),
        (GOOD.replacen("0.1", "-2", 1), "s.toml:5:10: work_s of app membench is -2; it must be above 0"),
        (format!("{GOOD}arrival_s = 4000\n"), "s.toml:10:13: app hubench arrives at 4000 s, after the end at 3600 s"),
        (format!("{GOOD}arrival_s = -1\n"), "s.toml:10:13: arrival_s of app hubench is -1"),
        (format!("{GOOD}cpus = '8-9'\n"), "s.toml:10:8: cpus of app hubench: the machine can use none of 8-9"),
        (format!("{GOOD}cpus = '3-1'\n"), "s.toml:10:8: cpus of app hubench:"),
        (format!("{GOOD}instructions = 1e9\n"), "s.toml:10:16: app hubench has both instructions and work_s"),
        (
            format!("{GOOD}load = {{ requests_per_s = 0, instructions = 1 }}\n"),
            "s.toml:10:27: requests_per_s of app hubench",
        ),
        (format!("observation = {{ noise = 2 }}\n{GOOD}"), "s.toml:1:25: noise of the observation is 2"),
        (format!("end_s = -1\n{GOOD}"), "s.toml:1:9: end_s of the scenario is -1"),
        (format!("end_s = 1e300\n{GOOD}"), "; it must be above 0 and at most 10000000"),
        (
            GOOD.replacen("threads = 3", "threads = 1.5", 1),
            "s.toml:4:11: invalid type: floating point `1.5`, expected a whole number",
        ),
        (format!("{GOOD}wrok_s = 1\n"), "s.toml:10:1: unknown field `wrok_s`"),
        (format!("{GOOD}runs = \n"), "s.toml:10:"),
        ("machine = 'two.toml'\n".to_owned(), "s.toml:1:11: the scenario has no [[app]]"),
        (with("pages = [0.2, 0.3, 0.5]"), "pages of program p name 3 memory nodes; the machine has 2"),
        (with("mlp = 0.5"), "s.toml:7:7: mlp of program p is 0.5; it must be at least 1"),
        (with("shared = inf"), "s.toml:7:10: shared of program p is inf; it must be between 0 and 1"),
    ];
    for (i, (scenario, says)) in cases.iter().enumerate() {
        refused(&format!("bad{i}"), scenario, MACHINE, &[], 2, says);
    }
}

/// Holds run/wrong-input.
#[test]
fn wrong_machines_policies_and_ends_are_refused() {
    let dry = MACHINE.replace("memory_gbs = 40", "memory_gbs = 0");
    let still = MACHINE.replace("clock_hz = 2e9", "clock_hz = -1");
    refused("still", GOOD, &still, &[], 2, "4:1: clock_hz is -1; it must be above 0");
    refused("dry", GOOD, &dry, &[], 2, "memory_gbs of the simulator is 0; it must be above 0");
    let odd = MACHINE.replace("memory_ns = 80", "memory_ns = nan");
    refused("odd", GOOD, &odd, &[], 2, "memory_ns of the simulator is NaN; it must be above 0");
    refused(
        "policy",
        GOOD,
        MACHINE,
        &["--policy", "none,mas3"],
        2,
        "--policy: there is no policy 'mas3'; known: auto,",
    );
    refused("static", GOOD, MACHINE, &["--policy", "static"], 2, "s.toml: policy static needs a map; give map = ");
    refused(
        "heuristic",
        GOOD,
        MACHINE,
        &["--policy", "none,heuristic"],
        2,
        "s.toml: policy heuristic: no application is marked as the latency-sensitive one; add latency_sensitive = true to its [[app]]",
    );
    let one = MACHINE.replace("package:2 [numa] l3:1", "package:1 [numa] l3:1");
    let bare = one.replace("thresholds =", "# thresholds =");
    refused("one-sam", GOOD, &bare, &["--policy", "sam"], 2, "or add [thresholds] to its file");
    let map = format!("policy = {{ map = 'XX' }}\n{GOOD}");
    let says = "s.toml:1:18: policy static: the mapping has 2 CPUs, the machine has 4 online";
    refused("one-map", &map, &bare, &["--policy", "static"], 2, says);
    let map = format!("policy = {{ map = 'XX..AA..' }}\n{GOOD}");
    let says = "s.toml:1:18: policy static: the mapping has 2 CPUs for 'X', which stands for 3 threads; write 'X' for more CPUs";
    refused("small-map", &map, MACHINE, &["--policy", "static"], 2, says);
    let marked = format!("{GOOD}latency_sensitive = true\n");
    refused(
        "one-cache",
        &marked,
        &one,
        &["--policy", "heuristic"],
        2,
        "s.toml: policy heuristic: with one last-level cache",
    );
    refused("kernel", GOOD, MACHINE, &["--kernel", "cfs"], 2, "there is no kernel 'cfs'");
    let many = GOOD.replacen("threads = 3", "threads = 7", 1);
    refused("many", &many, MACHINE, &["--policy", "optimal"], 2, "s.toml:8:11: optimal: 9 threads, but 8 CPUs");
    let early = format!("end_s = 0.05\n{GOOD}");
    let says = "s.toml:1:9: membench had not finished at 0.05 s, the end of the scenario; raise end_s";
    refused("early", &early, MACHINE, &["--policy", "none"], 1, says);
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    let output = command.args(["sim", "/nowhere/s.toml"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
}

#[test]
fn json_has_the_keys_that_tools_rely_on() {
    let load = format!("{GOOD}load = {{ requests_per_s = 1000, instructions = 1e5 }}\n");
    let folder = Folder::new("json", &load, MACHINE);
    let output = folder.sim(&["--policy", "none,sam,optimal", "--evaluations", "30", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let policies = report["policies"].as_array().unwrap();
    let names: Vec<&str> = policies.iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["none", "sam", "optimal"]);
    for policy in policies {
        let number = |key: &str| policy[key].as_f64().unwrap_or_else(|| panic!("{key} in {policy}"));
        for key in ["makespan_s", "weighted_speedup", "art_s", "throughput", "seeds"] {
            assert!(number(key) > 0.0, "{key} in {policy}");
        }
        assert!(number("migrations") >= 0.0 && policy["kernel"] == "eevdf+numa-balancing");
        let over = &policy["over_linux"];
        assert!(over["mean"].is_f64() && over["ci95"].is_f64(), "{policy}");
        let apps = policy["apps"].as_array().unwrap();
        assert_eq!((apps[0]["name"].as_str(), apps[1]["name"].as_str()), (Some("membench"), Some("hubench")));
        let progress: Vec<f64> = apps.iter().filter_map(|a| a["progress"].as_f64()).collect();
        for (app, progress) in apps.iter().zip(&progress) {
            assert!(app["time_s"].as_f64().unwrap() > 0.0);
            assert!((app["slowdown"].as_f64().unwrap() * progress - 1.0).abs() < 1e-9, "{app}");
        }
        let fairness = |key: &str| policy["fairness"][key].as_f64().unwrap();
        assert!((number("weighted_speedup") - progress.iter().sum::<f64>()).abs() < 1e-9);
        assert!((fairness("min") - progress[0].min(progress[1])).abs() < 1e-9);
        assert!((fairness("max") - progress[0].max(progress[1])).abs() < 1e-9);
        let latency = |key: &str| apps[1]["latency_s"][key].as_f64().unwrap();
        assert!(latency("p50") <= latency("p95") && latency("p95") <= latency("p99"), "{policy}");
        assert!(latency("p99_min") <= latency("p99") && latency("p99") <= latency("p99_max"), "{policy}");
        assert!(apps[1]["backlog"].as_f64().is_some());
    }
    assert!(policies[2]["search"]["map"].as_str().unwrap().contains('X'), "{report}");
    assert_eq!(folder.sim(&["--policy", "none,sam,optimal", "--evaluations", "30", "--json"]).stdout, output.stdout);
}

/// With a figure that the machine's file calls a guess, with programs of which something is assumed, and with nothing
/// to guess.
#[test]
fn a_result_says_how_sure_it_is() {
    let rest =
        "llc_ns = 20, memory_queue_ns = 9, coherence_ns = [30, 100, 140], lines_in_flight = 16, page_move_gbs = 1";
    let sure = MACHINE.replace("link_gbs = 15 }", &format!("link_gbs = 15, {rest}, migration_us = 5 }}"));
    let report = |machine: &str, args: &[&str]| -> Value {
        let measured = GOOD.replace("'membench'", "'sledge-small'").replace("'hubench'", "'bst-4mb'");
        let scenario = if args.contains(&"assumed") { GOOD } else { &measured };
        let args: Vec<&str> = args.iter().copied().filter(|arg| *arg != "assumed").collect();
        let output =
            Folder::new("band", scenario, machine).sim(&[&["--policy", "none,sam", "--json"], &args[..]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let nothing = report(&sure, &[]);
    assert_eq!(nothing["guessed"], serde_json::json!([]));
    assert!(nothing["policies"][1]["over_linux_band"].is_null(), "{nothing}");
    let sources = "migration_us = 5, sources = { memory_gbs = 'guess: as its neighbour' } }";
    let guess = sure.replace("migration_us = 5 }", sources);
    let unsure = report(&guess, &[]);
    assert_eq!(unsure["guessed"], serde_json::json!(["memory_gbs"]));
    for policy in unsure["policies"].as_array().unwrap() {
        let band = &policy["over_linux_band"];
        let count = |key: &str| band[key].as_u64().unwrap();
        assert!(count("draws") == 10 && count("faster") + count("slower") <= 10, "{band}");
        assert!(band["least"].as_f64() <= band["most"].as_f64(), "{band}");
        for app in policy["apps"].as_array().unwrap() {
            let (least, most) = (app["slowdown_band"][0].as_f64().unwrap(), app["slowdown_band"][1].as_f64().unwrap());
            assert!(1.0 <= least + 1e-6 && least <= most, "{app}");
        }
    }
    assert_eq!(unsure["policies"][0]["apps"][0]["slowdown"], nothing["policies"][0]["apps"][0]["slowdown"]);
    let assumed = report(&sure, &["assumed"]);
    assert_eq!(assumed["assumed"], serde_json::json!({ "hubench": ["cpi"], "membench": ["cpi", "mlp"] }));
    assert_eq!(assumed["policies"][1]["over_linux_band"]["draws"], 10, "{assumed}");
    assert!(report(&guess, &["--no-band"])["policies"][1]["over_linux_band"].is_null());
}

#[test]
fn the_seed_that_is_named_is_recorded() {
    let folder = Folder::new("seed", GOOD, MACHINE);
    let recorded = |seed: &str| {
        let output = folder.sim(&["--policy", "sam", "--no-band", "--record", "a.rec", "--record-seed", seed]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rounds = Recording::read(fs::File::open(folder.0.join("a.rec")).unwrap()).unwrap();
        rounds.map(|round| format!("{:?}", round.sample)).collect::<Vec<_>>()
    };
    let one = recorded("1");
    assert!(!one.is_empty() && one == recorded("1") && one != recorded("2"));
}

/// Holds place/papers.
#[test]
fn heuristic_measures_what_it_needs() {
    let marked = format!("{GOOD}latency_sensitive = true\n");
    let output = Folder::new("tree", &marked, MACHINE).sim(&["--policy", "none,heuristic", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["policies"][1]["name"], "heuristic");
    let known = &report["characteristics"];
    assert_eq!(
        (&known["apps"]["hubench"]["latency_sensitive"], known["apps"]["hubench"]["sharing"].as_f64()),
        (&Value::Bool(true), Some(1.0))
    );
    assert!(
        known["high"]["footprint_per_ms"].as_f64() < known["apps"]["membench"]["footprint_per_ms"].as_f64(),
        "{known}"
    );
}

#[test]
fn csv_and_table_say_the_same() {
    let folder = Folder::new("csv", GOOD, MACHINE);
    let text = |args: &[&str]| String::from_utf8(folder.sim(args).stdout).unwrap();
    let csv = text(&["--csv", "--kernel", "cache-aware+numa-balancing"]);
    let lines: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(lines[0], ["policy", "kernel", "seed", "app", "time_s", "alone_s", "slowdown", "migrations"]);
    assert_eq!(lines.len(), 1 + 2 * 2 * 2, "policies × seeds × applications: {csv}");
    assert!(lines.iter().all(|l| l.len() == 8), "{csv}");
    assert_eq!(lines[1][..4], ["none", "cache-aware+numa-balancing", "1", "membench"]);
    let table = text(&["--kernel", "cache-aware+numa-balancing"]);
    let row = |name: &str| table.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name} in {table}"));
    assert!(table.starts_with("two, kernel cache-aware+numa-balancing, 2 seeds"), "{table}");
    for name in ["membench", "hubench", "makespan", "migrations", "over Linux", "over its best"] {
        assert!(row(name).split_whitespace().count() >= 3, "{table}");
    }
    let alone: f64 = lines[1][5].parse().unwrap();
    assert!(row("membench").contains(&format!("{alone:.3}")), "{table}");
    let width = row("membench").chars().count();
    assert_eq!((row("hubench").chars().count(), row("makespan").chars().count()), (width, width), "columns: {table}");
    assert!(table.chars().all(|c| c != '\u{1b}'), "no colours in a pipe");
}

/// The first TOML block after `before` in a page.
fn example<'a>(page: &'a str, before: &str) -> &'a str {
    let rest = &page[page.find(before).unwrap_or_else(|| panic!("no '{before}'"))..];
    rest.split("```toml\n").nth(1).and_then(|block| block.split("```").next()).unwrap()
}

#[test]
fn the_examples_of_the_book_run() {
    let page = include_str!("../../../../docs/reference/scenario.md");
    let small = example(include_str!("../../../../docs/reference/mix.md"), "FILE is TOML of eight lines");
    let folder = Folder::new("book", example(page, "A memory-bound and a sharing program"), MACHINE);
    fs::write(folder.0.join("eight-cores.toml"), small).unwrap();
    let first = folder.sim(&[]);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    fs::write(folder.0.join("s.toml"), example(page, "A service with a program of its own")).unwrap();
    let second = folder.sim(&["--policy", "none"]);
    assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
    assert!(String::from_utf8_lossy(&second.stdout).contains("service p99"), "{second:?}");
}
