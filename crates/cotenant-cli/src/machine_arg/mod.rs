//! Machines as users name them: `--machine` and `--from`.

use cotenant_linux::sense::topology;
use cotenant_linux::{FsRoot, bounded, given};
use cotenant_model::machine::Machine;
use cotenant_model::topology::{synthetic, xml};
use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The machine files in the binary; `machines` beside `src` links to them, so that this package is complete.
macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../machines/", $name, ".toml")))),*]
    };
}

#[rustfmt::skip] // a line per item would add nothing
const EMBEDDED: &[(&str, &str)] = embedded![
    "clovertown-2s", "clx-8269-2s-snc2", "epyc-7742-2s-nps4", "epyc-9454-2s", "epyc-9454-2s-nps4",
    "harpertown-2s", "ivy-bridge-2s", "knl-7210", "nehalem-i7-920", "opteron-48", "opteron-6276-2s",
    "phenom-x4", "tilepro64", "westmere-2s", "westmere-2s-ht", "x3320", "xeon-4s-64", "yorkfield",
];

/// A requested machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The machine.
    pub machine: Machine,
    /// Whether it is this one, so that decisions about it can be carried out.
    pub is_live: bool,
    /// Unreadable or assumed parts, one line each.
    pub notes: Vec<String>,
}

/// A machine that cannot be had: what, where, why. One line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("machine {0}")]
pub struct MachineArgError(String);

/// The names of the machines that the binary carries.
pub fn names() -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().map(|(name, _)| *name)
}

/// A machine of the binary, ignoring files of the user or the system with its name.
///
/// # Errors
/// [`MachineArgError`] for an unknown name.
pub fn shipped(name: &str) -> Result<Machine, MachineArgError> {
    let Some((_, text)) = EMBEDDED.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = names().collect();
        return Err(MachineArgError(format!("'{name}': no such name ({})", names.join(", "))));
    };
    let file = format!("machines/{name}.toml");
    Ok(Machine::parse(text).map_err(|e| MachineArgError(format!("{file}:{e}")))?.of_file(file))
}

/// Resolves an argument: a name in `machines/` (of the user, of the system, of the binary), a TOML file, an lstopo XML
/// file, a folder with a `sys/` tree, or a synthetic description. Without one it is this machine.
///
/// # Errors
/// [`MachineArgError`] lists the attempts; errors in files name file, line and column.
pub fn resolve(arg: Option<&str>) -> Result<Found, MachineArgError> {
    if let Some(arg) = arg {
        return resolve_in(arg, &data_dirs(|name| env::var_os(name)));
    }
    let found = topology::live().map_err(|e| MachineArgError(e.to_string()))?;
    let machine = Machine::unnamed(found.topology, "this machine", "sysfs");
    Ok(Found { machine, is_live: true, notes: found.notes })
}

/// A machine named by a simulation: as [`resolve`] finds it, but `own` first tries to read the text of a file. Paths
/// are relative to a folder.
///
/// # Errors
/// The fault in one line, with the file if it is one.
pub fn resolve_beside<E: Display>(
    name: &str,
    folder: &Path,
    own: impl Fn(&str) -> Option<Result<Machine, E>>,
) -> Result<Machine, String> {
    let path = folder.join(name);
    if path.exists() && !path.is_dir() {
        let text = bounded::named_text(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        if let Some(machine) = own(&text) {
            let shown = path.display().to_string();
            return machine.map_err(|e| format!("{shown}:{e}")).map(|machine| machine.of_file(shown));
        }
    }
    let path = path.exists().then(|| path.to_string_lossy().into_owned());
    resolve(Some(path.as_deref().unwrap_or(name))).map(|found| found.machine).map_err(|e| e.to_string())
}

fn resolve_in(arg: &str, data_dirs: &[PathBuf]) -> Result<Found, MachineArgError> {
    let known = |machine| Ok(Found { machine, is_live: false, notes: Vec::new() });
    let is_name = !arg.is_empty() && arg.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if is_name {
        let file = format!("cotenant/machines/{arg}.toml");
        if let Some(path) = data_dirs.iter().map(|dir| dir.join(&file)).find(|path| path.is_file()) {
            return known(parse_file(&path)?);
        }
        if names().any(|name| name == arg) {
            return known(shipped(arg)?);
        }
    }
    let path = Path::new(arg);
    if path.is_dir() {
        return dump(path);
    }
    if path.exists() {
        return known(parse_file(path)?);
    }
    match synthetic::parse(arg) {
        Ok(t) => known(Machine::unnamed(t, "synthetic", arg)),
        Err(e) => {
            let names: Vec<&str> = names().collect();
            let names = names.join(", ");
            Err(MachineArgError(format!("'{arg}': no such name ({names}), no such file or folder, and no {e}")))
        }
    }
}

/// A folder that holds a `sys/` tree.
fn dump(path: &Path) -> Result<Found, MachineArgError> {
    let shown = path.display();
    if !path.join("sys").is_dir() {
        return Err(MachineArgError(format!("{shown}: the folder holds no sys/; give the folder above it")));
    }
    let root = FsRoot::at(path);
    let found = topology::read(&root, None).map_err(|e| MachineArgError(e.to_string()))?;
    let machine = Machine::unnamed(found.topology, &stem(path), &format!("{shown}/sys"));
    Ok(Found { machine, is_live: root.is_live(), notes: found.notes })
}

/// A file: XML if it begins like XML, else TOML.
fn parse_file(path: &Path) -> Result<Machine, MachineArgError> {
    let shown = path.display();
    let error = |why: String| MachineArgError(format!("{shown}{why}"));
    let text = given::text(path).map_err(|e| error(format!(": {e}")))?;
    if text.trim_start().starts_with('<') {
        let t = xml::parse(&text).map_err(|e| error(format!(":{e}")))?;
        Ok(Machine::unnamed(t, &stem(path), &shown.to_string()))
    } else {
        Machine::parse(&text).map_err(|e| error(format!(":{e}"))).map(|machine| machine.of_file(shown.to_string()))
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned())
}

/// Folders for data of users and of the system, most important first (XDG base directories).
fn data_dirs(var: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let given = |name: &str| var(name).filter(|v| !v.is_empty());
    let home = given("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| given("HOME").map(|home| PathBuf::from(home).join(".local/share")));
    let system = given("XDG_DATA_DIRS").unwrap_or_else(|| "/usr/local/share:/usr/share".into());
    // The specification has relative paths ignored.
    home.into_iter().chain(env::split_paths(&system)).filter(|dir| dir.is_absolute()).collect()
}

#[cfg(test)]
mod tests;
