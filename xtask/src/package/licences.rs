//! The licences of the crates in a binary, as these require.

use crate::commands::{cargo_program, done};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Beginnings of the names of licences' files.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Every crate of others in `cotenant` for a target with its licence, then the texts, each once.
///
/// # Errors
/// If cargo fails, or a text cannot be read.
pub fn text(root: &Path, target: &str) -> Result<String> {
    let mut tree = Command::new(cargo_program());
    tree.args(["tree", "--package", "cotenant", "--edges", "normal", "--prefix", "none", "--target", target]);
    let used = done(tree.args(["--format", "{p}"]).current_dir(root))?;
    // "name v1.2.3 (proc-macro)", "name v1.2.3 (/a/path)"
    let used: BTreeSet<&str> = used.lines().map(|line| line.split(" (").next().unwrap_or(line)).collect();
    let metadata = done(Command::new(cargo_program()).args(["metadata", "--format-version", "1"]).current_dir(root))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let (mut list, mut texts) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    for package in metadata["packages"].as_array().context("cargo metadata lists packages")? {
        let of = |key: &str| package[key].as_str().unwrap_or_default();
        let name = format!("{} v{}", of("name"), of("version"));
        if package["source"].is_null() || !used.contains(&*name) {
            continue;
        }
        let _ = writeln!(list, "{name}: {}", of("license"));
        let folder = Path::new(of("manifest_path")).parent().context("a manifest lies in a folder")?;
        for file in fs::read_dir(folder).with_context(|| folder.display().to_string())?.flatten() {
            let is = file.file_name().to_string_lossy().to_uppercase();
            if NAMES.iter().any(|start| is.starts_with(start)) && file.path().is_file() {
                let text = fs::read(file.path()).with_context(|| file.path().display().to_string())?;
                texts.entry(String::from_utf8_lossy(&text).trim().to_owned()).or_default().push(name.clone());
            }
        }
    }
    let mut out = format!("Crates by others that cotenant contains, and their licences.\n\n{list}");
    for (text, names) in texts {
        let _ = write!(out, "\n{}\n{}\n\n{text}\n", "-".repeat(78), names.join(", "));
    }
    Ok(out)
}
