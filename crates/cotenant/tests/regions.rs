//! `cotenant regions`: the code that misses is found, the same each time, and the pass' reader takes the file.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SOURCE: &str = r"
#include <stdlib.h>
static volatile long sum;
__attribute__((noinline)) void contentious(char *memory, long size) {
    for (int round = 0; round < 2; round++)
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
        let _ = writeln!(std::io::stderr(), "skipped: there is no {command}");
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
    let words = ["-o", file.to_str().unwrap(), "--", program.to_str().unwrap()];
    let out = regions(&words);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(7), "the program's own: {said}");
    assert!(said.contains("simulated: ") && said.contains("contentious ("), "{said}");
    let text = fs::read_to_string(&file).unwrap();
    let regions_found = cotenant_core::region::parse(&text).unwrap();
    let of = |name: &str| regions_found.iter().find(|r| r.function.as_deref() == Some(name)).expect(name);
    let (contentious, quiet) = (of("contentious"), of("quiet"));
    assert_eq!(regions_found.first().unwrap().function, contentious.function, "{said}");
    assert!(contentious.score > 0.2 && contentious.coverage > 0.5, "{contentious:?}");
    assert!(quiet.score < 0.05, "{quiet:?}");
    let (first, last) = contentious.lines.unwrap();
    assert!((4..=9).contains(&first) && (4..=9).contains(&last), "{first}-{last}");
    assert!(contentious.file.as_ref().unwrap().ends_with("walk.c"));
    // Deterministic.
    assert_eq!(regions(&words).status.code(), Some(7));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
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
}
