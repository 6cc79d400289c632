//! How busy each CPU is, whoever uses it.

use crate::FsRoot;
use crate::bounded::Limit;
use cotenant_model::{CpuSample, CpuSet, Topology, proc_text};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Why nothing is told.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {why}; mount /proc, or run where it is visible")]
pub struct ReadError {
    /// What was read.
    path: String,
    /// What the system said.
    why: String,
}

/// Reads `/proc/stat`. Its clock ticks, 10 ms on most machines, limit what can be told apart in a short interval.
#[derive(Debug)]
pub struct Busy {
    file: File,
    path: String,
    online: CpuSet,
    tick_ns: u64,
    buffer: Vec<u8>,
}

impl Busy {
    /// Opens it.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn new(fs: &FsRoot, topology: &Topology) -> Result<Self, ReadError> {
        let path = fs.path("/proc/stat");
        let error = |why: std::io::Error| ReadError { path: path.display().to_string(), why: why.to_string() };
        let file = File::open(&path).map_err(error)?;
        // SAFETY: takes a constant and has no other effect.
        let hertz = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1);
        let path = path.display().to_string();
        Ok(Self {
            file,
            path,
            online: topology.online().clone(),
            tick_ns: 1_000_000_000 / hertz,
            buffer: vec![0; 16 << 10],
        })
    }

    /// The CPUs of the topology that are online now, with their busy time since the system started.
    ///
    /// # Errors
    /// Where it cannot be read, or is not what the kernel documents.
    pub fn read(&mut self) -> Result<Vec<CpuSample>, ReadError> {
        let error = |why: String| ReadError { path: self.path.clone(), why };
        let got = loop {
            let got = self.file.read_at(&mut self.buffer, 0).map_err(|e| error(e.to_string()))?;
            // The lines of interrupts at the end may be cut off; those of CPUs, at the beginning, may not.
            if got < self.buffer.len() || self.buffer.windows(5).any(|w| w == b"\nintr") {
                break got;
            }
            if self.buffer.len() as u64 >= Limit::Machine.bytes() {
                return Err(error("it has no end".to_owned()));
            }
            self.buffer.resize(self.buffer.len() * 2, 0);
        };
        let mut ticks = Vec::with_capacity(self.online.len());
        proc_text::busy_ticks(&self.buffer[..got], &mut ticks).map_err(|e| error(e.to_string()))?;
        let known = ticks.into_iter().filter(|(cpu, _)| self.online.contains(*cpu));
        Ok(known.map(|(id, ticks)| CpuSample { id, busy_ns: ticks * self.tick_ns }).collect())
    }
}
