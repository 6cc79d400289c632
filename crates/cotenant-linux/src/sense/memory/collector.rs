//! The contract of methods that find a process's memory accesses.

use cotenant_model::areas::{Area, ByNode};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::time::Duration;

/// Shortest interval between looks at accesses (Tumanov et al. §4.2: 20 Hz).
pub(super) const FASTEST: Duration = Duration::from_millis(50);

/// A process that is watched.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// Its id.
    pub pid: u32,
    /// Its threads that are managed.
    pub threads: &'a [u32],
    /// Its areas, ascending.
    pub areas: &'a [Area],
}

/// Accesses of a process, base pages by node.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// All of its threads together.
    Together(ByNode),
    /// Each of its threads.
    Apart(HashMap<u32, ByNode>),
}

/// A method to find a process's memory accesses.
pub trait Collector: fmt::Debug {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Least useful interval between looks at this process.
    fn fastest(&self, _pid: u32) -> Duration {
        FASTEST
    }

    /// Begins to watch a process.
    ///
    /// # Errors
    /// System errors; `NotFound` if the process has ended.
    fn begin(&mut self, of: &Watched<'_>) -> io::Result<()>;

    /// Accesses since its beginning.
    ///
    /// # Errors
    /// As [`Self::begin`].
    fn end(&mut self, of: &Watched<'_>) -> io::Result<Found>;

    /// Why looking takes long, if there is a reason to report.
    fn hint(&self) -> Option<String> {
        None
    }

    /// A process has ended, or is not observed any more.
    fn forget(&mut self, pid: u32);
}

/// Resident pages of all areas, base pages.
pub(super) fn resident(areas: &[Area]) -> u64 {
    areas.iter().map(Area::resident).fold(0, u64::saturating_add)
}
