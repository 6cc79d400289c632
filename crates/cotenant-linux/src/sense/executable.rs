//! Which program a file is: its GNU build id, size and time.

use cotenant_model::profile::Executable;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes of notes that are looked through; a build id is a note of 36 bytes.
const MOST_NOTES: u64 = 64 << 10;
/// Program headers that are looked through.
const MOST_HEADERS: u64 = 1 << 10;
const PT_NOTE: u64 = 4;
const NT_GNU_BUILD_ID: u64 = 3;

/// Looks at a file. `None` where there is no such regular file.
pub fn look(path: &Path) -> Option<Executable> {
    let path = fs::canonicalize(path).ok()?;
    let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
    Some(Executable {
        build_id: File::open(&path).ok().and_then(|file| build_id(&file)).unwrap_or_default(),
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

/// The GNU build id of an ELF file, in hexadecimal: the description of the note `GNU` of type 3 (System V ABI, figure
/// 2-3). Files of the other byte order have none: nothing here executes them.
fn build_id(file: &File) -> Option<String> {
    let read = |at: u64, len: u64| {
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    };
    let header = read(0, 64)?;
    let wide = match (&header[..4], header[4], header[5]) {
        (b"\x7fELF", 1, 1) if cfg!(target_endian = "little") => false,
        (b"\x7fELF", 2, 1) if cfg!(target_endian = "little") => true,
        _ => return None,
    };
    let word = |bytes: &[u8], at: usize, len: usize| {
        let field = bytes.get(at..at + len)?;
        Some(field.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    // Offsets of e_phoff, e_phentsize and e_phnum, then of p_offset and p_filesz, in the two classes.
    let [phoff, entry, count] = if wide { [(32, 8), (54, 2), (56, 2)] } else { [(28, 4), (42, 2), (44, 2)] };
    let [offset, size] = if wide { [(8, 8), (32, 8)] } else { [(4, 4), (16, 4)] };
    let (first, each) = (word(&header, phoff.0, phoff.1)?, word(&header, entry.0, entry.1)?);
    for i in 0..word(&header, count.0, count.1)?.min(MOST_HEADERS) {
        let segment = read(first.checked_add(i * each)?, each)?;
        if word(&segment, 0, 4)? != PT_NOTE {
            continue;
        }
        let notes = read(word(&segment, offset.0, offset.1)?, word(&segment, size.0, size.1)?.min(MOST_NOTES))?;
        let mut at = 0;
        while let (Some(name), Some(len), Some(kind)) =
            (word(&notes, at, 4), word(&notes, at + 4, 4), word(&notes, at + 8, 4))
        {
            let padded = |len: u64| (len as usize).min(MOST_NOTES as usize).next_multiple_of(4);
            let start = at + 12 + padded(name);
            let description = notes.get(start..start + (len as usize).min(MOST_NOTES as usize));
            if kind == NT_GNU_BUILD_ID && notes.get(at + 12..at + 16) == Some(b"GNU\0") {
                let hex = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16));
                return description?.iter().flat_map(hex).collect();
            }
            at = start + padded(len);
        }
    }
    None
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
