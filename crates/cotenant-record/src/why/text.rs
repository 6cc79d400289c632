//! Answers for people.

use super::{Answer, Check, Force, Query, Standing, Told, Trend, Unmoved};
use crate::Header;
use cotenant_model::text::{NAME, within};
use cotenant_model::{Mode, Outcome, Unit, number};
use cotenant_policies::Qos;
use std::fmt::{self, Display, Formatter, Write};

/// Number of unmoved tasks described in detail; the others are only counted.
const AT_LENGTH: usize = 8;

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.moves.is_empty() && self.standing.is_empty() && self.unmoved.is_empty() {
            return self.nothing(f);
        }
        for told in &self.moves {
            told.fmt(f)?;
        }
        for standing in &self.standing {
            standing.told.write(f, &standing.says(self.moment_s))?;
        }
        for task in self.unmoved.iter().take(AT_LENGTH) {
            task.fmt(f)?;
        }
        if let Some(more) = self.unmoved.len().checked_sub(AT_LENGTH).filter(|more| *more > 0) {
            writeln!(f, "… and {more} more tasks that were never moved (--json has them all)")?;
        }
        for note in &self.notes {
            writeln!(
                f,
                "remark of {} from {:.3} s on, in {} rounds: {}",
                self.policy, note.first_s, note.rounds, note.text
            )?;
        }
        Ok(())
    }
}

impl Answer {
    fn nothing(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Query::Time { from, to } = self.query {
            write!(f, "Nothing was ordered from {:.3} to {:.3} s", from.as_secs_f64(), to.as_secs_f64())?;
            return match self.nearest_s {
                (None, None) => {
                    writeln!(f, ", nor at any other time of the recording (it ends at {:.3} s).", self.last_s)
                }
                (Some(before), None) => {
                    writeln!(f, "; the last order was at {before:.3} s, the recording ends at {:.3} s.", self.last_s)
                }
                (None, Some(after)) => writeln!(f, "; the first order was at {after:.3} s."),
                (Some(before), Some(after)) => {
                    writeln!(f, "; the nearest orders were at {before:.3} and {after:.3} s.")
                }
            };
        }
        write!(f, "Nothing in the recording is called that")?;
        if self.known.is_empty() {
            return writeln!(f, ": it holds no tasks.");
        }
        writeln!(f, "; there are: {}.", self.known.join(", "))
    }
}

impl Standing {
    /// Its state at the moment, seconds.
    fn says(&self, moment_s: f64) -> String {
        let force = match self.force {
            Force::InForce => "in force",
            Force::Over => "over",
            Force::Withdrawn => "withdrawn",
            Force::NotApplied => "not in force",
            Force::Gone => "its application or task was gone",
        };
        let orders = match (self.orders, self.naps) {
            (1, _) => String::new(),
            (n, None) => format!("; {n} orders by these means since {:.3} s", self.first_s),
            (n, Some(1)) => format!("; 1 nap by {n} orders since {:.3} s", self.first_s),
            (n, Some(naps)) => format!("; {naps} naps by {n} orders since {:.3} s", self.first_s),
        };
        format!("; {force} at {moment_s:.3} s{orders}")
    }
}

impl Display for Told {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write(f, "")
    }
}

impl Told {
    fn write(&self, f: &mut Formatter<'_>, standing: &str) -> fmt::Result {
        writeln!(f, "{:.3} s  {}", self.at_s, self.what)?;
        let outcome = match self.outcome {
            Some(Outcome::Applied) => "applied",
            Some(Outcome::Gone) if self.what.task.is_none() => "not applied: the application was gone",
            Some(Outcome::Gone) => "not applied: the task was gone",
            Some(Outcome::Stale) => "not applied: another agent had changed the task",
            Some(Outcome::Denied) => "not applied: not permitted",
            Some(Outcome::NotThisMachine) => "advised only, not applied",
            None => "outcome not recorded",
        };
        write!(f, "         {outcome}")?;
        match self.seen_on {
            _ if self.what.task.is_none() => {}
            Some(cpu) => write!(f, "; seen on CPU {cpu} in the round after")?,
            None => write!(f, "; not seen after")?,
        }
        writeln!(f, "{standing}")?;
        for trend in &self.trends {
            writeln!(f, "         {trend}")?;
        }
        Ok(())
    }
}

impl Display for Trend {
    /// `inter/cycle  0.000910 0.000910 │ 0 0 0`
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let of = self.of.as_ref().map_or_else(String::new, |of| format!(" of {of}"));
        let what = if self.what == "ipc" { "" } else { &*self.what };
        let name = format!("{what}{}{of}", self.unit);
        write!(f, "{name:<20}")?;
        let one =
            |f: &mut Formatter<'_>, value: &Option<f64>| write!(f, " {}", value.map_or_else(|| "–".to_owned(), short));
        self.before.iter().try_for_each(|value| one(f, value))?;
        f.write_str(" │")?;
        self.after.iter().try_for_each(|value| one(f, value))
    }
}

impl Display for Unmoved {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let app = self.app_name.as_deref().unwrap_or("?");
        let (id, comm, tid) = (self.task, &self.comm, self.tid);
        writeln!(f, "task {id} ({comm}, tid {tid}, app {app}) was never moved: {}", self.verdict)?;
        writeln!(f, "         there in {} rounds, on CPUs {}", self.rounds, self.cpus)?;
        for check in self.checks.iter().filter(|check| check.max.is_some()) {
            writeln!(f, "         {check}")?;
        }
        Ok(())
    }
}

impl Display for Check {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some((max, at)) = self.max else { return write!(f, "{} was never measured", self.name()) };
        let [most, threshold] = number::apart([max, self.threshold.unwrap_or(max)], 3, number::significant);
        write!(f, "{:<26} at most {most} (at {at:.3} s)", self.name())?;
        match self.threshold {
            Some(_) => write!(f, ", threshold {threshold}: above it in {} of {} rounds", self.above, self.measured),
            None => write!(f, ", threshold unknown, in {} rounds", self.measured),
        }
    }
}

impl Check {
    fn name(&self) -> String {
        let of = if self.of_package { " of its package" } else { "" };
        format!("{}{}{of}", self.signal, self.unit.suffix())
    }
}

/// Three digits, as one word.
fn short(value: f64) -> String {
    match value.abs() {
        v if (0.01..1_000.0).contains(&v) => format!("{value:.3}"),
        _ => number::significant(value, 3).replace(' ', ""),
    }
}

/// Why nothing was ordered for a task, as far as the recording shows.
pub fn verdict(header: &Header, task: &Unmoved) -> String {
    let policy = &within(&header.policy, NAME);
    if header.mode == Mode::Observe {
        return "the run only observed, no policy decided".to_owned();
    }
    if policy == "none" {
        return "policy none moves nothing".to_owned();
    }
    if policy == "qos"
        && let Ok(Some(qos)) = header.config.settings.of::<Qos>()
    {
        return match () {
            () if qos.high.iter().any(|high| high.app == task.app) => {
                "its speed is kept; what is done for that is done to others"
            }
            () if !qos.low.contains(&task.app) => "it is of neither high nor low priority",
            () if qos.place => {
                "no other place was needed, or none was free; what else was ordered concerns all of its application"
            }
            () => "other places were not among the means; what was ordered concerns all of its application",
        }
        .to_owned();
    }
    if policy == "numad" {
        return "numad judges whole processes: this one used little CPU or memory, had been bound before, or was best where it was"
            .to_owned();
    }
    if task.checks.iter().all(|check| check.max.is_none()) {
        return "none of the signals that policies classify by was measured (`cotenant doctor` says why)".to_owned();
    }
    if task.checks.iter().all(|check| check.max.is_none() || check.threshold.is_none()) {
        return "the recorded profile has no thresholds for what was measured (`cotenant calibrate` finds them)"
            .to_owned();
    }
    let own: Vec<&Check> = task.checks.iter().filter(|check| !check.of_package && check.above > 0).collect();
    if own.is_empty() {
        return "none of its signals was ever above its threshold".to_owned();
    }
    let package = task.checks.iter().find(|check| check.of_package);
    let calm = package.is_some_and(|check| check.max.is_some() && check.threshold.is_some() && check.above == 0);
    if calm && own.iter().all(|check| check.unit == Unit::PerSecond) {
        return "it needs much memory bandwidth, but its package was never above its threshold".to_owned();
    }
    let mut list = String::new();
    for check in own {
        let sep = if list.is_empty() { "" } else { ", " };
        let _ = write!(list, "{sep}{} in {} of {} rounds", check.signal, check.above, check.measured);
    }
    format!("above its threshold was {list}, and {policy} left it where it was")
}
