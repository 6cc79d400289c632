//! Which program a file is: its GNU build id, size and time.

use cotenant_model::profile::Executable;
use object::{Object, ReadCache};
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Looks at a file. `None` where there is no such regular file.
pub fn look(path: &Path) -> Option<Executable> {
    let path = fs::canonicalize(path).ok()?;
    let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
    Some(Executable {
        build_id: File::open(&path).ok().and_then(build_id).unwrap_or_default(),
        path: path.to_string_lossy().into_owned(),
        bytes: meta.len(),
        modified_unix_s: meta.mtime(),
    })
}

/// The file that would be executed by that name, as `execvp` finds it.
pub fn find(command: &OsStr) -> Option<PathBuf> {
    if Path::new(command).components().count() > 1 || command.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(command)).filter(|path| path.is_file());
    }
    let runs = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(command)).find(runs)
}

/// The GNU build id of an ELF file, in hexadecimal.
fn build_id(file: File) -> Option<String> {
    let cache = ReadCache::new(file);
    let id = object::File::parse(&cache).ok()?.build_id().ok()??.to_owned();
    let digits = id.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from_digit(digit.into(), 16)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_build_id_is_what_readelf_says() {
        let own = env::current_exe().unwrap();
        let Ok(out) = Command::new("readelf").env("LC_ALL", "C").arg("-n").arg(&own).output() else {
            eprintln!("skipped: there is no readelf");
            return;
        };
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let theirs = text.split("Build ID: ").nth(1).map(|rest| rest.split_whitespace().next().unwrap_or_default());
        let seen = look(&own).unwrap();
        assert_eq!(Some(seen.build_id.as_str()).filter(|id| !id.is_empty()), theirs, "{text}");
        assert_eq!(seen.bytes, fs::metadata(&own).unwrap().len());
    }

    #[test]
    fn what_is_no_program_has_no_build_id() {
        let folder = env::temp_dir().join(format!("cotenant-executable-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let whole = fs::read(env::current_exe().unwrap()).unwrap();
        // Cut anywhere in its headers, and with any byte of them turned: never a panic, at most no id.
        for cut in [0, 3, 40, 64, 100, 500, 1_000] {
            fs::write(folder.join("cut"), &whole[..cut]).unwrap();
            assert!(look(&folder.join("cut")).is_some(), "{cut}");
        }
        for byte in 0..200 {
            let mut bytes = whole[..4_096.min(whole.len())].to_vec();
            bytes[byte] ^= 0xff;
            fs::write(folder.join("turned"), &bytes).unwrap();
            assert!(look(&folder.join("turned")).is_some(), "{byte}");
        }
        fs::write(folder.join("script"), "#!/bin/sh\n").unwrap();
        assert_eq!(look(&folder.join("script")).unwrap().build_id, "");
        assert_eq!((look(&folder), look(Path::new("/proc/nonexistent"))), (None, None));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn commands_are_found_as_a_shell_finds_them() {
        assert!(find(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(find(OsStr::new("/proc/nonexistent/sh")), None);
        assert_eq!(find(OsStr::new("no-such-command-anywhere")), None);
    }
}
