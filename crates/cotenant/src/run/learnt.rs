//! What a run teaches about its program: what held it up, and what a placement could change here.

use super::lived::AppTimes;
use cotenant_cli::messages::count;
use cotenant_model::usage::Usage;
use cotenant_model::{BehindKind, Topology};

/// A program that waits for less than this many threads' worth of CPUs, and for a smaller share of what it could use,
/// is not held up.
const HELD_UP: f64 = 0.05;

/// A program that could use fewer CPUs than this has other reasons to be slow.
const IDLE: f64 = 0.1;

/// In a shorter run nothing can be learnt.
const SHORT_S: f64 = 1.0;

/// What is known after a run.
pub(super) struct Known<'a> {
    pub program: &'a AppTimes,
    /// Of other programs on this machine.
    pub others: Option<&'a Usage>,
    pub topology: &'a Topology,
    /// Why placing has little to choose here.
    pub little_to_choose: bool,
    pub seconds: f64,
    pub moves: u64,
    /// Whether it was placed, or would have been.
    pub decides: bool,
}

impl Known<'_> {
    /// One line; `None` after a run that was too short.
    pub fn sentence(&self) -> Option<String> {
        if self.seconds < SHORT_S {
            return None;
        }
        let could_use = self.program.cpus + self.program.waiting.unwrap_or_default();
        if could_use < IDLE {
            return Some(format!(
                "in short: it could hardly use a CPU ({could_use:.2}), so that no placement makes it faster; it waits for \
                 something else, such as input, files or other programs"
            ));
        }
        let parts = [self.held_up(), self.decides.then(|| self.placement())];
        Some(format!("in short: {}", parts.into_iter().flatten().collect::<Vec<_>>().join("; ")))
            .filter(|said| said != "in short: ")
    }

    /// What it waited for.
    fn held_up(&self) -> Option<String> {
        let AppTimes { cpus, waiting, behind, .. } = self.program;
        let waiting = waiting.filter(|_| self.program.tells_waits())?;
        let share = waiting / (cpus + waiting).max(f64::MIN_POSITIVE);
        if waiting < HELD_UP || share < HELD_UP {
            return Some("all is well with CPUs, it hardly waited for one".to_owned());
        }
        let held = format!("it had no CPU for {:.0} % of what it could use", share * 100.0);
        let own = "behind its own threads: fewer threads would do, more CPUs would help".to_owned();
        let why = match (behind.first().map(|most| (most.kind, &most.what)), self.others) {
            (Some((BehindKind::Itself, _)), _) => own,
            (Some((BehindKind::Application | BehindKind::Program, what)), _) => {
                format!("most behind {what}: `cotenant qos --high-pid … --low-pid …` throttles that as far as needed")
            }
            (Some((BehindKind::Kernel, what)), _) => format!("most behind {what}"),
            (Some((BehindKind::Waking, _)), _) => "most of it while CPUs woke up".to_owned(),
            (Some((BehindKind::Host, _)), _) => "most behind other guests of the host: more CPUs there help".to_owned(),
            (Some((BehindKind::Quota, _)), _) => "by the quota of its control group: raise its cpu.max".to_owned(),
            (Some((BehindKind::Unknown, _)), _) => "behind programs that are not known".to_owned(),
            (None, Some(others)) if others.others < HELD_UP => own,
            (None, _) => "behind other programs: as root, `cotenant top` names them".to_owned(),
        };
        Some(format!("{held}, {why}"))
    }

    /// What a placement could change.
    fn placement(&self) -> String {
        let (caches, cpus) = (self.topology.llc_domains().len(), self.topology.usable().len());
        let here = format!("{} and {}", count(caches as u64, "last-level cache"), count(cpus as u64, "CPU"));
        if self.little_to_choose {
            return format!(
                "{here} leave a placement next to nothing to change; `cotenant sim --help` has an example with two sockets"
            );
        }
        match self.moves {
            0 => format!("{here}: nothing was moved; `cotenant compare` measures whether a placement helps it"),
            moves => {
                format!("{here}: {}; `cotenant compare` measures whether they made it faster", count(moves, "move"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::Behind;
    use cotenant_model::topology::synthetic;

    fn said(cpus: f64, waiting: f64, behind: Option<(BehindKind, &str)>, machine: &str, moves: u64) -> String {
        let topology = synthetic::parse(machine).unwrap();
        let behind =
            behind.map(|(kind, what)| Behind { what: what.to_owned(), kind, threads: waiting, ..Behind::default() });
        let program = AppTimes::for_test("a", cpus, Some(waiting), behind.into_iter().collect());
        let little_to_choose = topology.llc_domains().len() < 2;
        let of = Known {
            program: &program,
            others: None,
            topology: &topology,
            little_to_choose,
            seconds: 9.0,
            moves,
            decides: true,
        };
        let short = Known { seconds: 0.2, ..of };
        assert_eq!(short.sentence(), None);
        Known { seconds: 9.0, ..short }.sentence().unwrap()
    }

    /// Holds see/waits.
    #[test]
    fn a_run_ends_with_something_learnt() {
        let (small, large) = ("pack:1 l3:1 core:2 pu:1", "pack:2 l3:1 core:4 pu:1");
        let little = "1 last-level cache and 2 CPUs leave a placement next to nothing to change";
        let two = "2 last-level caches and 8 CPUs: ";
        for (told, parts) in [
            (said(1.0, 0.0, None, small, 0), ["all is well with CPUs", little]),
            (
                said(0.5, 0.5, Some((BehindKind::Program, "xz")), small, 0),
                ["50 % of what it could use, most behind xz", little],
            ),
            (
                said(2.0, 6.0, Some((BehindKind::Itself, "")), large, 3),
                ["75 % of what it could use, behind its own", two],
            ),
            (said(2.0, 2.0, Some((BehindKind::Quota, "")), large, 3), ["cpu.max", "3 moves; `cotenant compare`"]),
            (said(2.0, 2.0, None, large, 0), ["as root, `cotenant top`", "nothing was moved"]),
            (said(0.01, 0.0, None, large, 0), ["could hardly use a CPU", "such as input"]),
        ] {
            assert!(told.starts_with("in short: ") && parts.iter().all(|part| told.contains(part)), "{told}");
        }
    }
}
