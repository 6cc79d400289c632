//! Files that the user named, read as a whole.

use anyhow::Result;
use cotenant_cli::usage;
use cotenant_linux::bounded::{self, Limit};
use cotenant_model::profile::{self, AppProfile, MachineProfile};
use std::collections::BTreeMap;
use std::path::Path;

/// The text of a file that the user named.
///
/// # Errors
/// Names the file, and why it cannot be read.
pub fn read(path: &Path) -> Result<String> {
    bounded::given_text(path).map_err(|e| usage(format!("{}: {e}; check the path", path.display())))
}

/// The text of a file that the user named, where `-` is standard input.
///
/// # Errors
/// As [`read`].
pub fn read_or_input(path: &Path) -> Result<String> {
    if path != Path::new("-") {
        return read(path);
    }
    bounded::rest_text(&mut std::io::stdin().lock(), Limit::Named).map_err(|e| usage(format!("standard input: {e}")))
}

/// Reads profiles of applications.
///
/// # Errors
/// Names the file and the place of what is wrong in it.
pub fn read_profiles(path: &Path) -> Result<BTreeMap<String, AppProfile>> {
    profile::parse_apps(&read(path)?).map_err(|e| usage(format!("{}:{e}", path.display())))
}

/// Reads thresholds: a machine file, or a file with the keys of a profile alone.
///
/// # Errors
/// As [`read_profiles`].
pub fn read_profile(path: &Path) -> Result<MachineProfile> {
    let text = read(path)?;
    cotenant_model::machine::parse_profile(&text).map_err(|e| usage(format!("{}:{e}", path.display())))
}
