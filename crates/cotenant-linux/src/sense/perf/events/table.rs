//! Table of events for a family of processors.

use cotenant_model::Signal;

pub(super) const NO_STATES: &str = "no event tells requests by the state of the line";

/// One hardware event, or a part of its signal, which is the sum of all its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The signal; its events are disjoint.
    pub signal: Signal,
    /// The vendor's name; `A.X|Y` is one counter with the unit masks of `A.X` and `A.Y`.
    pub name: &'static str,
    /// The `config` of `perf_event_attr`: event select in bits 0–7, unit mask in 8–15, counter mask in 24–31 on x86;
    /// the event number on Arm.
    pub raw: u64,
}

/// Why signals cannot be counted, and which.
pub type Absent = (&'static str, &'static [Signal]);

/// Signals that one processor family can count for a task.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// The family's name.
    pub name: &'static str,
    /// Programmable counters per hardware thread with all siblings busy.
    pub counters: u8,
    /// Whether cycles and instructions have counters of their own.
    pub fixed: bool,
    /// Its countable signals except for cycles and instructions, which are the kernel's generic events everywhere.
    pub events: &'static [&'static [Event]],
    /// The signals that it cannot count.
    pub absent: &'static [Absent],
}

impl Table {
    /// Events of a signal; empty without any.
    pub fn events(&self, signal: Signal) -> Vec<Event> {
        self.events.iter().copied().flatten().filter(|event| event.signal == signal).copied().collect()
    }

    /// Whether a signal can be counted.
    pub fn counts(&self, signal: Signal) -> bool {
        self.events.iter().copied().flatten().any(|event| event.signal == signal)
    }

    /// Why a signal is missing.
    pub fn why_absent(&self, signal: Signal) -> Option<&'static str> {
        self.absent.iter().find(|(_, signals)| signals.contains(&signal)).map(|(why, _)| *why)
    }
}

/// Shorthand of the tables.
pub(super) const fn event(signal: Signal, name: &'static str, raw: u64) -> Event {
    Event { signal, name, raw }
}
