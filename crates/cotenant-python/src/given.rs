//! Conversions of callers' arguments.

use cotenant_model::policy::Settings;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::fmt::Display;

/// An error caused by the caller's arguments.
pub(crate) fn wrong(why: &impl Display) -> PyErr {
    PyValueError::new_err(why.to_string())
}

/// Settings by policy and key, from JSON.
pub(crate) fn settings_from(json: Option<&str>) -> PyResult<Settings> {
    let read = |json| serde_json::from_str(json).map_err(|why| wrong(&format!("settings: {why}")));
    json.map_or(Ok(Settings::default()), read)
}
