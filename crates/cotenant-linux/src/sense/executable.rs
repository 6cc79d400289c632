//! Identity of a program's file: its GNU build id, size and time.

use crate::bounded;
use cotenant_model::profile::Executable;
use object::elf::{FileHeader32, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};
use std::cell::Cell;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Examines a file. `None` if there is no such regular file.
pub fn look(path: &Path) -> Option<Executable> {
    let path = fs::canonicalize(path).ok()?;
    let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
    Some(Executable {
        build_id: bounded::program(&path).ok().and_then(|file| build_id(&file)).unwrap_or_default(),
        path: path.to_string_lossy().into_owned(),
        bytes: meta.len(),
        modified_unix_s: meta.mtime(),
    })
}

/// The file that `execvp` would execute by that name.
pub fn find(command: &OsStr) -> Option<PathBuf> {
    if Path::new(command).components().count() > 1 || command.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(command)).filter(|path| path.is_file());
    }
    let runs = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(command)).find(runs)
}

/// Bytes of a program read for its build id: its header, its segment list (some ten of 56 bytes), and its notes.
const READ: u64 = 1 << 20;

/// The GNU build id of an ELF file, in hexadecimal.
pub fn build_id(file: &File) -> Option<String> {
    let (cache, left) = (ReadCache::new(file), Cell::new(READ));
    let parts = Parts { cache: &cache, left: &left };
    let id = match FileKind::parse(parts).ok()? {
        FileKind::Elf32 => id::<FileHeader32<Endianness>>(parts),
        FileKind::Elf64 => id::<FileHeader64<Endianness>>(parts),
        _ => None,
    }?;
    let digits = id.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from_digit(digit.into(), 16)).collect()
}

fn id<'a, Elf: FileHeader<Endian = Endianness>>(file: impl ReadRef<'a>) -> Option<&'a [u8]> {
    let header = Elf::parse(file).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, file).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, file) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
                return Some(note.desc());
            }
        }
    }
    None
}

/// Parts of a file, limited in total, because their lengths come from the file.
#[derive(Clone, Copy)]
struct Parts<'a> {
    cache: &'a ReadCache<&'a File>,
    left: &'a Cell<u64>,
}

impl<'a> ReadRef<'a> for Parts<'a> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.left.set(self.left.get().checked_sub(size).ok_or(())?);
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.cache.read_bytes_at_until(range, delimiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::confined;
    use cotenant_testing::{TempDir, elf};
    use std::process::Command;
    use std::time::Duration;

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
        // Truncated anywhere in its headers, and with any byte of them changed: never a panic, at worst no id.
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

    /// A program decides what stands in its file, also while it is looked up in the store.
    #[test]
    fn of_a_crafted_program_no_more_is_read_than_its_notes() {
        let dir = TempDir::new("crafted");
        let path = dir.path().join("program");
        let id_within = |memory: u64, bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
            let id = || look(&path).unwrap().build_id.into_bytes();
            confined(memory, Duration::from_secs(60), id).map(|id| String::from_utf8(id).unwrap())
        };
        let note = [&[4_u32, 4, 3].map(u32::to_le_bytes).concat()[..], b"GNU\0\x0a\x1b\x2c\x3d"].concat();
        let with = |note: &[u8]| {
            let mut bytes = elf(&[(".symtab", 2, 0, &[], 512 << 20), (".note", 7, 0, note, 0)]);
            let at = bytes.windows(note.len()).position(|window| window == note).unwrap() as u64;
            bytes[64..72].copy_from_slice(&[4_u32, 4].map(u32::to_le_bytes).concat());
            bytes[72..120].copy_from_slice(&[at, 0, 0, note.len() as u64, 0, 4].map(u64::to_le_bytes).concat());
            bytes
        };
        assert_eq!(id_within(16 << 20, &with(&note)).as_deref(), Ok("0a1b2c3d"), "its table of symbols has 512 MiB");
        // Notes of 512 MiB, and 10 million segments: refused even with enough memory.
        let mut long = with(&note);
        long[96..104].copy_from_slice(&(512_u64 << 20).to_le_bytes());
        assert_eq!(id_within(4 << 30, &long).as_deref(), Ok(""));
        let mut many = with(&note);
        many[56..58].copy_from_slice(&[0xff; 2]);
        let sections = u64::from_le_bytes(many[40..48].try_into().unwrap()) as usize;
        many[sections + 44..sections + 48].copy_from_slice(&10_000_000_u32.to_le_bytes());
        assert_eq!(id_within(4 << 30, &many).as_deref(), Ok(""));
    }

    #[test]
    fn commands_are_found_as_a_shell_finds_them() {
        assert!(find(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(find(OsStr::new("/proc/nonexistent/sh")), None);
        assert_eq!(find(OsStr::new("no-such-command-anywhere")), None);
    }
}
