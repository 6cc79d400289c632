//! `cotenant regions`: the missing code is found, and the pass' reader accepts the file; samples fall on the functions
//! and lines that ran.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const SOURCE: &str = r"
#include <stdlib.h>
static volatile long sum;
__attribute__((noinline)) void contentious(char *memory, long size) {
    for (int round = 0; round < 8; round++)
        for (long i = 0; i < size; i += 64)
            memory[i]++;
}
__attribute__((noinline)) void quiet(long n) {
    for (long i = 0; i < n; i++)
        sum += i;
}
int main(void) {
    long size = 512L << 20 >> 3;
    char *memory = malloc(size);
    contentious(memory, size);
    quiet(5000000);
    return 7;
}
";

fn found(command: &str) -> bool {
    let tried = Command::new(command).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = tried.is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: there is no {command}");
    }
    found
}

fn regions(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cotenant")).arg("regions").args(words).output().unwrap()
}

#[test]
fn contentious_code_is_found() {
    if !found("valgrind") || !found("cc") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("regions");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let (source, program, file) = (folder.join("walk.c"), folder.join("walk"), folder.join("walk.toml"));
    fs::write(&source, SOURCE).unwrap();
    let cc = Command::new("cc").args(["-O1", "-g", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(cc.success());
    let words = ["--source", "cachegrind", "-o", file.to_str().unwrap(), "--", program.to_str().unwrap()];
    let out = regions(&words);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(7), "the program's own: {said}");
    assert!(said.contains("simulated: ") && said.contains("contentious ("), "{said}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.lines().next().unwrap().contains("(cachegrind: "), "{text}");
    let regions_found = cotenant_model::region::parse(&text).unwrap();
    let of = |name: &str| regions_found.iter().find(|r| r.function.as_deref() == Some(name)).expect(name);
    let (contentious, quiet) = (of("contentious"), of("quiet"));
    assert_eq!(regions_found.first().unwrap().function, contentious.function, "{said}");
    assert!(contentious.score > 0.2 && contentious.coverage > 0.5, "{contentious:?}");
    assert!(quiet.score < 0.05, "{quiet:?}");
    let (first, last) = contentious.lines.unwrap();
    assert!((4..=9).contains(&first) && (4..=9).contains(&last), "{first}-{last}");
    assert!(contentious.file.as_ref().unwrap().ends_with("walk.c"));
    // A pipe cannot be read twice, so that the command runs once: then the time is an estimate, always the same.
    let piped = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
        let mut child =
            command.arg("regions").args(words).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdin.take());
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(7) && said.contains("time is estimated"), "{said}");
        fs::read_to_string(&file).unwrap()
    };
    assert_eq!(piped(), piped());
}

#[test]
fn both_runs_read_the_same_input() {
    if !found("valgrind") {
        return;
    }
    let input = Path::new(env!("CARGO_TARGET_TMPDIR")).join("regions-input");
    fs::write(&input, "7\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.args(["regions", "-q", "--source", "cachegrind", "--", "sh", "-c"]);
    // A computation long enough for samples.
    command.arg("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; read code && exit $code");
    let status = command.stdin(fs::File::open(input).unwrap()).stdout(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(7));
}

#[test]
fn what_cannot_be_run_says_so() {
    if !found("valgrind") {
        return;
    }
    let out = regions(&["-q", "--", "/proc/nonexistent/program"]);
    assert_eq!(out.status.code(), Some(127), "as shells say it");
    assert!(String::from_utf8_lossy(&out.stderr).contains("command not found"), "{out:?}");
    let out = regions(&["--min-coverage", "2", "--", "true"]);
    assert_eq!(out.status.code(), Some(2));
    let out = regions(&["-o", "/proc/nonexistent/file", "--", "true"]);
    assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stderr));
    // No function takes all of the time: a file without a region is not written.
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("regions-none.toml");
    let words = ["-q", "--source", "cachegrind", "--min-coverage", "1", "-o", file.to_str().unwrap(), "--", "true"];
    let out = regions(&words);
    assert_eq!((out.status.code(), file.exists()), (Some(1), false), "{}", String::from_utf8_lossy(&out.stderr));
}

const HOT: &str = r"
#include <time.h>
static volatile long sum;
__attribute__((noinline)) void hot(long n) {
    for (long i = 0; i < n; i++)
        sum += i * i;
}
__attribute__((noinline)) void cold(long n) {
    for (long i = 0; i < n; i++)
        sum -= i;
}
static inline __attribute__((always_inline)) long inlined(long n) {
    for (long i = 0; i < n; i++)
        sum ^= i * 3 + n;
    return sum;
}
int main(void) {
    struct timespec used;
    do {
        hot(200000);
        cold(20000);
        inlined(60000);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while (used.tv_sec == 0 && used.tv_nsec < 400000000);
    return 3;
}
";

/// Samples of time with the pipeline of counters' samples; `None`, visibly, if the kernel forbids sampling.
fn sampled(words: &[&str]) -> Option<(Option<i32>, Vec<cotenant_model::region::Region>, String)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let file = format!("{}/sampled-{}.toml", env!("CARGO_TARGET_TMPDIR"), COUNT.fetch_add(1, Ordering::Relaxed));
    let out = regions(&[&["--source", "clock", "-o", &file], words].concat());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    if out.status.code() == Some(1) && said.contains("cannot be sampled") {
        eprintln!("skipped: {said}");
        return None;
    }
    let text = fs::read_to_string(file).unwrap();
    assert!(text.lines().next().is_some_and(|line| line.contains("(counters: cpu-clock, ")), "{text}{said}");
    Some((out.status.code(), cotenant_model::region::parse(&text).unwrap(), said))
}

/// Promise compile/regions: Regions score the code that ran by function and line, also without counters, decide what
/// is slowed down, and survive their file.
#[test]
fn samples_fall_on_the_functions_and_lines_that_ran() {
    if !found("cc") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("regions-sampled");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("hot.c"), folder.join("hot"));
    fs::write(&source, HOT).unwrap();
    let cc = Command::new("cc").args(["-O1", "-g", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(cc.success());
    let program = program.to_str().unwrap();
    let Some((code, regions, said)) = sampled(&["--", program]) else { return };
    assert_eq!(code, Some(3), "the program's own: {said}");
    let of = |name: &str| {
        regions.iter().find(|r| r.function.as_deref() == Some(name)).unwrap_or_else(|| panic!("{name}: {said}"))
    };
    let hot = of("hot");
    assert_eq!(regions[0].function, hot.function, "{said}");
    assert!(hot.coverage > 0.4 && hot.file.as_ref().unwrap().ends_with("hot.c"), "{hot:?}");
    let (first, last) = hot.lines.unwrap();
    assert!((4..=7).contains(&first) && (4..=7).contains(&last), "{first}-{last}");
    // At its source line, not where it was inlined.
    let (first, last) = of("inlined").lines.unwrap();
    assert!((12..=16).contains(&first) && (12..=16).contains(&last), "{first}-{last}");

    // Its children are seen, too, also those not waited for before the end.
    let line = format!("{program} & {program}; wait");
    let Some((_, regions, said)) = sampled(&["--", "sh", "-c", &line]) else { return };
    assert_eq!(regions[0].function.as_deref(), Some("hot"), "{said}");
}

/// Holds compile/regions.
#[test]
fn samples_of_a_kernel_fall_on_its_loop() {
    let own = env!("CARGO_BIN_EXE_cotenant");
    let Some((code, regions, said)) = sampled(&["--", own, "kernel", "blockie-small", "--units", "200000000"]) else {
        return;
    };
    assert_eq!(code, Some(0), "{said}");
    // Hundreds of megabytes of symbols, in Rust and C.
    let found =
        regions.iter().find(|r| r.function.as_deref() == Some("ck_blockie")).unwrap_or_else(|| panic!("{said}"));
    assert!(found.coverage > 0.1 && found.file.as_ref().unwrap().ends_with("smash.c"), "{found:?}: {said}");
}

/// Holds compile/regions.
#[test]
fn without_counters_it_says_so_and_auto_simulates() {
    let out = regions(&["-q", "--source", "counters", "--", "true"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    if !said.contains("--source counters: ") {
        eprintln!("skipped: this machine has counters to sample: {said}");
        return;
    }
    assert_eq!((out.status.code(), said.trim_end().lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("--source cachegrind simulates"), "{said}");
    if found("valgrind") {
        let out = regions(&["--", "true"]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success() && said.contains("caches are simulated: "), "{said}");
    }
}
