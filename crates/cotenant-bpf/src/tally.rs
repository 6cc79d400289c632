//! Readings of the maps → waits of applications.

use crate::object::{BlameKey, RawWaits, cause};
use cotenant_model::{AppId, Cause, Time, Waits};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Causes that can be named per application at a time.
const NAMED: usize = 32;

/// A cause is named from this share of all waiting since the previous reading.
const SHARE: f64 = 0.01;

/// A cause is dropped after this time without new waits.
const FORGET: Duration = Duration::from_secs(60);

/// The content of the maps at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dump {
    /// By slot.
    pub waits: Vec<(u32, RawWaits)>,
    pub blamed: Vec<(BlameKey, u64)>,
}

/// Waits so far.
#[derive(Debug, Default)]
pub struct Tally {
    /// Nanoseconds, and the time of their last change.
    last: HashMap<BlameKey, (u64, Time)>,
    apps: BTreeMap<AppId, Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    waits: Waits,
    behind: BTreeMap<Cause, (u64, Time)>,
}

impl Tally {
    /// Waits of an application since its observation began.
    pub fn of(&self, app: AppId) -> Option<&Waits> {
        self.apps.get(&app).map(|sums| &sums.waits)
    }

    /// Ends the observation of an application.
    pub fn forget(&mut self, app: AppId) {
        self.apps.remove(&app);
    }

    /// Adds a reading of that time. `app`: the application of a slot; `cgroup`: the path of the group with that id.
    /// Returns entries without recent waits, for removal from the map.
    pub fn add(
        &mut self,
        at: Time,
        dump: &Dump,
        app: impl Fn(u32) -> Option<AppId>,
        mut cgroup: impl FnMut(u64) -> String,
    ) -> Vec<BlameKey> {
        let mut new: BTreeMap<AppId, BTreeMap<Cause, u64>> = BTreeMap::new();
        let mut now = HashMap::with_capacity(dump.blamed.len());
        let mut old = Vec::new();
        for (key, ns) in &dump.blamed {
            let (known, since) = self.last.get(key).copied().unwrap_or((0, at));
            let more = ns.saturating_sub(known);
            let since = if more == 0 { since } else { at };
            if at - since > FORGET {
                old.push(*key);
            } else {
                now.insert(*key, (*ns, since));
            }
            if more > 0
                && let Some(victim) = app(key.victim)
            {
                *new.entry(victim).or_default().entry(cause_of(key, &app, &mut cgroup)).or_default() += more;
            }
        }
        self.last = now;
        for (slot, raw) in &dump.waits {
            if let Some(app) = app(*slot) {
                let new = new.remove(&app).unwrap_or_default();
                self.apps.entry(app).or_default().add(at, raw, new);
            }
        }
        old
    }
}

impl Sums {
    fn add(&mut self, at: Time, raw: &RawWaits, new: BTreeMap<Cause, u64>) {
        let all: u64 = new.values().sum();
        for (cause, ns) in new {
            let named = self.behind.contains_key(&cause)
                || self.behind.len() < NAMED && ns as f64 >= all as f64 * SHARE && cause != Cause::Unknown;
            let (sum, since) = self.behind.entry(if named { cause } else { Cause::Unknown }).or_default();
            *sum += ns;
            *since = at;
        }
        self.behind.retain(|_, (_, since)| at - *since <= FORGET);
        let behind = self.behind.iter().map(|(cause, (ns, _))| (cause.clone(), *ns)).collect();
        self.waits = Waits { at, ns: raw.ns, count: raw.count, behind, lengths: raw.lengths() };
    }
}

fn cause_of(key: &BlameKey, app: impl Fn(u32) -> Option<AppId>, cgroup: &mut impl FnMut(u64) -> String) -> Cause {
    let name = || {
        let end = key.comm.iter().position(|byte| *byte == 0).unwrap_or(key.comm.len());
        cotenant_model::text::name(&key.comm[..end])
    };
    match key.cause {
        cause::APP => app(key.id as u32).map_or(Cause::Unknown, Cause::App),
        cause::PROGRAM => Cause::Program { program: name(), cgroup: cgroup(key.id) },
        // `kworker/0:1`, `ksoftirqd/0`: one of each kind for each CPU.
        cause::KERNEL => Cause::Kernel(name().split('/').next().unwrap_or_default().to_owned()),
        cause::WAKING => Cause::Waking,
        cause::HYPERVISOR => Cause::Hypervisor,
        cause::QUOTA => Cause::Quota,
        _ => Cause::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn key(cause: u32, id: u64, comm: &str) -> BlameKey {
        let mut key = BlameKey { victim: 0, cause, id, comm: [0; 16] };
        key.comm[..comm.len()].copy_from_slice(comm.as_bytes());
        key
    }

    fn add(tally: &mut Tally, second: u64, blamed: &[(BlameKey, u64)]) -> Vec<BlameKey> {
        let ns = blamed.iter().map(|(_, ns)| ns).sum();
        let dump = Dump { waits: vec![(0, RawWaits { ns, count: 7, ..RawWaits::default() })], blamed: blamed.to_vec() };
        let app = |slot| (slot < 2).then_some(AppId(slot + 10));
        tally.add(Time::from_secs(second), &dump, app, |id| format!("g{id}"))
    }

    fn behind(tally: &Tally) -> Vec<(String, u64)> {
        let waits = tally.of(AppId(10)).unwrap();
        waits.behind.iter().map(|(cause, ns)| (cause.to_string(), ns / MS)).collect()
    }

    #[test]
    fn causes_have_names_and_control_groups() {
        let mut tally = Tally::default();
        let all = [
            (key(cause::APP, 1, ""), 500 * MS),
            (key(cause::PROGRAM, 4, "cc1"), 300 * MS),
            (key(cause::PROGRAM, 5, "cc1"), 100 * MS),
            (key(cause::PROGRAM, 4, "a\x1b[2Jb"), 50 * MS),
            (key(cause::KERNEL, 0, "kworker/0:1"), 40 * MS),
            (key(cause::KERNEL, 0, "kworker/u8:2"), 30 * MS),
            (key(cause::QUOTA, 0, ""), 20 * MS),
            (key(cause::PROGRAM, 4, "moment"), MS),
            (key(cause::APP, 9, ""), MS),
        ];
        add(&mut tally, 1, &all);
        let waits = tally.of(AppId(10)).unwrap();
        assert_eq!((waits.ns, waits.count), (1_042 * MS, 7));
        let of = |cause: &Cause| waits.behind.iter().find(|(known, _)| known == cause).map(|(_, ns)| ns / MS);
        let program = |program: &str, cgroup: &str| Cause::Program { program: program.into(), cgroup: cgroup.into() };
        assert_eq!(of(&Cause::App(AppId(11))), Some(500));
        assert_eq!(of(&program("cc1", "g4")), Some(300));
        assert_eq!(of(&program("cc1", "g5")), Some(100));
        assert_eq!(of(&Cause::Kernel("kworker".into())), Some(70), "one of each kind for each CPU");
        assert_eq!(of(&Cause::Quota), Some(20));
        assert_eq!(of(&Cause::Unknown), Some(2), "one that had next to nothing, and a slot that nothing has");
        assert!(waits.behind.iter().all(|(cause, _)| !cause.to_string().contains('\x1b')), "clean for a terminal");
        assert_eq!(waits.behind.iter().map(|(_, ns)| ns).sum::<u64>(), waits.ns, "all of it is laid on something");
    }

    /// Whatever comes and goes, what is named is bounded, and what is waited for is the sum of its causes.
    /// Holds see/waits-behind.
    #[test]
    fn short_lived_programs_are_forgotten() {
        let mut tally = Tally::default();
        let mut map = BTreeMap::new();
        let stays = key(cause::PROGRAM, 1, "stays");
        for second in 1..=1_000 {
            let new = (second..second + 20).map(|i| (key(cause::PROGRAM, 1, &format!("p{i}")), 100 * MS));
            map.extend(new.chain([(stays, second * 100 * MS)]));
            let all: Vec<_> = map.iter().map(|(key, ns)| (*key, *ns)).collect();
            for gone in add(&mut tally, second, &all) {
                map.remove(&gone);
            }
            assert!(behind(&tally).len() <= NAMED + 1);
            assert!(map.len() < 20 + FORGET.as_secs() as usize + 2, "what rests is removed");
        }
        assert!(behind(&tally).contains(&("stays".to_owned(), 100_000)));
    }

    /// One that comes back after it was forgotten begins with what it had since.
    #[test]
    fn what_comes_back_counts_from_then() {
        let mut tally = Tally::default();
        let comes = key(cause::PROGRAM, 1, "comes");
        let other = |second: u64| (key(cause::PROGRAM, 1, "other"), second * 10 * MS);
        add(&mut tally, 1, &[(comes, 100 * MS), other(1)]);
        for second in 2..=62 {
            add(&mut tally, second, &[(comes, 100 * MS), other(second)]);
        }
        assert_eq!(behind(&tally), [("other".to_owned(), 620)]);
        add(&mut tally, 63, &[(comes, 7 * MS), other(63)]);
        assert_eq!(behind(&tally), [("comes".to_owned(), 7), ("other".to_owned(), 630)]);
    }
}
