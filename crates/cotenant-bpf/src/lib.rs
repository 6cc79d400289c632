//! Waits for CPUs, and the work that occupied them meanwhile, from the scheduler's tracepoints by BPF.
//!
//! ```text
//! Tracer   loads the object, says whose threads are whose, reads maps once in a while
//!  ├── object   layouts of the maps, as waits.bpf.c has them
//!  └── tally    what was read → waits of applications: no system call, tested by dumps
//! ```
//!
//! The object is compiled by `cargo xtask bpf` and committed, so that users need no clang. Nothing is pinned: programs
//! and maps end with the process. No event goes to user space; of unobserved programs only names, control groups and
//! times are read.

mod object;
mod tally;
mod tracer;

pub use tracer::{Blind, Tracer};
