//! Where samples fell: addresses become places in files by what was mapped where at that time.

use super::record::{MappedFile, Mapping, Record, What};
use std::collections::{BTreeMap, HashMap};

/// What code cost.
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
    /// Threads that are known to run; a process without any is forgotten.
    threads: u32,
}

impl Space {
    /// Maps, over whatever was there.
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

/// Costs by place.
#[derive(Clone, Debug, Default)]
pub struct Places {
    spaces: HashMap<u32, Space>,
    /// Of each file, by the place in it.
    pub files: BTreeMap<MappedFile, BTreeMap<u64, Cost>>,
    /// Of code that no file holds, or whose mapping was not seen.
    pub elsewhere: Cost,
    /// Samples that were counted in.
    pub samples: u64,
    /// Records that the kernel lost.
    pub lost: u64,
    /// Records that are too late to be put in order, since their CPU's buffer had not been read for long.
    waiting: Vec<Record>,
}

impl Places {
    /// Takes records of several CPUs. Those up to `until` are complete and are looked at in the order of time; later
    /// ones wait for the next call, since another CPU may have earlier ones that were not read yet. `cost` says what
    /// a sample of an event and a period is.
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
            What::Sample { event, address, period } => {
                let cost = cost(event, period);
                self.samples += 1;
                let mapping = self.spaces.get(&pid).and_then(|space| space.find(address));
                match mapping.filter(|mapping| mapping.file.inode != 0) {
                    Some(mapping) => {
                        let at = mapping.offset.wrapping_add(address - mapping.start);
                        let known = self.files.entry(mapping.file.clone()).or_default().entry(at).or_default();
                        *known = known.and(cost);
                    }
                    None => self.elsewhere = self.elsewhere.and(cost),
                }
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

    /// All costs together.
    pub fn total(&self) -> Cost {
        self.files.values().flat_map(BTreeMap::values).fold(self.elsewhere, |sum, cost| sum.and(*cost))
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
        let of = places.files.iter().filter(|(file, _)| file.path.as_os_str() == path);
        of.flat_map(|(_, at)| at.iter().map(|(at, cost)| (*at, cost.ns))).collect()
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
            places.elsewhere.ns, 70.0,
            "behind the file's end, what no file holds, a process that nobody saw begin"
        );
        assert_eq!((places.samples, places.lost, places.total().ns), (6, 8, 76.0));
    }

    #[test]
    fn buffers_of_several_cpus_are_put_in_order() {
        // One CPU saw the mapping, another one, read first, the sample.
        let sample = [golden::sample(10, 9, 5, 0x1010, 1)];
        let map = [golden::map(10, 8, 0x1000, 0x1000, 0, 99, "/bin/a")];
        let places = taken(&[(&sample, 7), (&map, LATER)]);
        assert_eq!((at(&places, "/bin/a").len(), places.elsewhere.ns), (1, 0.0));
        // Had it been looked at at once, it would have fallen nowhere.
        assert_eq!(taken(&[(&sample, 9), (&map, LATER)]).elsewhere.ns, 1.0);
    }

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
        assert_eq!(places.elsewhere.ns, 2.0);
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
        assert_eq!((at(&places, "/bin/a"), places.elsewhere.ns), (vec![(1, 1.0)], 1.0));
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
