//! `cotenant-lab cluster-sim` through the binary, over its pipes like a scheduler.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Holds cluster/pays.
#[test]
fn each_line_is_answered_before_the_next_is_asked() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_cotenant-lab"));
    server.args(["cluster-sim", "--machine", "nehalem-i7-920"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let (mut asked, mut said) = (server.stdin.take().unwrap(), BufReader::new(server.stdout.take().unwrap()));
    for (line, answer) in [
        (r#"{"verb":"start","node":"n1","pod":"a","program":"mcf06","work_s":60}"#, "{\"ok\":{\"at_s\":0.0}}"),
        ("x", "{\"error\":\"this is not a request: expected value at line 1 column 1\"}"),
        (
            r#"{"verb":"start","node":"n1","pod":"a","program":"mcf06","work_s":60}"#,
            "{\"error\":\"there is a pod 'a' already\"}",
        ),
        (
            r#"{"verb":"advance","to_s":1000}"#,
            r#"{"ok":{"at_s":60.0,"ended":[{"pod":"a","node":"n1","ran_s":60.0,"slowdown":1.0}]}}"#,
        ),
        (r#"{"verb":"stop","pod":"a"}"#, "{\"error\":\"there is no pod 'a'\"}"),
    ] {
        writeln!(asked, "{line}").unwrap();
        let mut answered = String::new();
        #[allow(clippy::disallowed_methods)] // of our own program
        said.read_line(&mut answered).unwrap();
        assert_eq!(answered.trim_end(), answer);
    }
    drop(asked);
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_machine_on_which_it_matters_where_programs_stand_is_refused() {
    let server = Command::new(env!("CARGO_BIN_EXE_cotenant-lab"))
        .args(["cluster-sim", "--machine", "ivy-bridge-2s"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(server.stderr).unwrap();
    assert_eq!(server.status.code(), Some(2), "{said}");
    assert!(said.contains("--machine ivy-bridge-2s: a mix needs a machine with one last-level cache"), "{said}");
}
