//! `cotenant sharing`, on real processes that share real memory.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

fn sharing(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cotenant")).arg("sharing").args(args).output().unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = sharing(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Processes of Python that map what the script requests and wait until their input ends.
struct Family(Child, Vec<u32>);

impl Family {
    /// A parent and a child that share 4 MiB anonymously; the script prints the child's id. `None`, with a message,
    /// without Python.
    fn new() -> Option<Self> {
        let script = "import mmap, os, sys\n\
                      m = mmap.mmap(-1, 4 << 20)\n\
                      own = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                      child = os.fork()\n\
                      if child: print(child, flush=True)\n\
                      sys.stdin.read()\n\
                      if child: os.wait()\n";
        let parent = Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut parent) = parent else {
            eprintln!("skipped: no python3");
            return None;
        };
        let mut line = String::new();
        BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut pids = vec![parent.id(), line.trim().parse().unwrap()];
        pids.sort_unstable();
        Some(Self(parent, pids))
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_parent_and_its_child_share_what_they_map() {
    let Some(family) = Family::new() else { return };
    let Some(other) = Family::new() else { return };
    let list = |pids: &[u32]| pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let both = list(&[&family.1[..], &other.1[..]].concat());
    let found = json(&["-p", &both]);
    let groups = found["groups"].as_array().unwrap();
    assert_eq!((found["processes"].as_u64(), groups.len()), (Some(4), 2), "{found}");
    for group in groups {
        let pids: Vec<u64> =
            group["processes"].as_array().unwrap().iter().map(|p| p["pid"].as_u64().unwrap()).collect();
        assert!([&family.1, &other.1].iter().any(|own| own.iter().map(|p| u64::from(*p)).eq(pids.clone())), "{group}");
        assert_eq!((group["bytes"].as_u64(), &group["objects"][0]["kind"]), (Some(4 << 20), &Value::from("anonymous")));
        assert_eq!(group["objects"].as_array().unwrap().len(), 1, "what each has for itself is none: {group}");
        assert_eq!(group["processes"][0]["name"], "python3");
    }
    let text = String::from_utf8(sharing(&["-p", &list(&family.1)]).stdout).unwrap();
    assert!(text.contains("2 python3 (") && text.contains("4.0 anonymous"), "{text}");
    assert_eq!(json(&["-p", &both, "--least", "5M"])["groups"], serde_json::json!([]));
    let all = json(&[]);
    assert!(all["processes"].as_u64().unwrap() >= 4 && all["groups"].as_array().unwrap().len() >= 2, "{all}");
}

#[test]
fn one_alone_shares_nothing_and_wrong_words_are_refused() {
    let output = sharing(&["-p", &std::process::id().to_string()]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "no two processes write to the same 1.0 MiB (1 process looked at)\n");
    for wrong in [["--least", "much"], ["-p", "4194303"]] {
        let output = sharing(&wrong);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(String::from_utf8_lossy(&output.stderr).trim_end().lines().count(), 1, "{output:?}");
    }
}
