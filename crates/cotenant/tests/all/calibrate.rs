//! `cotenant calibrate` for a user.

use cotenant_model::profile::{Contentiousness, MachineProfile};
use cotenant_model::stats::regression::Coefficient;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cotenant-calibrate-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// With this folder as the data folder.
fn cotenant(data: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.args(args).env("XDG_CONFIG_HOME", "/proc/nonexistent").env("XDG_DATA_HOME", data).stdin(Stdio::null());
    command
}

fn run(data: &Path, args: &[&str]) -> Output {
    cotenant(data, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The profile in the data folder.
fn profile(data: &Path) -> PathBuf {
    let mut files = fs::read_dir(data.join("cotenant/machines")).unwrap().map(|entry| entry.unwrap().path());
    let path = files.next().unwrap();
    assert_eq!(files.next(), None, "one machine, one profile, no drafts");
    path
}

/// Holds run/busy, measure/calibration.
#[test]
fn a_profile_is_written_found_and_known_to_be_stale() {
    let folder = Folder::new("profile");
    let data = &folder.0;
    let pictures = data.join("pictures");
    let out = run(
        data,
        &[
            "calibrate",
            "--quick",
            "--force",
            "--only",
            "clock,core-to-core,migration",
            "--json",
            "--svg-dir",
            pictures.to_str().unwrap(),
        ],
    );
    assert!(out.status.success(), "{}", text(&out.stderr));
    let record: Value = serde_json::from_slice(&out.stdout).unwrap();
    let others = record["used_by_others"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&others), "{others}");
    let figures: Vec<&str> =
        record["figures"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    let left_out = record["left_out"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap());
    assert!(figures.contains(&"clock_hz"), "{figures:?}");
    assert!(figures.iter().copied().chain(left_out).any(|name| name == "migration_us"), "measured, or said why not");
    for figure in record["figures"].as_array().unwrap() {
        assert!(
            figure["low"].as_f64() <= figure["value"].as_f64() && figure["value"].as_f64() <= figure["high"].as_f64()
        );
        // Two threads that a busy machine never runs at once measure nothing in that round.
        assert!((1..=3).contains(&figure["rounds"].as_u64().unwrap()), "{figure}");
    }
    if record["core_to_core_cpus"].as_array().unwrap().len() > 1 {
        let picture = fs::read_to_string(pictures.join("core-to-core.svg")).unwrap();
        assert!(picture.starts_with("<svg") && picture.contains("ns</title>"));
    }
    // Found without being named, and valid: there is no remark.
    let path = profile(data);
    let out = run(data, &["run", "-q", "--", "true"]);
    assert!(out.status.success() && !text(&out.stderr).contains("stale"), "{}", text(&out.stderr));
    // Measured under another kernel.
    let written = fs::read_to_string(&path).unwrap();
    let kernel = record["stamp"]["kernel"].as_str().unwrap();
    fs::write(&path, written.replace(kernel, "2.6.32")).unwrap();
    for args in [vec!["run", "-q", "--", "true"], vec!["run", "-q", "--profile", path.to_str().unwrap(), "--", "true"]]
    {
        let out = run(data, &args);
        let said = text(&out.stderr);
        let expected = format!("is stale: the kernel was '2.6.32' and is '{kernel}'; calibrate again");
        assert!(out.status.success() && said.contains(&expected), "{said}");
    }
    // A damaged one is reported, with the place.
    fs::write(&path, "clock_hz = \"fast\"\n").unwrap();
    let out = run(data, &["run", "-q", "--", "true"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains(".toml:1:12: "), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("name another with --profile"), "{}", text(&out.stderr));
    // It stops neither a user with a good one nor a diagnosis.
    let good = data.join("good.toml");
    fs::write(&good, written).unwrap();
    for args in [&["run", "-q", "--profile", good.to_str().unwrap(), "--", "true"][..], &["doctor"]] {
        let out = run(data, args);
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        let said = text(&out.stderr);
        assert!(said.contains("not used: ") && said.contains(".toml:1:12: "), "{args:?}: {said}");
    }
}

#[test]
fn what_cannot_be_is_one_line() {
    let folder = Folder::new("bad");
    let out = run(&folder.0, &["calibrate", "--only", "clock,speed"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("--only 'speed': there is no such measurement; there are clock, core-to-core"));
    let out = run(&folder.0, &["calibrate", "--quick", "--only", "clock", "-o", "/proc/nowhere/profile.toml"]);
    assert_eq!(out.status.code(), Some(2));
    let said = text(&out.stderr);
    assert!(
        said.lines().last().unwrap().contains("/proc/nowhere/profile.toml: the profile cannot be written"),
        "{said}"
    );
    let out = run(&folder.0, &["calibrate", "--quick", "--only", "clock", "-o", "/dev/full"]);
    assert_eq!(out.status.code(), Some(1), "a full disk");
    assert!(text(&out.stderr).contains("/dev/full: the profile cannot be written"), "{}", text(&out.stderr));
    assert!(!fs::metadata("/dev/full").unwrap().is_file(), "a device is not replaced by a file");
}

/// Threads of a process.
fn threads(process: &Child) -> usize {
    fs::read_dir(format!("/proc/{}/task", process.id())).map_or(0, Iterator::count)
}

/// Whether SIGINT would not end it at once: before that, it has nothing to give back. While a thread is made, all
/// signals are blocked, SIGTSTP as well.
fn hears_interrupts(process: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let set = blocked.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    let is = |signal: i32| set & 1 << (signal - 1) != 0;
    is(libc::SIGINT) && !is(libc::SIGTSTP)
}

/// Holds run/end.
#[test]
fn interrupted_it_leaves_no_half_profile() {
    for (signal, code) in [("INT", Some(1)), ("TERM", Some(1)), ("KILL", None)] {
        let folder = Folder::new(&format!("interrupted-{signal}"));
        let path = folder.0.join("profile.toml");
        fs::write(&path, "clock_hz = 1e9\n").unwrap();
        let child = cotenant(&folder.0, &["calibrate", "-o", path.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let end = Instant::now() + Duration::from_secs(300);
        while threads(&child) < 2 || !hears_interrupts(&child) {
            assert!(Instant::now() < end, "it does not begin");
            std::thread::yield_now();
        }
        Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), code, "{signal}: {}", text(&out.stderr));
        assert_eq!(fs::read_to_string(&path).unwrap(), "clock_hz = 1e9\n", "the old one is still there");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "no draft is left");
    }
}

/// The fewest kernels, the shortest runs.
const FIT: [&str; 5] =
    ["calibrate", "--contentiousness", "--quick", "--kernels", "naive-4mb,naive-50mb,bst-4mb,sledge-small"];

/// What others disturbed is none that later commands use, and replaces none.
/// Holds run/busy.
#[test]
fn what_a_busy_machine_tells_is_not_written() {
    let folder = Folder::new("busy");
    let cpus = std::thread::available_parallelism().unwrap().get();
    let spin = |_| Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
    let mut spinners: Vec<Child> = (0..2 * cpus).map(spin).collect();
    let mine = folder.0.join("mine.toml");
    let quick = ["calibrate", "--quick", "--only", "clock"];
    let on = ["-o", mine.to_str().unwrap()];
    let [found, named, again, forced] = [&[][..], &on, &on, &["-o", mine.to_str().unwrap(), "--force"]].map(|more| {
        let out = run(&folder.0, &[&quick[..], more].concat());
        (out.status.code(), text(&out.stderr), fs::read_to_string(&mine).ok())
    });
    for spinner in &mut spinners {
        spinner.kill().unwrap();
        spinner.wait().unwrap();
    }
    assert!(
        found.0 == Some(4) && found.1.contains(": not written; calibrate again when nothing else runs"),
        "{found:?}"
    );
    assert!(fs::read_dir(folder.0.join("cotenant/machines")).unwrap().next().is_none(), "no later command finds it");
    assert!(named.0 == Some(0) && named.1.contains("too noisy") && named.2.is_some(), "a new file is: {named:?}");
    assert!(again.0 == Some(4) && again.2 == named.2, "it replaces none: {again:?}");
    assert!(forced.0 == Some(0) && forced.2 != named.2, "{forced:?}");
}

/// Whether counters or cachegrind can measure lines here.
fn has_valgrind() -> bool {
    let tried = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Holds measure/profiles.
#[test]
fn the_contentiousness_model_is_fitted_and_stored() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    if cpus < 2 || !has_valgrind() {
        eprintln!("skipped: it needs two CPUs, and valgrind where lines cannot be counted");
        return;
    }
    let folder = Folder::new("contention");
    let data = &folder.0;
    let path = data.join("profile.toml");
    fs::write(&path, "clock_hz = 1e9\n[heuristic]\nsharing = 0.4\nfootprint_per_ms = 4000\n").unwrap();
    let out = run(data, &[&FIT[..], &["--force", "-o", path.to_str().unwrap()]].concat());
    let said = text(&out.stderr);
    assert!(said.contains("24 runs to come"), "{said}");
    if !out.status.success() {
        // On one core per cache; with a last level that holds all of these.
        let why =
            ["no two cores that may be used", "too much alike to fit a model"].into_iter().find(|w| said.contains(w));
        eprintln!("skipped: {}", why.unwrap_or_else(|| panic!("{said}")));
        assert!(out.status.code() == Some(1) && fs::read_to_string(&path).unwrap().starts_with("clock_hz"));
        return;
    }
    let table = text(&out.stdout);
    for name in ["naive-50mb", "R² ", "miss rate alone", "written to"] {
        assert!(table.contains(name), "{table}");
    }
    let known = cotenant_model::machine::parse_profile(&fs::read_to_string(&path).unwrap()).unwrap();
    let model = known.contentiousness.expect("it is stored");
    assert!(model.programs == 4 && model.rounds == 1 && (0.0..=1.0).contains(&model.r2), "{model:?}");
    assert_eq!(
        (known.clock_hz, known.heuristic.map(|high| high.footprint_per_ms)),
        (Some(1e9), Some(4000.0)),
        "it stays"
    );
}

/// Holds measure/profiles.
#[test]
fn a_contentiousness_model_is_kept_and_used_where_it_says_something() {
    let folder = Folder::new("used");
    let data = &folder.0;
    let calibrate = ["calibrate", "--quick", "--force", "--only", "clock"];
    assert!(run(data, &calibrate).status.success());
    let path = profile(data);
    let read = || cotenant_model::machine::parse_profile(&fs::read_to_string(&path).unwrap()).unwrap();
    let write = |known: &MachineProfile| fs::write(&path, cotenant_model::profile::calibration::write(known)).unwrap();
    let mut known = read();
    let of = |value| Coefficient { value, error: 0.1, p: 0.001 };
    let good = Contentiousness {
        method: "by hand".into(),
        programs: 15,
        rounds: 3,
        r2: 0.9,
        p: 0.001,
        leave_one_out: 0.01,
        miss_rate_r2: None,
        requests_r2: None,
        used_by_others: None,
        a: of(2.0),
        b: of(9.0),
        c: of(0.1),
        stamp: known.calibration.as_ref().unwrap().stamp.clone(),
    };
    known.contentiousness = Some(Box::new(good.clone()));
    write(&known);
    // The rest is calibrated anew.
    assert!(run(data, &calibrate).status.success());
    assert_eq!(read().contentiousness.as_deref(), Some(&good));
    if !has_valgrind() {
        eprintln!("skipped: there is no valgrind, so that nothing tells lines");
        return;
    }
    let regions = || {
        let out = run(data, &["regions", "-q", "--source", "cachegrind", "--", "true"]);
        (text(&out.stdout), text(&out.stderr))
    };
    let (found, _) = regions();
    assert!(found.contains("scored by the coefficients of this machine"), "{found}");
    let only = ["characterize", "-q", "-n", "a", "--only", "misses", "--", "sh", "-c"];
    let out = run(data, &[&only[..], &["sleep 0.1; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done"]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("by this machine's model of lines per ns"), "{}", text(&out.stdout));
    let shown = text(&run(data, &["profiles", "show", "a"]).stdout);
    assert!(shown.contains("contentiousness_model = "), "{shown}");
    // One explained by chance or from another machine is not used, with a remark.
    let chance = Contentiousness { p: 0.5, ..good.clone() };
    let mut other = good;
    other.stamp.kernel = "2.6.32".into();
    for (model, why) in [(chance, "chance explains it as well"), (other, "the kernel was '2.6.32'")] {
        known.contentiousness = Some(Box::new(model));
        write(&known);
        let (found, said) = regions();
        assert!(found.contains("coefficients of the paper's Nehalem") && said.contains(why), "{found}{said}");
    }
}

/// Holds run/end.
#[test]
fn a_model_that_cannot_be_is_one_line() {
    let folder = Folder::new("model");
    let says = |args: &[&str], code: i32, what: &str| {
        let out = run(&folder.0, &[&["calibrate"], args].concat());
        let said = text(&out.stderr);
        assert!(out.status.code() == Some(code) && said.contains(what), "{args:?}: {said}");
        let own = said.lines().filter(|line| !line.contains("keep this machine busy"));
        assert_eq!(own.count(), 1, "{args:?}: {said}");
    };
    says(&["--contentiousness", "--kernels", "bst-4mb,nothing"], 2, "--kernels nothing: there is no such kernel");
    says(&["--contentiousness", "--kernels", "bst-4mb,bst-4mb,cpu,chase"], 2, "needs 4 kernels or more");
    says(&["--kernels", "bst-4mb"], 2, "--contentiousness");
    says(&["--contentiousness", "--only", "clock"], 2, "cannot be used with");
    let damaged = folder.0.join("damaged.toml");
    fs::write(&damaged, "[contentiousness]\na = 1\n").unwrap();
    says(&["--contentiousness", "-o", damaged.to_str().unwrap()], 2, "damaged.toml:2:5: ");
    let machine = folder.0.join("machine.toml");
    let text = "name = 'm'\ndescription = 'd'\nsource = 's'\n[topology]\nsynthetic = 'core:2 pu:1'\n";
    fs::write(&machine, text).unwrap();
    says(&["--contentiousness", "-o", machine.to_str().unwrap()], 2, "this is a machine file");
    assert_eq!(fs::read_to_string(&machine).unwrap(), text);
}

/// Holds run/end.
#[test]
fn an_interrupted_fit_leaves_the_profile_and_no_program() {
    for signal in ["INT", "TERM", "KILL"] {
        let folder = Folder::new(&format!("fit-{signal}"));
        let path = folder.0.join("profile.toml");
        fs::write(&path, "clock_hz = 1e9\n").unwrap();
        let mut args = FIT.to_vec();
        args.extend(["-o", path.to_str().unwrap()]);
        let mut child = cotenant(&folder.0, &args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let children = || {
            let path = format!("/proc/{0}/task/{0}/children", child.id());
            fs::read_to_string(path).unwrap_or_default()
        };
        let end = Instant::now() + Duration::from_secs(300);
        let kernel = loop {
            assert!(Instant::now() < end, "it starts no kernel");
            if let Some(pid) = children().split_whitespace().next() {
                break pid.to_owned();
            }
            std::thread::yield_now();
        };
        Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), (signal != "KILL").then_some(1), "{signal}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "clock_hz = 1e9\n", "the old one is still there");
        let lives = || fs::read_to_string(format!("/proc/{kernel}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        // A killed process cannot end it; it ends by itself, since its work is finite.
        let end = Instant::now() + Duration::from_secs(300);
        while lives() {
            assert!(signal == "KILL" && Instant::now() < end, "{signal}: the kernel runs on");
            std::thread::yield_now();
        }
    }
}
