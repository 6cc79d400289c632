//! What `python/` is made of: recordings, replay and simulations as tables. The functions here are thin and speak in
//! plain values; the Python package gives them their interface.

mod recording;
mod simulate;
mod table;

use cotenant_model::policy::Settings;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::fmt::Display;

/// An error whose cause is what the caller gave.
fn wrong(why: &impl Display) -> PyErr {
    PyValueError::new_err(why.to_string())
}

/// Settings by policy and key, from JSON.
fn settings_from(json: Option<&str>) -> PyResult<Settings> {
    let read = |json| serde_json::from_str(json).map_err(|why| wrong(&format!("settings: {why}")));
    json.map_or(Ok(Settings::default()), read)
}

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
