//! What a table of events says of a family of processors.

use cotenant_model::Signal;

pub(super) const NO_STATES: &str = "no event tells requests by the state of the line";

/// One hardware event, or a part of what gives its signal: that is the sum of all events of the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The signal; no occurrence is counted by two of its events.
    pub signal: Signal,
    /// The vendor's name; `A.X|Y` is one counter with the unit masks of `A.X` and `A.Y`.
    pub name: &'static str,
    /// The `config` of `perf_event_attr`: event select in bits 0–7, unit mask in 8–15, counter mask in 24–31 on x86;
    /// the event number on Arm.
    pub raw: u64,
}

/// Why signals cannot be counted, and which.
pub type Absent = (&'static str, &'static [Signal]);

/// What one processor family can count for a task.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// The family's name.
    pub name: &'static str,
    /// Programmable counters per hardware thread with all siblings busy.
    pub counters: u8,
    /// Whether cycles and instructions have counters of their own.
    pub fixed: bool,
    /// What it can count, cycles and instructions apart: those are the kernel's generic events everywhere.
    pub events: &'static [&'static [Event]],
    /// What it cannot count.
    pub absent: &'static [Absent],
}

impl Table {
    /// What gives a signal; empty where nothing does.
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
