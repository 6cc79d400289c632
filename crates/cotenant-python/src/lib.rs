//! Native part of `python/`: recordings, replay and simulations as tables. These thin functions use plain values; the
//! Python package provides the interface.

mod given;
mod recording;
mod simulate;
mod table;

use pyo3::prelude::*;

/// The names of the policies.
#[pyfunction]
fn policies() -> Vec<&'static str> {
    cotenant_policies::standard().names().collect()
}

/// The names of the machines that need no file.
#[pyfunction]
fn machines() -> Vec<&'static str> {
    cotenant_cli::machine_arg::names().collect()
}

/// The names of the programs that scenarios know.
#[pyfunction]
fn programs() -> Vec<&'static str> {
    cotenant_sim::app::known_names().map(String::as_str).collect()
}

#[pymodule]
mod _cotenant {
    #[pymodule_export]
    use super::recording::Recording;
    #[pymodule_export]
    use super::simulate::simulate;
    #[pymodule_export]
    use super::{machines, policies, programs};

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
