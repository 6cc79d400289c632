//! Files that the user named, read as a whole.

use anyhow::Result;
use cotenant_cli::usage;
use cotenant_linux::bounded::{self, Limit};
use cotenant_linux::given;
use cotenant_linux::sys;
use cotenant_model::profile::{self, AppProfile, MachineProfile};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The text of a file that the user named.
///
/// # Errors
/// Names the file, and why it cannot be read.
pub fn read(path: &Path) -> Result<String> {
    given::text(path).map_err(|e| usage(format!("{}: {e}; check the path", path.display())))
}

/// Why a file is not trusted: its writers control programs and commands (`cmd:`). Only root and this user may be among
/// them.
///
/// # Errors
/// The fault, and the remedy.
pub fn trusted(meta: &Metadata) -> io::Result<()> {
    let ours = sys::euid();
    // A user's own group is trusted, as with umask 002.
    let others = if ours != 0 && meta.gid() == sys::egid() { 0o002 } else { 0o022 };
    let why = match () {
        () if ![0, ours].contains(&meta.uid()) => {
            let user = sys::user_name(meta.uid());
            format!("it belongs to user {user}, who is not obeyed; chown {ours} it, or name another file")
        }
        () if meta.mode() & others != 0 => "others may write to it; chmod go-w it".to_owned(),
        () => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// The text of a settings file. Root only trusts its own, wherever `HOME` leads and whatever is named.
///
/// # Errors
/// As [`read`], and as [`trusted`].
pub fn read_settings(path: &Path) -> Result<String> {
    // A pipe was created by the caller.
    let may = |meta: &Metadata| if sys::euid() == 0 && meta.is_file() { trusted(meta) } else { Ok(()) };
    given::text_if(path, may).map_err(|e| usage(format!("{}: {e}", path.display())))
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
/// Names the file and the place of the fault.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    /// `sudo` may leave root with another user's `HOME`.
    #[test]
    fn root_obeys_no_settings_of_others() {
        if sys::euid() != 0 {
            eprintln!("skipped: giving a file away takes root");
            return;
        }
        let path = std::env::temp_dir().join(format!("cotenant-settings-{}.toml", std::process::id()));
        fs::write(&path, "mode = \"observe\"\n").unwrap();
        assert!(read_settings(&path).is_ok());
        let refused = |why: &str| {
            let said = read_settings(&path).unwrap_err().to_string();
            assert!(said.starts_with(&format!("{}: {why}", path.display())), "{said}");
        };
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        refused("others may write to it; chmod go-w it");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(65_534), None).unwrap();
        refused("it belongs to user nobody, who is not obeyed; chown 0 it, or name another file");
        assert!(read(&path).is_ok(), "what is no settings file decides nothing");
        fs::remove_file(&path).unwrap();
    }
}
