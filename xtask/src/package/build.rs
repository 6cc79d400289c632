//! Builds the packaged programs.

use crate::commands::{cargo_program, target_folder};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The place of a built program, with its debug symbols, and its profile.
pub(super) struct Build<'a> {
    pub root: &'a Path,
    pub profile: &'a str,
    /// A given binary instead of a build.
    pub binary: Option<PathBuf>,
    /// Seconds since 1970 of the last commit, so that repeated builds are identical.
    pub time: String,
}

impl Build<'_> {
    /// Builds `cotenant` and returns its path.
    pub fn cotenant(&self, target: Option<&str>) -> Result<PathBuf> {
        if let Some(binary) = &self.binary {
            return Ok(binary.clone());
        }
        let folder = if self.profile == "dev" { "debug" } else { self.profile };
        let mut cargo = Command::new(cargo_program());
        cargo.args(["build", "--package", "cotenant", "--profile", self.profile]).current_dir(self.root);
        cargo.args(target.into_iter().flat_map(|target| ["--target", target]));
        // Symbols are taken out afterwards, into a file of their own.
        cargo.env(strip_variable(self.profile), "none");
        if !cargo.status().context("cargo")?.success() {
            bail!("cotenant cannot be built with the profile {}", self.profile);
        }
        Ok(target_folder(self.root).join(target.unwrap_or_default()).join(folder).join("cotenant"))
    }
}

/// The variable of cargo for stripping a profile's programs.
pub(super) fn strip_variable(profile: &str) -> String {
    format!("CARGO_PROFILE_{}_STRIP", profile.to_uppercase())
}
