//! Waits for CPUs, and what had the CPU meanwhile, and how long requests take, from the kernel's tracepoints by BPF.
//!
//! ```text
//! Tracer     waits: says whose threads are whose, reads maps once in a while
//!  └── tally    what was read → waits of applications: no system call, tested by dumps
//! Requests   latencies of one service, at the server and at its clients on this machine
//! object     the objects, and layouts of their maps, as *.bpf.c have them
//! kernel     whether this kernel takes an object, and why not
//! ```
//!
//! Objects are compiled by `cargo xtask bpf` and committed, so that users need no clang. Programs and maps go with
//! the process, however it ends: nothing is pinned. No event goes to user space. Of other programs names, control
//! groups and times alone are read; of requests their times, never what they say.

mod kernel;
mod object;
mod requests;
mod tally;
mod tracer;

pub use kernel::Blind;
pub use requests::{Counted, Latencies, Requests, Seen, Service};
pub use tracer::Tracer;
