//! The emulator and a guest's console.

use super::machine::{Arch, Guest};
use super::parts::Parts;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// On any busy host, a guest that has not ended after this multiple of its time hangs.
const LONGEST: u32 = 4;
/// Interval of checks how long the emulator has waited.
const LOOK: Duration = Duration::from_secs(1);

/// Lines of a guest that did not come to its end.
const LAST: usize = 12;

/// The end of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// After its last scenario.
    Regular,
    /// Before, and why.
    Early(String),
}

/// Output of a guest.
#[derive(Debug)]
pub struct Report {
    pub end: End,
    /// By scenario: passed, skipped with the reason, or failed with its output.
    pub outcomes: BTreeMap<String, Result<Option<String>, String>>,
    /// The output of `cotenant topo --json`.
    pub topology: Option<String>,
    /// By passed scenario: its output.
    pub passed: BTreeMap<String, Vec<String>>,
    said: Vec<String>,
    scenario: Option<String>,
}

impl Report {
    fn new() -> Self {
        let end = End::Early("it never came up".to_owned());
        let (outcomes, passed) = (BTreeMap::new(), BTreeMap::new());
        Self { end, outcomes, topology: None, passed, said: Vec::new(), scenario: None }
    }

    /// Takes one line of the console.
    fn line(&mut self, line: &str) {
        let Some((_, marked)) = line.split_once("@guest ") else { return };
        let (word, rest) = marked.trim_end().split_once(' ').unwrap_or((marked.trim_end(), ""));
        let (name, why) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "boot" => self.end = End::Early("it stopped before its first scenario".to_owned()),
            "begin" => {
                self.scenario = Some(name.to_owned());
                self.end = End::Early(format!("it stopped in the scenario {name}"));
            }
            "topology" => self.topology = Some(rest.to_owned()),
            "said" => self.said.push(rest.to_owned()),
            "pass" | "skip" | "fail" => {
                let outcome = match word {
                    "pass" => {
                        self.passed.insert(name.to_owned(), std::mem::take(&mut self.said));
                        Ok(None)
                    }
                    "skip" => Ok(Some(why.to_owned())),
                    _ => Err(std::iter::once(why.to_owned())
                        .chain(self.said.drain(..))
                        .collect::<Vec<_>>()
                        .join("\n    ")),
                };
                self.outcomes.insert(name.to_owned(), outcome);
            }
            "end" => self.end = End::Regular,
            _ => {}
        }
    }
}

/// The emulator's command line but for where its serial port goes.
pub fn emulator(guest: &Guest, parts: &Parts, initrd: &Path, append: &str) -> Command {
    let (program, console) = match guest.arch {
        // On a busy host the timer's interrupts come late, and the kernel would panic: "IO-APIC + timer doesn't work".
        Arch::Amd64 => ("qemu-system-x86_64", "ttyS0 no_timer_check"),
        Arch::Arm64 => ("qemu-system-aarch64", "ttyAMA0"),
    };
    let mut command = Command::new(program);
    command.args(guest.arguments()).args(["-nographic", "-nodefaults", "-no-reboot"]);
    command.arg("-kernel").arg(&parts.kernel).arg("-initrd").arg(initrd);
    // Mitigations between programs flush the emulator's TLBs at every system call, which would take most of its time.
    let fast = if guest.needs_flushes() { "" } else { "mitigations=off" };
    command.args(["-append", &format!("console={console} panic=-1 {fast} {} {append}", guest.told)]);
    command
}

/// Boots a guest and reads until its end or time limit. `said`: also the output of passed scenarios.
///
/// # Errors
/// The emulator cannot be started.
pub fn boot(guest: &Guest, parts: &Parts, initrd: &Path, said: bool) -> Result<Report> {
    // The emulator's waits for a busy CPU of the host do not count.
    let limit = Duration::from_secs(guest.seconds);
    let longest = limit * LONGEST;
    // A waiting scenario reports what it waits for before the guest's time limit.
    let tell = if said { "GUEST_SAID=1" } else { "" };
    let append = format!("quiet GUEST_SECONDS={} {tell}", longest.as_secs() - 10);
    let mut child = emulator(guest, parts, initrd, &append)
        .args(["-serial", "stdio"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("the emulator does not start")?;
    let (sender, lines) = mpsc::channel();
    let mut console = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
    let reader = std::thread::spawn(move || {
        let mut line = Vec::new();
        while console.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
            line.clear();
        }
    });
    let (mut report, start, mut last) = (Report::new(), Instant::now(), Vec::new());
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                report.line(&line);
                if !line.trim().is_empty() {
                    last.push(line.trim().to_owned());
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let passed = start.elapsed();
        if passed > limit && passed > (limit + waited(child.id())).min(longest) {
            if let End::Early(why) = &mut report.end {
                *why = format!("{why} after {} s", passed.as_secs());
            }
            break;
        }
    }
    let _ = child.kill();
    let status = child.wait()?;
    let _ = reader.join();
    if let End::Early(why) = &mut report.end {
        if status.code().is_some_and(|code| code != 0) {
            *why = format!("{why}: the emulator refused, {status}");
        }
        // Of a panic the kernel's own words: "quiet" leaves no others.
        let from = last.len().saturating_sub(LAST);
        *why = format!("{why}; it said last: {}", last[from..].join(" | "));
    }
    Ok(report)
}

/// Time of a program runnable without a CPU: that of its longest waiting thread
/// (`Documentation/scheduler/sched-stats.rst` of the kernel). Zero if the kernel does not count it.
fn waited(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        Some(Duration::from_nanos(text.split(' ').nth(1)?.parse().ok()?))
    };
    threads.filter_map(of).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &[&str]) -> Report {
        let mut report = Report::new();
        for line in lines {
            report.line(line);
        }
        report
    }

    #[test]
    fn only_marked_lines_count() {
        let lines = [
            "SeaBIOS\r\n",
            "\u{1b}[0m@guest boot\r\n",
            "@guest begin a\r\n",
            "@guest topology {\"a b\": 1}\r\n",
            "@guest pass a\r\n",
        ];
        let early = report(&lines);
        assert_eq!(early.end, End::Early("it stopped in the scenario a".to_owned()));
        assert_eq!(early.topology.as_deref(), Some("{\"a b\": 1}"));
        assert_eq!(early.outcomes["a"], Ok(None));
        let lines = [
            "@guest boot",
            "@guest begin a",
            "@guest said no such file",
            "@guest fail a exit status 1",
            "@guest begin b",
            "@guest skip b needs 4 CPUs",
            "@guest end",
        ];
        let whole = report(&lines);
        assert!(whole.passed.is_empty());
        assert_eq!(report(&["@guest said 1", "@guest pass a"]).passed["a"], ["1"]);
        assert_eq!(whole.end, End::Regular);
        assert_eq!(whole.outcomes["a"], Err("exit status 1\n    no such file".to_owned()));
        assert_eq!(whole.outcomes["b"], Ok(Some("needs 4 CPUs".to_owned())));
    }

    #[test]
    fn a_guest_that_never_spoke_did_not_pass() {
        let silent = report(&["Kernel panic - not syncing"]);
        assert!(matches!(silent.end, End::Early(_)) && silent.outcomes.is_empty());
    }
}
