//! Lag of an application's slowest thread. An application's speed is the sum over its threads; if each has its own
//! work, the program ends with the slowest one. Sleeping threads wait for each other or for work, and then the sum is
//! right.

use super::learned_situation::LearnedSituation;
use cotenant_model::speed::Source;
use cotenant_model::{AppId, Signal, TaskId, View};
use serde::{Deserialize, Serialize};

/// Threads on a CPU for a smaller fraction of time count as waiting.
const BUSY: f64 = 0.9;
/// Least seconds of each placement.
const LEAST_S: f64 = 1.0;

/// Work of each placed thread under one placement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ThreadWork {
    /// Instructions, or CPU seconds if these are not counted, and CPU seconds, in the order of the threads.
    done: Vec<[f64; 2]>,
    seconds: f64,
}

impl ThreadWork {
    pub fn add(&mut self, view: &View, members: &[(TaskId, usize)]) {
        let seconds = view.interval.as_secs_f64();
        self.done.resize(members.len(), [0.0; 2]);
        self.seconds += seconds;
        for (sums, (task, _)) in self.done.iter_mut().zip(members) {
            let Some(task) = view.task(*task) else { continue };
            let busy = task.cpu_share().unwrap_or(0.0);
            for (sum, rate) in sums.iter_mut().zip([task.per_s(Signal::Instructions).unwrap_or(busy), busy]) {
                *sum += rate * seconds;
            }
        }
    }

    pub fn is_empty(of: &[Self; 2]) -> bool {
        of.iter().all(|work| work.done.is_empty())
    }

    /// The slowest thread over the mean of its group, minimized over the application's groups.
    fn balance(&self, app: AppId, situation: &LearnedSituation, members: &[(TaskId, usize)]) -> Option<f64> {
        let groups = situation.groups.iter().enumerate().filter(|(_, group)| group.app == app);
        let of = |(group, _)| {
            let own: Vec<&[f64; 2]> =
                self.done.iter().zip(members).filter(|(_, member)| member.1 == group).map(|(done, _)| done).collect();
            let mean = |of: usize| own.iter().map(|done| done[of]).sum::<f64>() / own.len() as f64;
            let least = own.iter().map(|done| done[0]).fold(f64::INFINITY, f64::min);
            (mean(1) >= BUSY * self.seconds && least > 0.0).then(|| least / mean(0))
        };
        let each: Option<Vec<f64>> = groups.map(of).collect();
        each.filter(|_| self.seconds >= LEAST_S).and_then(|each| each.into_iter().min_by(f64::total_cmp))
    }
}

/// Lag of each measured application's slowest thread behind the sum of its threads, as logarithms: 0 or less. Catching
/// up is no gain: while all threads are busy it is unknown whether each has its own work, and for handed-around work
/// the sum is right.
pub(super) fn fell_behind(
    [before, after]: [&ThreadWork; 2],
    situation: &LearnedSituation,
    members: &[(TaskId, usize)],
) -> Vec<f64> {
    let one = |(app, source): (&AppId, &Source)| {
        let by_threads =
            matches!(source, Source::Instructions | Source::Ipc | Source::Progress | Source::OpenMp | Source::Mpi);
        let balance = |work: &ThreadWork| work.balance(*app, situation, members).filter(|_| by_threads);
        balance(after).zip(balance(before)).map_or(0.0, |(after, before)| (after / before).ln().min(0.0))
    };
    situation.measures.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::learned_situation::ThreadGroup;
    use super::*;
    use cotenant_model::CpuSet;
    use cotenant_model::testing::{ViewBuilder, machine};

    /// Four threads of one application, each with these instructions and CPU time per 100 ms; twenty rounds.
    fn work(threads: [(u64, u64); 4]) -> ThreadWork {
        let (topology, mut work) = (machine(1, 1, 4, 1), ThreadWork::default());
        for round in 1..=20 {
            let mut view = ViewBuilder::new(&topology).at(cotenant_model::Time::from_millis(100 * round));
            for (id, (instructions, busy_ms)) in (0..).zip(threads) {
                view = view.task(id, 0, id).signal(Signal::Instructions, instructions);
                view = view.signal(Signal::CpuTime, busy_ms * 1_000_000);
            }
            work.add(&view.view(), &MEMBERS);
        }
        work
    }

    const MEMBERS: [(TaskId, usize); 4] = [(TaskId(0), 0), (TaskId(1), 0), (TaskId(2), 0), (TaskId(3), 0)];

    fn behind(source: Source, before: &ThreadWork, after: &ThreadWork) -> f64 {
        let group = ThreadGroup {
            app: AppId(0),
            name: String::new(),
            part: String::new(),
            on: CpuSet::new(),
            threads: MEMBERS.len(),
        };
        let mut situation = LearnedSituation::default();
        situation.groups.push(group);
        situation.measures.insert(AppId(0), source);
        fell_behind([before, after], &situation, &MEMBERS)[0]
    }

    /// Three threads gain a tenth and one loses a tenth: 5 % more altogether, and the program ends a tenth later.
    /// Promise place/guard: No application ends below the guard over all kept changes, judged by its slowest thread
    /// unless threads wait or a metric decides.
    #[test]
    fn the_slowest_thread_counts_unless_threads_wait() {
        let even = work([(1_000, 100); 4]);
        let uneven = |busy| work([(1_100, busy), (1_100, busy), (1_100, busy), (900, busy)]);
        let found = behind(Source::Instructions, &even, &uneven(100));
        assert!((found - (0.9_f64 / 1.05).ln()).abs() < 1e-9, "{found}");
        assert_eq!(behind(Source::Instructions, &uneven(100), &even), 0.0, "to catch up is no gain");
        assert_eq!(behind(Source::Instructions, &even, &uneven(80)), 0.0, "they wait for each other, or for work");
        assert_eq!(behind(Source::Metric("queries".into()), &even, &uneven(100)), 0.0, "that is what counts");
    }

    /// Without counters: one thread has half of a CPU.
    /// Holds place/guard.
    #[test]
    fn time_on_a_cpu_tells_where_instructions_are_not_counted() {
        let topology = machine(1, 1, 4, 1);
        let of = |last_ms: u64| {
            let mut work = ThreadWork::default();
            for round in 1..=20 {
                let mut view = ViewBuilder::new(&topology).at(cotenant_model::Time::from_millis(100 * round));
                for (id, ms) in (0..).zip([100, 100, 100, last_ms]) {
                    view = view.task(id, 0, id).signal(Signal::CpuTime, ms * 1_000_000);
                }
                work.add(&view.view(), &MEMBERS);
            }
            work
        };
        let found = behind(Source::Progress, &of(100), &of(80));
        assert!((found - (0.8_f64 / 0.95).ln()).abs() < 1e-9, "{found}");
    }
}
