//! The calibrated profile of this machine: its file and its validity.

use crate::files::read_profile;
use crate::replace::{lock, replace};
use anyhow::{Context, Result};
use cotenant_cli::messages::tell;
use cotenant_cli::usage;
use cotenant_linux::bounded::{self, Limit};
use cotenant_linux::sys;
use cotenant_model::Topology;
use cotenant_model::profile::calibration::{self, Stamp, fingerprint};
use cotenant_model::profile::{Contentiousness, MachineProfile};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{SystemTime, UNIX_EPOCH};

/// Default path of this machine's profile: below the data folder, by machine, because home folders are shared.
pub fn default_path() -> Option<PathBuf> {
    Some(data_folder()?.join(format!("machines/{}.toml", machine_id()?)))
}

/// The folder of Cotenant's data for the user to read and edit. Root has none in a folder of another user, under any
/// `HOME`, since measurements decide how programs are treated.
pub fn data_folder() -> Option<PathBuf> {
    static TOLD: Once = Once::new();
    let folder = cotenant_cli::xdg("XDG_DATA_HOME", ".local/share")?.join("cotenant");
    if sys::euid() != 0 || is_roots(&folder) {
        return Some(folder);
    }
    let what = "is not used, since others may write there; chown 0 it and chmod go-w it, or set XDG_DATA_HOME";
    TOLD.call_once(|| tell(format!("{}: {what}", folder.display())));
    None
}

/// Whether only root can write to a folder, or make it if it is missing.
fn is_roots(folder: &Path) -> bool {
    let there = folder.ancestors().find_map(|path| Some((path, fs::metadata(path).ok()?)));
    there.is_some_and(|(path, meta)| {
        let only_adds = path != folder && meta.mode() & 0o1000 != 0;
        meta.uid() == 0 && (meta.mode() & 0o022 == 0 || only_adds)
    })
}

/// The name of this machine in files.
pub fn machine_id() -> Option<String> {
    ["/etc/machine-id", "/proc/sys/kernel/hostname"].into_iter().find_map(|path| {
        let text = bounded::text(path, Limit::Value).ok()?;
        let id: String = text.trim().chars().filter(char::is_ascii_alphanumeric).take(12).collect();
        (!id.is_empty()).then_some(id)
    })
}

/// The calibrated profile of this machine; empty without one.
///
/// # Errors
/// The file is damaged.
pub fn load(topology: &Topology) -> Result<(MachineProfile, Vec<String>)> {
    match default_path().filter(|path| path.exists()) {
        None => Ok((MachineProfile::default(), Vec::new())),
        Some(path) => {
            let profile = read_profile(&path)?;
            let stale = stale(&profile, topology, &path);
            Ok((profile, stale))
        }
    }
}

/// The content of a file, which may be missing or a device.
///
/// # Errors
/// It is damaged.
pub fn read(path: &Path) -> Result<MachineProfile> {
    if path.is_file() { read_profile(path) } else { Ok(MachineProfile::default()) }
}

/// Changes the profile in a file atomically, from the result of [`read`]: other writers wait, and nothing of it is
/// lost.
///
/// # Errors
/// Errors of `change`; errors of writing it.
pub fn update(path: &Path, change: impl FnOnce(Result<MachineProfile>) -> Result<MachineProfile>) -> Result<()> {
    let _lock = lock(path);
    let text = calibration::write(&change(read(path))?);
    replace(path, text.as_bytes())
        .with_context(|| format!("{}: the profile cannot be written; name another file with -o", path.display()))
}

/// Whether a calibrated profile was made on another machine, or on this one before something changed: a remark for
/// each.
pub fn stale(profile: &MachineProfile, topology: &Topology, path: &Path) -> Vec<String> {
    let Some(record) = &profile.calibration else { return Vec::new() };
    let changes = record.stamp.differences(&stamp(topology));
    let remark = |change| format!("{} is stale: the {change}; calibrate again", path.display());
    changes.into_iter().map(remark).collect()
}

/// The machine with its profile's memory latencies instead of the firmware's distances.
///
/// # Errors
/// If the user's latencies belong to another machine.
pub fn measured(profile: &MachineProfile, topology: Topology, file: Option<&Path>) -> Result<Topology> {
    let (topology, note) = profile.measured(topology).map_err(|why| {
        let file = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
        usage(format!(
            "{file}the memory latencies of the profile are not those of this machine: {why}; correct [memory_latency]"
        ))
    })?;
    note.iter().for_each(tell);
    Ok(topology)
}

/// This machine's contentiousness model, if significant; and why not, if there is another.
pub fn contentiousness(profile: &MachineProfile, topology: &Topology) -> (Option<Contentiousness>, Option<String>) {
    let Some(model) = profile.contentiousness.as_deref() else { return (None, None) };
    let stale = model.stamp.differences(&stamp(topology)).into_iter().next().map(|change| format!("the {change}"));
    match stale.or_else(|| model.doubt()) {
        None => (Some(model.clone()), None),
        Some(why) => {
            let remedy = "fit it again with cotenant calibrate --contentiousness";
            (None, Some(format!("this machine's contentiousness model is not used: {why}; {remedy}")))
        }
    }
}

/// The scope of a profile measured now.
pub fn stamp(topology: &Topology) -> Stamp {
    // Unreadable parts are empty in the stamp.
    let text = |path, limit| bounded::text(path, limit).unwrap_or_else(|_| String::new());
    let info = text("/proc/cpuinfo", Limit::Machine);
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
        value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
    };
    let kernel = text("/proc/sys/kernel/osrelease", Limit::Value);
    Stamp {
        date: crate::dates::date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
        processor: field("model name"),
        kernel: kernel.trim().to_owned(),
        microcode: field("microcode"),
        topology: fingerprint(topology),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    /// Promise daemon/data-folder: Root uses no data folder in which other users can write.
    #[test]
    fn root_keeps_nothing_in_folders_of_others() {
        if sys::euid() != 0 {
            return eprintln!("skipped: only root can give folders away");
        }
        let home = std::env::temp_dir().join(format!("cotenant-data-folder-{}", std::process::id()));
        let own = home.join(".local/share/cotenant");
        fs::create_dir(&home).unwrap();
        let change = |path: &Path, user, mode| {
            chown(path, Some(user), None).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        change(&home, 0, 0o755);
        assert!(is_roots(&own), "it is yet to be made");
        change(&home, 0, 0o1777);
        assert!(is_roots(&own), "others may only add to that");
        change(&home, 65_534, 0o755);
        assert!(!is_roots(&own), "somebody else's home");
        fs::create_dir_all(&own).unwrap();
        assert!(is_roots(&own));
        for (user, mode) in [(65_534, 0o755), (0, 0o777), (0, 0o1777)] {
            change(&own, user, mode);
            assert!(!is_roots(&own), "{user} {mode:o}");
        }
        fs::remove_dir_all(home).unwrap();
    }
}
