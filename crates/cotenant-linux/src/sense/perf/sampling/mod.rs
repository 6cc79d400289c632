//! Sampling: code that brings lines into caches, by instruction pointers at counter overflows.
//!
//! The events are opened disabled on the calling thread, inherited by the program that it starts next, and enabled at
//! its exec, so that exactly the program is covered. The kernel lets inherited events on one CPU write into one buffer
//! only, so each CPU has an event of each kind and a buffer.

mod choice;
mod places;
pub(crate) mod record;
pub(crate) mod ring;
mod symbols;

pub use choice::{Events, Sampled, Unavailable};
pub use places::{Cost, Interval, Places};
pub use record::MappedFile;
pub use symbols::{SourceLine, shown, source_lines};

use super::{Code, attributes, open_event};
use crate::sys;
use cotenant_model::CpuSet;
use perf_event_open_sys::{bindings, ioctls};
use record::Records;
use ring::Ring;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};

/// Samples per second and event of a running thread: the paper's interval of 1 ms (§5.2).
pub const PER_SECOND: u64 = 1_000;

/// Pages of each CPU's buffer: half a second at 10,000 samples per second, below every user's limit
/// (`perf_event_mlock_kb`).
const PAGES: usize = 64;

/// One event on one CPU.
#[derive(Debug)]
struct Open {
    event: File,
    /// Index among the requested events.
    which: usize,
}

/// Samples the program that this thread starts next, with its descendants.
#[derive(Debug, Default)]
pub struct Sampler {
    sampled: Vec<Sampled>,
    open: Vec<Open>,
    rings: Vec<Ring>,
    /// The kernel's number of each event.
    ids: HashMap<u64, usize>,
    /// Time of the last read of the buffers, nanoseconds of `CLOCK_MONOTONIC`.
    read_at: u64,
    places: Places,
    /// Malformed records.
    damaged: u64,
    buffer: Vec<u8>,
}

impl Sampler {
    /// Opens the events on these CPUs. All programs that this thread starts from now on are sampled, until `self` is
    /// dropped.
    ///
    /// # Errors
    /// [`Unavailable::Refused`] with the event and the kernel's error.
    pub fn of_next_program(events: &Events, cpus: &CpuSet) -> Result<Self, Unavailable> {
        let mut sampler = Self { sampled: events.sampled.clone(), ..Self::default() };
        sys::raise_nofile();
        for cpu in cpus.iter() {
            let mut leader: Option<usize> = None;
            for (which, sampled) in events.sampled.iter().enumerate() {
                if sampled.cpus.as_ref().is_some_and(|cpus| !cpus.contains(cpu)) {
                    continue;
                }
                let refused = |why| Unavailable::Refused { event: sampled.name.clone(), why };
                let event = match open(sampled.code, cpu.0, leader.is_none()) {
                    Err(why) if why.raw_os_error() == Some(libc::ENODEV) => continue, // it went offline just now
                    event => event.map_err(refused)?,
                };
                sampler.ids.insert(id(&event).map_err(refused)?, which);
                match leader {
                    None => sampler.rings.push(Ring::map(event.as_fd(), PAGES).map_err(refused)?),
                    Some(leader) => write_to(&event, &sampler.open[leader].event).map_err(refused)?,
                }
                sampler.open.push(Open { event, which });
                leader = leader.or(Some(sampler.open.len() - 1));
            }
        }
        Ok(sampler)
    }

    /// Reads the buffers; call it every 100 ms or so.
    pub fn read(&mut self) {
        let now = sys::monotonic().as_nanos() as u64;
        // A record is stamped before it is written: those older than the last read are complete by now.
        self.collect(self.read_at);
        self.read_at = now;
    }

    fn collect(&mut self, until: u64) {
        self.buffer.clear();
        let mut records = Vec::new();
        for ring in &mut self.rings {
            self.damaged += u64::from(!ring.read(&mut self.buffer));
            let found = Records::parse(&self.buffer);
            self.buffer.clear();
            self.damaged += found.damaged;
            records.extend(found.records);
        }
        let (ids, sampled) = (&self.ids, &self.sampled);
        self.places.take(records, until, |id, period| {
            ids.get(&id).map_or_else(Cost::default, |which| sampled[*which].cost(period))
        });
    }

    /// Reads the rest, and ends. An alternating event counts for all of the time.
    pub fn finish(mut self) -> Found {
        self.collect(u64::MAX);
        let mut times = vec![(0_u64, 0_u64); self.sampled.len()];
        for open in &self.open {
            if let Some((enabled, running)) = read_times(&open.event) {
                let time = &mut times[open.which];
                (time.0, time.1) = (time.0.saturating_add(enabled), time.1.saturating_add(running));
            }
        }
        let of = |counts: fn(&Sampled) -> bool| {
            let which = self.sampled.iter().zip(&times).filter(|(sampled, _)| counts(sampled));
            // Several events of one signal: parts of a sum, each with its own factor, whose mean represents all.
            let factors: Vec<f64> = which.map(|(_, time)| time.0 as f64 / (time.1 as f64).max(1.0)).collect();
            let mean = factors.iter().sum::<f64>() / factors.len().max(1) as f64;
            if mean > 1.0 { mean } else { 1.0 }
        };
        let (private, last) = (of(|s| s.private), of(|s| s.last));
        Found { places: self.places, damaged: self.damaged, private_factor: private, last_factor: last }
    }
}

/// The results of sampling.
#[derive(Debug)]
pub struct Found {
    /// The places of samples.
    pub places: Places,
    /// Malformed records.
    pub damaged: u64,
    /// Factor for lines into the private cache, because their events were only counted for a part of the time; at least
    /// 1.
    pub private_factor: f64,
    /// The same of lines into the last level.
    pub last_factor: f64,
}

fn open(code: Code, cpu: u32, tells_of_processes: bool) -> io::Result<File> {
    let mut attr = attributes(code);
    attr.sample_type = u64::from(
        bindings::PERF_SAMPLE_IDENTIFIER
            | bindings::PERF_SAMPLE_IP
            | bindings::PERF_SAMPLE_TID
            | bindings::PERF_SAMPLE_TIME
            | bindings::PERF_SAMPLE_PERIOD,
    );
    attr.read_format = u64::from(bindings::PERF_FORMAT_TOTAL_TIME_ENABLED | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING);
    attr.__bindgen_anon_1.sample_freq = PER_SECOND;
    attr.set_freq(1);
    attr.set_disabled(1);
    attr.set_enable_on_exec(1);
    attr.set_inherit(1);
    // Allowed for a user's own programs at `perf_event_paranoid` 2.
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    if tells_of_processes {
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
    }
    open_event(attr, 0, Some(cpu), None)
}

fn id(event: &File) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the descriptor is an event's, and the kernel writes one word to `id`, which outlives the call.
    let done = unsafe { ioctls::ID(event.as_raw_fd(), &raw mut id) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
}

/// Redirects an event into another one's buffer.
fn write_to(event: &File, owner: &File) -> io::Result<()> {
    // SAFETY: both descriptors are events that are open during the call.
    let done = unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Enabled and running nanoseconds of an event.
fn read_times(mut event: &File) -> Option<(u64, u64)> {
    let mut bytes = [0; 24];
    event.read_exact(&mut bytes).ok()?;
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some((word(8)?, word(16)?))
}
