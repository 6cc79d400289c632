//! Interference on real programs: one that reports its progress, and one that takes its CPU and releases it again.

use cotenant_testing::TempDir;
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

/// The variable that makes a copy of this test binary work until this file exists.
const UNTIL: &str = "COTENANT_TEST_UNTIL";

/// The program that reports; nothing when it is run as a test.
#[test]
fn program() {
    let Ok(until) = std::env::var(UNTIL) else { return eprintln!("skipped: the other test starts it as a program") };
    for round in 0_u64.. {
        cotenant_rt::units(1);
        (0..20_000_u64).for_each(|i| {
            std::hint::black_box(i);
        });
        if round % 64 == 0 && fs::exists(&until).unwrap() {
            break;
        }
    }
}

/// Holds run/interference.
#[test]
fn a_program_that_comes_and_goes_on_ones_cpu_is_found_out() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let cpu = allowed.split(['-', ',']).next().unwrap();
    if Command::new("taskset").arg("-V").stdout(Stdio::null()).status().is_err() {
        return eprintln!("skipped: no taskset");
    }
    let folder = TempDir::new("interference");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (until, hog, recording, page) = (path("until"), path("hog.sh"), path("a.rec"), path("a.html"));
    // 1.2 s of rest and of work, sixteen times; work is measured by the clock, independent of its share of the CPU.
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do\n\
                  sleep 1.2\ntimeout 1.2 sh -c 'while :; do :; done'\ndone\nsleep 1.2\n: >\"$1\"\n";
    fs::write(&hog, script).unwrap();
    let (this, queue) = (std::env::current_exe().unwrap(), path("queue.toml"));
    let jobs = format!(
        "[[job]]\nname = 'server'\nprofile = 'server'\nenv = {{ {UNTIL} = '{until}' }}\n\
         command = ['taskset', '-c', '{cpu}', '{}', '--exact', 'interference::program']\n\
         [[job]]\nname = 'hog'\nprofile = 'hog'\ncommand = ['taskset', '-c', '{cpu}', 'sh', '{hog}', '{until}']\n",
        this.display()
    );
    fs::write(&queue, jobs).unwrap();
    let mut schedule = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    schedule.args(["schedule", "--policy", "linux", "--quantum", "50ms", "--json", "--record", &recording, &queue]);
    schedule
        .arg("--anew")
        .env("XDG_CONFIG_HOME", "/proc/nonexistent")
        .env("XDG_STATE_HOME", path("state"))
        .stdin(Stdio::null());
    // Other programs on this machine may hide it, but not repeatedly.
    let mut outputs = (0..5).map(|_| {
        let _ = fs::remove_file(&until);
        schedule.output().unwrap()
    });
    let found = outputs.find_map(|output| {
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        summary["interference"].as_array().cloned()
    });
    let rows = found.expect("something is found in one of five runs");
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((&rows[0]["victim"], &rows[0]["aggressor"]), (&"server".into(), &"hog".into()));
    let number = |key: &str| rows[0][key].as_f64().unwrap();
    assert!(number("low") > 0.0 && number("low") <= number("loss") && number("loss") <= number("high"), "{rows:?}");
    assert!(number("events") >= 3.0);

    // The recording shows the same.
    let mut report = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    let output = report.args(["report", &recording, "-o", &page]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(&page).unwrap();
    let shares = format!("{:.1} % ({:.1} to {:.1} %)", number("loss") * 1e2, number("low") * 1e2, number("high") * 1e2);
    assert!(page.contains("Interference") && page.contains(&shares), "{shares}");
}
