//! Puts a program into the background from start to end by hand, for comparison with Cotenant.

use super::group;
use super::sessions::by_session;
use crate::act::EFFECTS;
use crate::act::cpu_time::{self, Quota};
use crate::undo::{Journal, JournalOptions};
use std::process::Command;

/// The means.
pub enum ByHand {
    /// An idle control group, the written text, and its journal.
    Group(Box<(Quota, String, Journal)>),
    /// The least weight of its session, written by the session itself.
    Session,
    /// `SCHED_IDLE`: the only means without groups and sessions.
    Class,
}

impl ByHand {
    /// The best available means. Creates a group if possible.
    pub fn here() -> Self {
        match Self::group() {
            Some(group) => group,
            None if by_session(std::process::id()) => Self::Session,
            None => Self::Class,
        }
    }

    fn group() -> Option<Self> {
        group::file_at(&cpu_time::place(&[])?)?;
        let mut journal = Journal::open(JournalOptions::new().ok()?, EFFECTS).ok()?;
        let mut quota = Quota::make(&mut journal, &[]).ok()?;
        if let Ok(written) = group::set(&mut quota, true) {
            return Some(Self::Group(Box::new((quota, written, journal))));
        }
        let _ = quota.end(&mut journal); // leftovers are undone at the end
        journal.finish();
        None
    }

    /// A line for the shell, to run there; [`ByHand::enter`] does the rest.
    pub fn line(&self, line: &str) -> String {
        match self {
            Self::Group(_) => line.to_owned(),
            Self::Session => format!("echo 19 >/proc/self/autogroup; {line}"),
            Self::Class => format!("chrt --idle -p 0 $$; {line}"),
        }
    }

    /// Starts a command there.
    ///
    /// # Errors
    /// If its group has gone.
    pub fn enter(&self, command: &mut Command) -> std::io::Result<()> {
        match self {
            Self::Group(group) => group.0.enter(command).map_err(std::io::Error::other),
            Self::Session | Self::Class => Ok(()),
        }
    }

    /// The means, for people.
    pub fn means(&self) -> String {
        match self {
            Self::Group(group) => format!("{} of a control group", group.1),
            Self::Session => "autogroup nice 19".to_owned(),
            Self::Class => "SCHED_IDLE".to_owned(),
        }
    }

    /// The line for a program to start.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Group(_) => {
                "systemd-run -p CPUWeight=idle CMD (all of a slice: systemctl set-property batch.slice CPUWeight=idle)"
            }
            Self::Session => "setsid sh -c 'echo 19 >/proc/self/autogroup; exec CMD'",
            Self::Class => "chrt --idle 0 CMD",
        }
    }

    /// Removes the group after the programs in it have ended.
    pub fn end(self) {
        if let Self::Group(group) = self {
            let (quota, _, mut journal) = *group;
            let _ = quota.end(&mut journal); // tried again at the end
            journal.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::{self, Limit};
    use std::process::Stdio;

    /// A group where one may be written; else its session, which starts anew for the test.
    #[test]
    fn a_program_is_in_the_background_by_one_line() {
        let by_hand = ByHand::here();
        let line = by_hand.line("cat /proc/self/autogroup /proc/self/cgroup; exec cat");
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped());
        by_hand.enter(&mut command).unwrap();
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let (means, folder) = match &by_hand {
            ByHand::Group(group) => (by_hand.means(), Some(group.0.group.path.clone())),
            _ => (by_hand.means(), None),
        };
        if let Some(folder) = &folder {
            let name = folder.file_name().unwrap().to_str().unwrap();
            assert!(said.lines().any(|line| line.ends_with(name)), "{name}: {said}");
            let idle = ["cpu.idle", "cpu.weight", "cpu.shares"].map(|file| folder.join(file));
            let first = idle.iter().find_map(|file| bounded::text(file, Limit::Value).ok());
            assert!(
                first.is_some_and(|value| ["1", "2"].contains(&value.trim())) && means.starts_with("cpu."),
                "{means}"
            );
        } else if means == "autogroup nice 19" {
            assert!(said.lines().any(|line| line.ends_with(" nice 19")), "{said}");
        }
        by_hand.end();
        assert!(folder.is_none_or(|folder| !folder.exists()), "nothing is left");
    }
}
