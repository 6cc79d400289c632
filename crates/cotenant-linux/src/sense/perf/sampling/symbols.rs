//! From places in files to functions and lines, by the files' symbols and debug information.

use super::record::MappedFile;
use crate::bounded;
use crate::sense::executable;
use addr2line::Loader;
use object::{Object, ObjectSegment, ReadCache};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where distributions put debug information that was taken out of programs, by build id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// Where in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceLine {
    /// The function as the linker knows it; of inlined code the one that it was written in.
    pub function: Option<String>,
    /// The same as a reader knows it, with namespaces and parameters.
    pub shown: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
}

/// The symbols of a file.
pub struct Symbols {
    loader: Loader,
    /// First byte, bytes, and address of what is loaded.
    segments: Vec<(u64, u64, u64)>,
}

impl Symbols {
    /// Reads them.
    ///
    /// # Errors
    /// The file and what is wrong with it, as one line.
    pub fn of(file: &MappedFile) -> Result<Self, String> {
        let path = &file.path;
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let open = bounded::program(path).map_err(|e| wrong(&e))?;
        // Where the kernel and `stat` name devices alike, which they do not on overlays and btrfs.
        let meta = open.metadata().map_err(|e| wrong(&e))?;
        if device(&meta) == file.device && meta.ino() != file.inode {
            return Err(wrong(&"it was replaced by another file since it ran"));
        }
        let cache = ReadCache::new(open);
        let elf = object::File::parse(&cache).map_err(|e| wrong(&e))?;
        let segments = elf.segments().map(|s| (s.file_range().0, s.file_range().1, s.address())).collect();
        let with_lines = if elf.has_debug_symbols() { None } else { debug_file(path) };
        let loader = Loader::new(with_lines.as_ref().unwrap_or(path)).map_err(|e| wrong(&e))?;
        Ok(Self { loader, segments })
    }

    /// What stands at a place in the file. All is absent where nothing tells.
    pub fn at(&self, offset: u64) -> SourceLine {
        let segment =
            self.segments.iter().find(|(first, bytes, _)| (*first..first.saturating_add(*bytes)).contains(&offset));
        let Some((first, _, address)) = segment else { return SourceLine::default() };
        let address = address.wrapping_add(offset - first);
        let mut found = SourceLine::default();
        if let Ok(Some(frame)) = self.loader.find_frames(address).and_then(|mut frames| Ok(frames.next()?)) {
            if let Some(name) = &frame.function {
                found.function = name.raw_name().ok().map(std::borrow::Cow::into_owned);
                found.shown = name.demangle().ok().map(std::borrow::Cow::into_owned);
            }
            let place = frame.location;
            found.file = place.as_ref().and_then(|place| place.file).map(str::to_owned);
            found.line = place.and_then(|place| place.line).filter(|line| *line > 0);
        }
        if found.function.is_none()
            && let Some(name) = self.loader.find_symbol(address)
        {
            found.shown = Some(addr2line::demangle_auto(name.into(), None).into_owned());
            found.function = Some(name.to_owned());
        }
        found
    }
}

fn device(meta: &Metadata) -> (u32, u32) {
    (libc::major(meta.dev()), libc::minor(meta.dev()))
}

/// The file with the debug information of a program that has none itself.
fn debug_file(program: &Path) -> Option<PathBuf> {
    let id = executable::look(program)?.build_id;
    let (folder, name) = id.split_at_checked(2).filter(|(_, name)| !name.is_empty())?;
    Some(PathBuf::from(format!("{DEBUG_FILES}/{folder}/{name}.debug"))).filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[inline(never)]
    fn somewhere_known(x: u64) -> u64 {
        std::hint::black_box(x) * 3
    }

    /// Where an address of this program lies in its file.
    fn place(address: u64) -> (MappedFile, u64) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let found = maps.lines().find_map(|line| {
            let mut fields = line.split_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let [start, end] = [start, end].map(|n| u64::from_str_radix(n, 16).unwrap());
            let offset = u64::from_str_radix(fields.nth(1)?, 16).unwrap();
            let (major, minor) = fields.next()?.split_once(':')?;
            let device = [major, minor].map(|n| u32::from_str_radix(n, 16).unwrap()).into();
            let inode = fields.next()?.parse().ok()?;
            let file = MappedFile { path: fields.next()?.into(), device, inode };
            (start..end).contains(&address).then_some((file, offset + address - start))
        });
        found.unwrap()
    }

    #[test]
    fn a_function_of_this_program_is_found_with_its_line() {
        let first = line!() - 25;
        let (file, offset) = place(somewhere_known as *const () as u64);
        let found = Symbols::of(&file).unwrap().at(offset);
        assert!(found.shown.as_ref().is_some_and(|name| name.ends_with("somewhere_known")), "{found:?}");
        assert!(found.file.as_ref().is_some_and(|name| name.ends_with("symbols.rs")), "{found:?}");
        assert!(found.line.is_some_and(|line| (first - 10..first + 10).contains(&line)), "{found:?}");
        assert_eq!(Symbols::of(&file).unwrap().at(u64::MAX), SourceLine::default());
    }

    #[test]
    fn what_has_no_symbols_says_why() {
        let dir = TempDir::new("symbols");
        dir.write("script", "#!/bin/sh\n");
        let path = dir.path().join("script");
        let meta = std::fs::metadata(&path).unwrap();
        let (device, inode) = (device(&meta), meta.ino());
        let error = |inode| Symbols::of(&MappedFile { path: path.clone(), device, inode }).err().unwrap();
        assert!(error(inode).starts_with(&path.display().to_string()), "{}", error(inode));
        assert!(error(inode + 1).contains("replaced"), "{}", error(inode + 1));
        let gone = MappedFile { path: "/proc/nonexistent/program".into(), device, inode: 1 };
        assert!(Symbols::of(&gone).err().unwrap().contains("No such file"));
        // Cut anywhere in its headers: never a panic.
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for cut in [0, 3, 40, 64, 100, 500, 5_000] {
            dir.write("cut", &whole[..cut]);
            let path = dir.path().join("cut");
            let inode = std::fs::metadata(&path).unwrap().ino();
            if let Ok(symbols) = Symbols::of(&MappedFile { path, device, inode }) {
                assert_eq!(symbols.at(10).line, None);
            }
        }
    }
}
