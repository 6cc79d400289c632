//! `scripts/tally` counts what the check ran: nothing that did not run counts as passed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn tally(log: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/tally");
    let mut child = Command::new(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("awk");
    child.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// As libtest prints it with --show-output.
const LOG: &str = "\
running 5 tests
test cannot ... ok
test cannot_in_part ... ok
test does ... ok
test is_left_out ... ignored
test fails ... FAILED

successes:

---- cannot stdout ----
skipped: there is no valgrind
skipped: this kernel has no numa_maps

---- cannot_in_part stdout ----
skipped in part: there is no control group of version 1

successes:
    cannot
    cannot_in_part
    does

failures:

---- fails stdout ----
skipped: this is said before it fails

failures:
    fails

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
";

#[test]
fn what_says_that_it_is_skipped_is_not_passed() {
    assert_eq!(tally(LOG), "2 passed, 1 failed, 2 skipped\n");
}

#[test]
fn all_runners_count() {
    let ours = "guest one: skipped: no emulator\n4 passed, 0 failed, 3 skipped\n";
    assert_eq!(tally(&[LOG, LOG, ours].concat()), "8 passed, 2 failed, 7 skipped\n");
}
