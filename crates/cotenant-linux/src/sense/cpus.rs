//! Load of each CPU by any work.

use crate::FsRoot;
use crate::bounded::Limit;
use cotenant_model::{CpuSample, CpuSet, Topology, proc_text};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Why busy time cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {why}; mount /proc, or run where it is visible", path.display())]
pub struct ReadError {
    /// The read file.
    path: PathBuf,
    /// The system's error.
    why: io::Error,
}

/// Reads `/proc/stat`. Its clock ticks, 10 ms on most machines, limit the resolution of short intervals.
#[derive(Debug)]
pub struct Busy {
    file: File,
    path: PathBuf,
    online: CpuSet,
    tick_ns: u64,
    buffer: Vec<u8>,
}

impl Busy {
    /// Opens it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn new(fs: &FsRoot, topology: &Topology) -> Result<Self, ReadError> {
        let path = fs.path("/proc/stat");
        let file = File::open(&path).map_err(|why| ReadError { path: path.clone(), why })?;
        // SAFETY: takes a constant and has no other effect.
        let hertz = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1);
        let (online, tick_ns) = (topology.online().clone(), 1_000_000_000 / hertz);
        Ok(Self { file, path, online, tick_ns, buffer: vec![0; 16 << 10] })
    }

    /// The CPUs of the topology that are online now, with their busy time since the system started.
    ///
    /// # Errors
    /// It cannot be read, or is not in the documented form.
    pub fn read(&mut self) -> Result<Vec<CpuSample>, ReadError> {
        self.try_read().map_err(|why| ReadError { path: self.path.clone(), why })
    }

    fn try_read(&mut self) -> io::Result<Vec<CpuSample>> {
        let got = loop {
            let got = self.file.read_at(&mut self.buffer, 0)?;
            // The lines of interrupts at the end may be truncated, but not those of CPUs at the beginning.
            if got < self.buffer.len() || self.buffer.windows(5).any(|w| w == b"\nintr") {
                break got;
            }
            if self.buffer.len() as u64 >= Limit::Machine.bytes() {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.buffer.resize(self.buffer.len() * 2, 0);
        };
        let mut ticks = Vec::with_capacity(self.online.len());
        proc_text::busy_ticks(&self.buffer[..got], &mut ticks).map_err(io::Error::other)?;
        let known = ticks.into_iter().filter(|(cpu, _)| self.online.contains(*cpu));
        Ok(known.map(|(id, ticks)| CpuSample { id, busy_ns: ticks * self.tick_ns }).collect())
    }
}
