//! Whether the background works: protected programs' waits for a CPU beside background programs, compared with pauses
//! of these. If it works, they get a CPU at once, otherwise only after time slices end.

use cotenant_model::{AppId, Sample, Signal, TaskId, Time};
use std::collections::BTreeMap;

/// Compared seconds of each pause, and of the time between.
const PAUSED_S: f64 = 0.4;
const BESIDE_S: f64 = 1.0;

/// Excess waiting, as a fraction of the wanted CPU time, over the pauses before and after.
const LONGER: f64 = 0.2;

/// The mean wait of a mere context switch, seconds.
const SLICE_S: f64 = 0.5e-3;

/// Background programs below this many CPUs are ignored.
const RAN: f64 = 0.1;

/// State of the background programs since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// All were paused.
    Paused,
    /// All were in the background and running.
    Beside,
    /// Neither.
    Other,
}

/// Counts since the last look, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Time.
    pub seconds: f64,
    /// Protected programs' waits for a CPU.
    pub waited: f64,
    /// Protected programs' run time.
    pub ran: f64,
    /// Number of times they got a CPU.
    pub slices: f64,
    /// Background programs' run time.
    pub low: f64,
}

impl Counted {
    fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.waited += other.waited;
        self.ran += other.ran;
        self.slices += other.slices;
        self.low += other.low;
    }

    /// As a fraction of the wanted CPU time.
    fn share(&self) -> f64 {
        self.waited / (self.waited + self.ran).max(1e-6)
    }
}

/// Counts since the last look, from cumulative ones.
#[derive(Debug, Default)]
pub struct Counter {
    at: Option<Time>,
    tasks: BTreeMap<TaskId, [u64; 3]>,
}

impl Counter {
    /// For tasks that existed before; `kept` and `low` classify applications.
    pub fn count(&mut self, sample: &Sample, kept: impl Fn(AppId) -> bool, low: impl Fn(AppId) -> bool) -> Counted {
        let seconds = self.at.replace(sample.at).map_or(0.0, |before| (sample.at - before).as_secs_f64());
        let mut counted = Counted { seconds, ..Counted::default() };
        let mut tasks = BTreeMap::new();
        for task in sample.tasks.iter().filter(|task| kept(task.info.app) || low(task.info.app)) {
            let count = |signal| task.counters.get(signal).map_or(0, |count| count.value);
            let now = [Signal::CpuTime, Signal::RunQueueWait, Signal::ContextSwitches].map(count);
            if let Some(before) = self.tasks.get(&task.info.id) {
                let [ran, waited, slices] = [0, 1, 2].map(|i| now[i].saturating_sub(before[i]) as f64);
                let of = if kept(task.info.app) {
                    Counted { ran: ran / 1e9, waited: waited / 1e9, slices, ..Counted::default() }
                } else {
                    Counted { low: ran / 1e9, ..Counted::default() }
                };
                counted.add(&of);
            }
            tasks.insert(task.info.id, now);
        }
        self.tasks = tasks;
        counted
    }
}

/// Observations beside background programs, and in the pauses before and after.
#[derive(Debug, Default)]
pub struct Effect {
    before: Counted,
    beside: Counted,
    after: Counted,
}

impl Effect {
    /// Adds counts. If they show that the background does not work: the waiting fractions of protected programs in the
    /// pauses, and beside the others.
    pub fn note(&mut self, moment: Moment, counted: &Counted) -> Option<[f64; 2]> {
        match moment {
            Moment::Other => None,
            Moment::Paused if self.beside.seconds < BESIDE_S => {
                self.before.add(counted);
                None
            }
            Moment::Paused => {
                self.after.add(counted);
                None
            }
            Moment::Beside => {
                let over = self.after.seconds >= PAUSED_S;
                let found = if over { self.verdict() } else { None };
                if over {
                    *self = Self { before: std::mem::take(&mut self.after), ..Self::default() };
                }
                self.beside.add(counted);
                found
            }
        }
    }

    fn verdict(&self) -> Option<[f64; 2]> {
        let Self { before, beside, after } = self;
        let paused = before.share().max(after.share());
        let waits = beside.share() - paused >= LONGER && beside.waited >= SLICE_S * beside.slices.max(1.0);
        let theirs = beside.low >= RAN * beside.seconds && before.seconds >= PAUSED_S;
        (waits && theirs).then(|| [paused, beside.share()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Per second: of one CPU, with this many changes.
    fn second(waited: f64, ran: f64, slices: f64, low: f64) -> Counted {
        Counted { seconds: 1.0, waited, ran, slices, low }
    }

    fn found(stretches: &[(Moment, Counted)]) -> Vec<[f64; 2]> {
        let mut effect = Effect::default();
        stretches.iter().filter_map(|(moment, counted)| effect.note(*moment, counted)).collect()
    }

    /// Holds qos/background.
    #[test]
    fn who_waits_beside_the_background_and_not_in_its_pauses_gains_nothing_by_it() {
        use Moment::{Beside, Paused};
        let alone = (Paused, second(0.0, 1.0, 10.0, 0.0));
        let half = (Beside, second(0.5, 0.5, 100.0, 0.5));
        let next = (Beside, second(0.0, 0.0, 0.0, 0.0));
        assert_eq!(found(&[alone, half, half, alone, next]), [[0.0, 0.5]]);
        assert_eq!(found(&[alone, half, half, alone]).len(), 0, "the pause after is not over yet");
        for (what, stretches) in [
            ("there was no pause before", vec![half, half, alone, next]),
            ("it waits in a pause as well", vec![alone, half, half, (Paused, half.1), next]),
            ("nobody runs beside it", vec![alone, (Beside, second(0.5, 0.5, 100.0, 0.05)), alone, next]),
            ("it waits for changes of programs alone", vec![alone, (Beside, second(0.3, 0.5, 9e3, 0.3)), alone, next]),
            ("it takes the CPU at once", vec![alone, (Beside, second(0.02, 0.9, 50.0, 0.1)), alone, next]),
            ("it naps, too", vec![alone, (Moment::Other, half.1), (Moment::Other, half.1), alone, next]),
        ] {
            assert_eq!(found(&stretches).len(), 0, "{what}");
        }
    }

    #[test]
    fn only_who_was_there_before_is_counted() {
        use cotenant_model::{Count, Counters, TaskInfo, TaskSample};
        let task = |id: u32, ran: u64, waited: u64| {
            let mut counters = Counters::default();
            for (signal, value) in
                [(Signal::CpuTime, ran), (Signal::RunQueueWait, waited), (Signal::ContextSwitches, 7)]
            {
                counters.set(signal, Count::exact(value));
            }
            let info = TaskInfo { id: TaskId(id), app: AppId(id % 2), ..TaskInfo::default() };
            TaskSample { info: info.into(), counters, ..TaskSample::default() }
        };
        let mut counter = Counter::default();
        let mut count = |at, tasks| {
            let sample = Sample { at: Time::from_secs(at), tasks, ..Sample::default() };
            counter.count(&sample, |app| app == AppId(0), |app| app == AppId(1))
        };
        assert_eq!(count(1, vec![task(0, 5, 5), task(1, 5, 5)]), Counted::default());
        let then = count(3, vec![task(0, 1_000_000_005, 500_000_005), task(1, 250_000_005, 9), task(2, 9, 9)]);
        assert_eq!(then, Counted { seconds: 2.0, ran: 1.0, waited: 0.5, slices: 0.0, low: 0.25 });
    }
}
