//! `cotenant reproduce` through the binary.

use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

const ALL: [&str; 40] = [
    "sam-fig1",
    "sam-fig2",
    "sam-fig5",
    "sam-fig6",
    "sam-fig7",
    "sam-fig8",
    "sam-sensitivity",
    "sam-overhead",
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
    "tang-heuristic",
    "tang-atom",
    "tang-contentiousness",
    "tang-model",
    "tang-padding",
    "tang-naps",
    "tang-qos-compile",
    "tang-rn-simple",
    "tang-rn-targeted",
    "tang-rn-overhead",
    "tumanov-heatmap",
    "tumanov-distance",
    "tumanov-stream",
    "tumanov-bench2",
];

fn cotenant(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cotenant")).args(args).output().unwrap()
}

#[test]
fn every_experiment_is_listed_and_others_are_refused() {
    let output = cotenant(&["reproduce", "--list"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ALL);

    for args in [&["reproduce", "sam-fig9"][..], &["reproduce", "--seeds", "0"]] {
        let output = cotenant(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
    let output = cotenant(&["reproduce", "sam-fig9"]);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no experiment 'sam-fig9'; known: sam-fig1"),
        "{output:?}"
    );
}

#[test]
fn a_quick_reproduction_has_its_keys_and_makes_a_report() {
    let output = cotenant(&["reproduce", "--quick", "--json"]);
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
            let silent = row["verdict"] == "no figure in the paper's text";
            assert!(row["paper"].is_null() || !silent, "figures of the paper are judged: {row}");
        }
    }
    let alone = || cotenant(&["reproduce", "--quick", "--json", "sam-fig5"]).stdout;
    let one = alone();
    assert!(one == alone(), "the same bytes again");
    let one: Vec<Value> = serde_json::from_slice(&one).unwrap();
    assert!(one == results[2..3], "alone as among the others");

    let json = std::env::temp_dir().join(format!("cotenant-reproduce-{}.json", std::process::id()));
    let page = json.with_extension("html");
    fs::write(&json, &output.stdout).unwrap();
    let made = cotenant(&["report", json.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    assert!(made.status.success(), "{made:?}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(ALL.iter().all(|name| html.contains(name)), "every experiment stands on the page");
    for path in [json, page] {
        fs::remove_file(path).unwrap();
    }
}

/// What studies on this machine come to; `None` where two programs have no two CPUs.
fn real(names: &[&str]) -> Option<Vec<Value>> {
    let output = cotenant(&[&["reproduce", "--real", "--quick", "--json"], names].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(1) && said.contains("two CPUs") {
        eprintln!("skipped: {said}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn pairs_are_measured_on_this_machine() {
    let refused = cotenant(&["reproduce", "--real", "sam-fig1"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && error.contains("there are tang-contentiousness"), "{error}");
    let Some(results) = real(&["tang-contentiousness"]) else { return };
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

#[test]
fn naps_are_weighed_on_this_machine() {
    let Some(results) = real(&["tang-rn-simple", "tang-rn-overhead"]) else { return };
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
