//! Waits for CPUs, and what had the CPU meanwhile, from the scheduler's tracepoints by BPF.
//!
//! ```text
//! Tracer   loads the object, says whose threads are whose, reads maps once in a while
//!  ├── object   layouts of the maps, as waits.bpf.c has them
//!  └── tally    what was read → waits of applications: no system call, tested by dumps
//! ```
//!
//! The object is compiled by `cargo xtask bpf` and committed, so that users need no clang. Programs and maps go with
//! the process, however it ends: nothing is pinned. No event goes to user space, and of other programs names, control
//! groups and times alone are read.

mod object;
mod tally;
mod tracer;

pub use tracer::{Blind, Tracer};
