//! Places of samples: addresses become places in files by the mappings at their time, and counts belong to an interval
//! of a thread.

use super::record::{MappedFile, Mapping, Record, What};
use std::collections::{BTreeMap, HashMap};
use std::mem;

/// CPU time of a thread's interval, nanoseconds: ten samples of each event. (The paper's is 1 ms with exact counts; of
/// those one sample suffices.)
const INTERVAL_NS: f64 = 10e6;

/// Number of places in all intervals from which adjacent ones of a thread are merged, to bound memory for programs that
/// run for hours.
const MANY: usize = 1 << 22;

/// The place of code without a file, or with an unseen mapping.
const ELSEWHERE: u32 = 0;

/// The cost of code.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Time on a CPU in user mode, nanoseconds.
    pub ns: f64,
    /// Lines that came into the last private cache.
    pub private_lines: f64,
    /// Lines that came into the last level.
    pub last_lines: f64,
}

impl Cost {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            ns: self.ns + other.ns,
            private_lines: self.private_lines + other.private_lines,
            last_lines: self.last_lines + other.last_lines,
        }
    }
}

/// The code of a process, by first address.
#[derive(Clone, Debug, Default)]
struct Space {
    code: BTreeMap<u64, Mapping>,
    /// Threads known to run; a process without any is dropped.
    threads: u32,
}

impl Space {
    /// Adds a mapping, which replaces earlier ones.
    fn map(&mut self, new: Mapping) {
        let before = self.code.range(..new.end).rev();
        let under: Vec<u64> = before.take_while(|(_, old)| old.end > new.start).map(|(start, _)| *start).collect();
        for start in under {
            let Some(old) = self.code.remove(&start) else { continue };
            if old.start < new.start {
                self.code.insert(start, Mapping { end: new.start, ..old.clone() });
            }
            if old.end > new.end {
                let offset = old.offset.wrapping_add(new.end - old.start);
                self.code.insert(new.end, Mapping { start: new.end, offset, ..old });
            }
        }
        self.code.insert(new.start, new);
    }

    fn find(&self, address: u64) -> Option<&Mapping> {
        self.code.range(..=address).next_back().map(|(_, mapping)| mapping).filter(|mapping| address < mapping.end)
    }
}

/// Activity of a thread in a period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// All together.
    pub cost: Cost,
    /// Nanoseconds at each place.
    pub code: Vec<(u32, f64)>,
}

impl Interval {
    /// Each place once.
    fn tidy(mut self) -> Self {
        self.code.sort_by_key(|(place, _)| *place);
        self.code.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0.0 };
            same
        });
        self
    }
}

/// Intervals, by thread.
#[derive(Clone, Debug)]
struct Intervals {
    length_ns: f64,
    open: HashMap<u32, Interval>,
    closed: Vec<(u32, Interval)>,
    /// Places in closed ones.
    places: usize,
    many: usize,
}

impl Default for Intervals {
    fn default() -> Self {
        let (open, closed) = Default::default();
        Self { length_ns: INTERVAL_NS, open, closed, places: 0, many: MANY }
    }
}

impl Intervals {
    fn add(&mut self, thread: u32, cost: Cost, place: u32) {
        let open = self.open.entry(thread).or_default();
        open.cost = open.cost.and(cost);
        if cost.ns > 0.0 {
            open.code.push((place, cost.ns));
        }
        if open.cost.ns >= self.length_ns {
            let closed = mem::take(open).tidy();
            self.places += closed.code.len();
            self.closed.push((thread, closed));
            if self.places > self.many {
                self.merge();
            }
        }
    }

    /// Merges adjacent pairs of each thread.
    fn merge(&mut self) {
        self.closed.sort_by_key(|(thread, _)| *thread); // stable: those of a thread stay in order
        let mut merged: Vec<(u32, Interval)> = Vec::with_capacity(self.closed.len() / 2);
        let mut single = false;
        for (thread, next) in self.closed.drain(..) {
            if let Some((_, last)) = merged.last_mut().filter(|last| single && last.0 == thread) {
                last.cost = last.cost.and(next.cost);
                last.code.extend(next.code);
                *last = mem::take(last).tidy();
                single = false;
            } else {
                merged.push((thread, next));
                single = true;
            }
        }
        self.places = merged.iter().map(|(_, interval)| interval.code.len()).sum();
        (self.closed, self.length_ns, self.many) = (merged, 2.0 * self.length_ns, MANY.max(2 * self.places));
    }
}

/// Counts by interval and place.
#[derive(Clone, Debug, Default)]
pub struct Places {
    spaces: HashMap<u32, Space>,
    /// The number of each place in each file.
    pub files: BTreeMap<MappedFile, BTreeMap<u64, u32>>,
    /// Number of numbered places, from 1; 0 is code without a file, or with an unseen mapping.
    pub known: u32,
    /// Time [`ELSEWHERE`], nanoseconds.
    pub elsewhere_ns: f64,
    intervals: Intervals,
    /// Samples that were counted in.
    pub samples: u64,
    /// Records that the kernel lost.
    pub lost: u64,
    /// Records too late to be ordered, because their CPU's buffer had not been read for long.
    waiting: Vec<Record>,
}

impl Places {
    /// Takes records of several CPUs. Those up to `until` are complete and processed in the order of time; later ones
    /// wait for the next call, because another CPU may have unread earlier ones. `cost` gives the meaning of a sample
    /// of an event and a period.
    pub fn take(&mut self, records: Vec<Record>, until: u64, cost: impl Fn(u64, u64) -> Cost) {
        self.waiting.extend(records);
        self.waiting.sort_by_key(|record| record.time); // stable: within a CPU the buffer's order stays
        let ready = self.waiting.partition_point(|record| record.time <= until);
        for record in self.waiting.drain(..ready).collect::<Vec<_>>() {
            self.one(record, &cost);
        }
    }

    fn one(&mut self, record: Record, cost: &impl Fn(u64, u64) -> Cost) {
        let Record { pid, what, .. } = record;
        match what {
            What::Sample { event, address, period, thread } => {
                let cost = cost(event, period);
                self.samples += 1;
                // Counts without time need no place: they belong to the interval.
                let place = if cost.ns > 0.0 { self.place(pid, address) } else { ELSEWHERE };
                if place == ELSEWHERE {
                    self.elsewhere_ns += cost.ns;
                }
                self.intervals.add(thread, cost, place);
            }
            What::Map(mapping) => self.space(pid).map(mapping),
            What::Exec => {
                let space = self.space(pid);
                (space.threads, space.code) = (1, BTreeMap::new());
            }
            What::Fork(parent) if parent == pid => self.space(pid).threads += 1,
            What::Fork(parent) => {
                let code = self.spaces.get(&parent).map(|space| space.code.clone()).unwrap_or_default();
                self.spaces.insert(pid, Space { code, threads: 1 });
            }
            What::Exit => {
                let space = self.space(pid);
                space.threads = space.threads.saturating_sub(1);
                if space.threads == 0 {
                    self.spaces.remove(&pid);
                }
            }
            What::Lost(n) => self.lost = self.lost.saturating_add(n),
        }
    }

    fn space(&mut self, pid: u32) -> &mut Space {
        self.spaces.entry(pid).or_insert_with(|| Space { threads: 1, ..Space::default() })
    }

    /// The number of the place of this address in a process, a new one on first use.
    fn place(&mut self, pid: u32, address: u64) -> u32 {
        let mapping = self.spaces.get(&pid).and_then(|space| space.find(address));
        let Some(mapping) = mapping.filter(|mapping| mapping.file.inode != 0) else { return ELSEWHERE };
        let at = mapping.offset.wrapping_add(address - mapping.start);
        if !self.files.contains_key(&mapping.file) {
            self.files.insert(mapping.file.clone(), BTreeMap::new());
        }
        let Some(places) = self.files.get_mut(&mapping.file) else { return ELSEWHERE };
        *places.entry(at).or_insert_with(|| {
            self.known += 1;
            self.known
        })
    }

    /// All intervals, including open ones.
    pub fn intervals(&self) -> impl Iterator<Item = &Interval> {
        let Intervals { open, closed, .. } = &self.intervals;
        closed.iter().map(|(_, interval)| interval).chain(open.values().filter(|open| open.cost.ns > 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Records, golden};
    use super::*;

    const LATER: u64 = u64::MAX;

    fn taken(batches: &[(&[Vec<u8>], u64)]) -> Places {
        let mut places = Places::default();
        for (records, until) in batches {
            let found = Records::parse(&records.concat());
            assert_eq!(found.damaged, 0);
            places.take(found.records, *until, |event, period| {
                assert_eq!(event, 5);
                Cost { ns: period as f64, ..Cost::default() }
            });
        }
        places
    }

    fn at(places: &Places, path: &str) -> Vec<(u64, f64)> {
        let ns = |place: u32| {
            let code = places.intervals().flat_map(|interval| &interval.code);
            code.filter(|(at, _)| *at == place).map(|(_, ns)| ns).sum::<f64>()
        };
        let of = places.files.iter().filter(|(file, _)| file.path.as_os_str() == path);
        of.flat_map(|(_, at)| at.iter().map(|(at, place)| (*at, ns(*place)))).collect()
    }

    #[test]
    fn addresses_become_places_in_files() {
        let places = taken(&[(
            &[
                golden::exec(10, 1),
                golden::map(10, 2, 0x1000, 0x3000, 0x5000, 99, "/bin/a"),
                golden::map(10, 2, 0x9000, 0x1000, 0, 0, "//anon"),
                golden::sample(10, 3, 5, 0x1010, 2),
                golden::sample(10, 4, 5, 0x1010, 3),
                golden::sample(10, 4, 5, 0x3fff, 1),
                golden::sample(10, 5, 5, 0x4000, 10),
                golden::sample(10, 5, 5, 0x9001, 20),
                golden::sample(77, 5, 5, 0x1010, 40),
                golden::lost(10, 6, 8),
            ],
            LATER,
        )]);
        assert_eq!(at(&places, "/bin/a"), [(0x5010, 5.0), (0x7fff, 1.0)]);
        assert_eq!(
            places.elsewhere_ns, 70.0,
            "behind the file's end, what no file holds, a process that nobody saw begin"
        );
        let all: f64 = places.intervals().map(|interval| interval.cost.ns).sum();
        assert_eq!((places.samples, places.lost, all), (6, 8, 76.0));
    }

    /// Holds compile/regions.
    #[test]
    fn what_is_counted_belongs_to_an_interval_of_its_thread() {
        const MS: f64 = 1e6;
        let time = |ms: f64| Cost { ns: ms * MS, ..Cost::default() };
        let lines = |n: f64| Cost { private_lines: n, ..Cost::default() };
        let mut intervals = Intervals::default();
        // Thread 1 runs for 4 + 4 + 2 ms at two places, with 3 lines; then for 10 ms. Thread 2 meanwhile 1 ms.
        for (thread, cost, place) in [
            (1, time(4.0), 7),
            (1, time(4.0), 8),
            (2, time(1.0), 9),
            (1, lines(3.0), ELSEWHERE),
            (2, lines(5.0), ELSEWHERE),
            (1, time(2.0), 7),
            (1, lines(4.0), ELSEWHERE),
            (1, time(10.0), 8),
        ] {
            intervals.add(thread, cost, place);
        }
        let interval = |ms: f64, private_lines, code: &[(u32, f64)]| Interval {
            cost: Cost { private_lines, ..time(ms) },
            code: code.iter().map(|(place, ms)| (*place, ms * MS)).collect(),
        };
        let first = interval(10.0, 3.0, &[(7, 6.0), (8, 4.0)]);
        assert_eq!(intervals.closed, [(1, first), (1, interval(10.0, 4.0, &[(8, 10.0)]))]);
        assert_eq!(intervals.open[&2], interval(1.0, 5.0, &[(9, 1.0)]));
        // Too many: pairs of a thread are merged, and new intervals are as long.
        intervals.add(2, time(9.0), 9);
        intervals.merge();
        let both = interval(20.0, 7.0, &[(7, 6.0), (8, 14.0)]);
        assert_eq!(intervals.closed, [(1, both), (2, interval(10.0, 5.0, &[(9, 10.0)]))]);
        intervals.add(1, time(19.0), 7);
        assert_eq!((intervals.closed.len(), intervals.places), (2, 3));
        intervals.add(1, time(1.0), 7);
        assert_eq!((intervals.closed.len(), intervals.places), (3, 4));
    }

    /// Holds compile/regions.
    #[test]
    fn buffers_of_several_cpus_are_put_in_order() {
        // One CPU saw the mapping, another one, read first, the sample.
        let sample = [golden::sample(10, 9, 5, 0x1010, 1)];
        let map = [golden::map(10, 8, 0x1000, 0x1000, 0, 99, "/bin/a")];
        let places = taken(&[(&sample, 7), (&map, LATER)]);
        assert_eq!((at(&places, "/bin/a").len(), places.elsewhere_ns), (1, 0.0));
        // Processed at once, it would have no place.
        assert_eq!(taken(&[(&sample, 9), (&map, LATER)]).elsewhere_ns, 1.0);
    }

    /// Holds compile/regions.
    #[test]
    fn children_have_their_parents_code_until_they_execute_another() {
        let places = taken(&[(
            &[
                golden::map(10, 1, 0x1000, 0x1000, 0, 99, "/bin/sh"),
                golden::fork(11, 10, 2),
                golden::sample(11, 3, 5, 0x1001, 1),
                golden::exec(11, 4),
                golden::sample(11, 5, 5, 0x1002, 1),
                golden::map(11, 6, 0x1000, 0x1000, 0, 98, "/bin/b"),
                golden::sample(11, 7, 5, 0x1003, 1),
                golden::sample(10, 7, 5, 0x1004, 1),
                golden::exit(11, 8),
                // The number is given again.
                golden::sample(11, 9, 5, 0x1005, 1),
            ],
            LATER,
        )]);
        assert_eq!(at(&places, "/bin/sh"), [(1, 1.0), (4, 1.0)]);
        assert_eq!(at(&places, "/bin/b"), [(3, 1.0)]);
        assert_eq!(places.elsewhere_ns, 2.0);
    }

    #[test]
    fn a_process_lasts_as_long_as_its_last_thread() {
        let places = taken(&[(
            &[
                golden::exec(10, 1),
                golden::map(10, 1, 0x1000, 0x1000, 0, 99, "/bin/a"),
                golden::fork(10, 10, 2),
                golden::exit(10, 3),
                golden::sample(10, 4, 5, 0x1001, 1),
                golden::exit(10, 5),
                golden::sample(10, 6, 5, 0x1001, 1),
            ],
            LATER,
        )]);
        assert_eq!((at(&places, "/bin/a"), places.elsewhere_ns), (vec![(1, 1.0)], 1.0));
    }

    #[test]
    fn what_is_mapped_over_another_takes_its_place() {
        let places = taken(&[(
            &[
                golden::map(10, 1, 0x1000, 0x4000, 0x100, 99, "/bin/a"),
                golden::map(10, 2, 0x2000, 0x1000, 0, 98, "/bin/b"),
                golden::sample(10, 3, 5, 0x1fff, 1),
                golden::sample(10, 3, 5, 0x2000, 1),
                golden::sample(10, 3, 5, 0x3000, 1),
                golden::map(10, 4, 0x1000, 0x2800, 0, 97, "/bin/c"),
                golden::sample(10, 5, 5, 0x2000, 1),
                golden::sample(10, 5, 5, 0x3900, 1),
            ],
            LATER,
        )]);
        assert_eq!(at(&places, "/bin/a"), [(0x10ff, 1.0), (0x2100, 1.0), (0x2a00, 1.0)]);
        assert_eq!((at(&places, "/bin/b"), at(&places, "/bin/c")), (vec![(0, 1.0)], vec![(0x1000, 1.0)]));
    }
}
