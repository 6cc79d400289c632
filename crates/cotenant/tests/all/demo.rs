//! `cotenant demo` and `cotenant` alone, with real programs and short phases. Figures are not asserted, since the
//! machine may be busy.

use crate::world::{State, signal};
use cotenant_testing::browser::Browser;
use cotenant_testing::{TempDir, eventually};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

const PHASES: [&str; 5] = ["server alone", "beside the batch", "batch at nice 19", "in the background", "cotenant qos"];

/// An environment variable of all programs of a demonstration.
const MARK: &str = "COTENANT_DEMO_TEST";

fn demo(state: &State, args: &[&str]) -> Command {
    let mut command = state.cotenant(&[&["demo", "--seconds", "6"], args].concat());
    command.env(MARK, state.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Present processes of this demonstration.
fn there(state: &State) -> Vec<String> {
    let mark = format!("{MARK}={}", state.path().display());
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let marked = processes.filter(|process| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    });
    marked.map(|process| fs::read_to_string(process.join("cmdline")).unwrap_or_default().replace('\0', " ")).collect()
}

#[test]
fn figures_come_as_json_and_as_a_page() {
    let (state, folder) = (State::new("demo-json"), TempDir::new("demo-page"));
    let file = folder.path().join("demo.html");
    let out = demo(&state, &["--json", "--report", file.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let phases = json["phases"].as_array().unwrap();
    assert_eq!(phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect::<Vec<_>>(), PHASES);
    for (phase, seconds) in phases.iter().zip([0.25, 0.25, 0.25, 0.25, 2.5]) {
        let figure = |key: &str| phase[key].as_f64().unwrap_or_else(|| panic!("{key}: {phase}"));
        assert_eq!(figure("seconds"), seconds);
        assert!(figure("answers") > 200.0 * seconds, "nobody waits with a question for an answer: {phase}");
        let [low, high] = [0, 1].map(|end| phase["p99_interval_s"][end].as_f64().unwrap());
        let p99 = figure("p99_s");
        assert!(0.0 < figure("p50_s") && figure("p50_s") <= p99 && low <= p99 && p99 <= high, "{phase}");
        let alone = phase["name"] == PHASES[0];
        assert_eq!(phase["batch_cpus"].as_f64().is_some_and(|cpus| cpus > 0.0), !alone, "{phase}");
    }
    assert_eq!(json["qos"]["high"][0]["metric"], "latency_p99_s", "really that: {}", json["qos"]);
    assert_eq!(
        json["batch"],
        format!("cotenant kernel stream --threads {0} --size {1}", json["threads"], json["bytes"])
    );
    for change in ["harm", "nice", "background", "qos"] {
        let known = ["longer", "shorter", "none"].contains(&json["verdict"][change].as_str().unwrap());
        assert!(known, "{}", json["verdict"]);
    }
    let busy = json["verdict"]["busy"].is_string();
    let gained = !busy && json["verdict"]["harm"] == "longer" && json["verdict"]["qos"] == "shorter";
    for (when, least) in [("before", 0.1), ("during", 5.0)] {
        let usage = &json["usage"][when];
        assert!(usage["seconds"].as_f64() >= Some(least) && usage["others"].is_f64(), "{usage}");
    }
    let background = ["cpu.idle 1 of", "cpu.weight 1 of", "cpu.shares 2 of", "autogroup nice 19", "SCHED_IDLE"];
    let by_hand = json["by_hand"].as_str().unwrap();
    assert!(background.iter().any(|means| by_hand.starts_with(means)), "{by_hand}");
    assert_eq!(json["verdict"]["gained"], gained, "{}", json["verdict"]);
    assert!(json["verdict"]["text"].as_array().unwrap().len() >= 3, "{}", json["verdict"]);
    assert!(json["simulated"]["over_linux"]["value"].as_f64() > Some(0.0), "{}", json["simulated"]);
    assert_eq!(json["outlook"]["next"].as_array().unwrap().len(), 4);
    let page = fs::read_to_string(&file).unwrap();
    let page = roxmltree::Document::parse_with_options(
        &page,
        roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() },
    );
    let figures = page.unwrap().descendants().filter(|node| node.has_tag_name("figure")).count();
    assert_eq!(figures, 2);
    assert_eq!((there(&state), state.journals()), (Vec::new(), 0));
    let Some(mut browser) = Browser::start("demo") else { return };
    for (size, dark) in [((1440, 900), false), ((390, 844), true)] {
        browser.dress(size, dark);
        browser.go(&format!("file://{}", file.display()));
        browser.until("document.querySelectorAll('figure svg').length === 2");
        assert_eq!(browser.value("document.documentElement.scrollWidth"), size.0, "{size:?}");
        assert_eq!(browser.pale(), [] as [Value; 0], "{size:?}, dark: {dark}");
        browser.shoot(&format!("demo-{}", size.0));
    }
    assert_eq!(browser.complaints, [] as [String; 0]);
}

#[test]
fn where_no_page_can_be_written_nothing_is_measured() {
    let (state, folder) = (State::new("demo-refused"), TempDir::new("demo-refused"));
    for place in [folder.path(), &folder.path().join("gone/demo.html")] {
        let out = demo(&state, &["--report", place.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("choose another place with --report"), "{said}");
    }
}

/// Holds run/demo.
#[test]
fn what_is_piped_fits_80_columns() {
    let state = State::new("demo-text");
    let out = demo(&state, &[]).output().unwrap();
    let [shown, said] = [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(out.status.success(), "{said}");
    for line in shown.lines() {
        assert!(line.chars().count() <= 80 && !line.contains('\x1b'), "{line}\n{shown}");
    }
    for phase in PHASES {
        let rows: Vec<&str> = shown.lines().filter(|line| line.starts_with(phase)).collect();
        // Figures, bar of the p99, bar of the CPUs if any.
        assert!(rows.len() >= 3 && rows[1].ends_with('#'), "{phase}\n{shown}");
        assert!(said.contains(&format!("cotenant: {phase}: p50 ")), "{said}");
    }
    for part in
        ["p99 of the server", "in the background: ", "Simulated, not measured", "What to try next", "cotenant doctor"]
    {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

/// Starts one, and waits for this output.
fn started(state: &State, says: &str) -> Child {
    let mut demo = demo(state, &[]).spawn().unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(says)), "it does not say '{says}'");
    std::thread::spawn(move || lines.for_each(drop));
    demo
}

/// Holds run/demo.
#[test]
fn whatever_ends_it_nothing_is_left() {
    // In each phase: the last output before it.
    for says in ["Ctrl-C ends", PHASES[0], PHASES[1], PHASES[2], PHASES[3]] {
        for (name, code, number) in [("INT", Some(130), None), ("KILL", None, Some(9))] {
            let state = State::new("demo-end");
            let mut demo = started(&state, says);
            eventually("its programs run", || there(&state).len() > 1);
            signal(name, demo.id());
            let ended = demo.wait().unwrap();
            assert_eq!((ended.code(), ended.signal()), (code, number), "{says}");
            if name == "INT" {
                assert_eq!(there(&state), [""; 0], "{says}: they end before it does");
            }
            eventually(&format!("{says}, {name}: its programs are gone"), || there(&state).is_empty());
            eventually(&format!("{says}, {name}: the journal goes"), || state.journals() == 0);
        }
    }
}

/// Promise run/first-steps: `cotenant` alone says what to try; `run` without options tries placements where a program
/// reports its speed, and else says what would help.
#[test]
fn alone_it_says_what_to_try() {
    let state = State::new("alone");
    let out = state.cotenant(&[]).output().unwrap();
    let [shown, said] = [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!((out.status.code(), said.as_str()), (Some(0), ""));
    let steps = shown.lines().filter(|line| line.starts_with("  cotenant "));
    assert_eq!(steps.count(), 3, "{shown}");
    for part in ["this machine", "placing", "speeds", "throttling", "  cotenant demo", "cotenant --help"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
