//! Micro-benchmarks and `SmashBench`: programs with known behaviour, to check measurements and policies.
//!
//! The loops are C (`c/`), which a compiler at -O2 keeps as written, because their instructions define the kernel.
//! Threads, memory, placement and errors are in Rust: `std::thread` is a POSIX thread on Linux.
//!
//! ```
//! use cotenant_kernels::{Caches, Config, Kernel};
//! let kernel = Kernel::by_name("chase").unwrap();
//! let config = Config { size: Some(64 << 10), limit: Some(10_000), ..Config::new(2, Caches::ASSUMED) };
//! let report = kernel.run(&config, None, &mut || true)?;
//! assert_eq!(report.units(), 20_000);
//! # Ok::<(), cotenant_kernels::Error>(())
//! ```

mod caches;
mod config;
mod ffi;
mod gate;
mod kernel;
mod memory;
mod report;
mod run;
mod table;

pub use caches::Caches;
pub use config::{Config, Error, MAX_THREADS};
pub use kernel::Kernel;
pub use memory::available as available_memory;
pub use report::{Pace, Report, Slot, ThreadReport};
pub use run::Counter;
