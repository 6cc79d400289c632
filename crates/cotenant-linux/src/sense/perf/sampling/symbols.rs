//! From places in files to functions and lines, by the files' symbols and debug information.
//!
//! An observed program controls its file. Parsers of debug information recurse as deeply, and take as much memory and
//! time, as it demands; so a child process reads it ([`confined`]).

use super::record::MappedFile;
use crate::bounded;
use crate::sense::executable;
use crate::sys::{self, Failed, confined};
use addr2line::gimli::{self, DwarfPackage, EndianSlice, RunTimeEndian};
use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use object::{Object, ObjectSection, ObjectSegment, SymbolMap, SymbolMapName};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Distributions' folder of separate debug information, by build id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// Memory for one file's symbols, besides mapped parts. A program of 119 MB with debug information takes 94 MB with
/// that; compressed sections take their whole length.
const MEMORY: u64 = 1 << 30;
/// Time for one file. One of 119 MB takes 0.7 s, without optimisation.
const TIME: Duration = Duration::from_secs(60);
/// Limit of a name in bytes: those of templates have thousands.
const NAME: usize = 64 << 10;

/// A place in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLine {
    /// The function's linker name; for inlined code the one of its source.
    pub function: Option<String>,
    /// The same for readers, with namespaces and parameters.
    pub shown: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
    /// The enclosing symbol's linker name: for inlined code the function that contains it.
    pub symbol: Option<String>,
}

/// Source lines of these places of a file, in their order, if known until then. Everything is absent without debug
/// information.
///
/// # Errors
/// The file and its fault, as one line.
pub fn source_lines(file: &MappedFile, offsets: &[u64], until: Instant) -> Result<Vec<SourceLine>, String> {
    let time = TIME.min(until.saturating_duration_since(Instant::now()));
    within(file, offsets, MEMORY, time)
}

fn within(file: &MappedFile, offsets: &[u64], memory: u64, time: Duration) -> Result<Vec<SourceLine>, String> {
    let read = || Symbols::of(file).map(|symbols| offsets.iter().map(|at| symbols.at(*at)).collect::<Vec<_>>());
    let answer = confined(memory, time, || serde_json::to_vec(&read()).unwrap_or_else(|_| Vec::new())); // which is no answer
    let wrong = |why: String| format!("{}: {why}", file.path.display());
    let answer = answer.map_err(|why| {
        wrong(match why {
            Failed::Time => format!("reading its symbols takes more than {} s", time.as_secs()),
            Failed::Memory => format!("reading its symbols takes more than {} MiB", memory >> 20),
            Failed::Crash => "its symbols are damaged, or too many".to_owned(),
            Failed::Start => "no process could be started that reads it".to_owned(),
        })
    })?;
    let lines: Result<Vec<SourceLine>, String> = serde_json::from_slice(&answer).map_err(|e| wrong(e.to_string()))?;
    lines.map_err(wrong)
}

/// Bytes of a file, valid for the lifetime of the reading child.
type Bytes = EndianSlice<'static, RunTimeEndian>;
type Dwarf = gimli::Dwarf<Bytes>;

/// The symbols of a file.
struct Symbols {
    /// First byte, bytes, and address of a loaded part.
    segments: Vec<(u64, u64, u64)>,
    names: SymbolMap<SymbolMapName<'static>>,
    lines: Context<Bytes>,
    /// Separate debug information in one file.
    package: Option<DwarfPackage<Bytes>>,
}

impl Symbols {
    fn of(file: &MappedFile) -> Result<Self, String> {
        let open = bounded::program(&file.path).map_err(|e| e.to_string())?;
        // On file systems where the kernel and `stat` number devices alike, unlike overlays and btrfs.
        let meta = open.metadata().map_err(|e| e.to_string())?;
        if device(&meta) == file.device && meta.ino() != file.inode {
            return Err("it was replaced by another file since it ran".to_owned());
        }
        Self::read(&file.path, &open).map_err(|e| e.to_string())
    }

    fn read(path: &Path, open: &File) -> Result<Self, Box<dyn Error>> {
        let elf = parse(open)?;
        let segments = elf.segments().map(|s| (s.file_range().0, s.file_range().1, s.address())).collect();
        let separate = if elf.has_debug_symbols() { None } else { debug_file(open) };
        let elf = separate.map_or(Ok(elf), |path| parse(&bounded::program(&path)?))?;
        let mut dwarf = Dwarf::load(|id| section(&elf, Some(id.name())))?;
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let package = path.with_extension(match path.extension() {
            Some(extension) => [extension, OsStr::new("dwp")].join(OsStr::new(".")),
            None => "dwp".into(),
        });
        Ok(Self {
            segments,
            names: elf.symbol_map(),
            lines: Context::from_dwarf(dwarf)?,
            package: read_package(&package),
        })
    }

    /// Source line of a place in the file.
    fn at(&self, offset: u64) -> SourceLine {
        let segment =
            self.segments.iter().find(|(first, bytes, _)| (*first..first.saturating_add(*bytes)).contains(&offset));
        let Some((first, _, address)) = segment else { return SourceLine::default() };
        let address = address.wrapping_add(offset - first);
        let mut found = SourceLine::default();
        let mut frames = self.lines.find_frames(address);
        let frames = loop {
            match frames {
                LookupResult::Output(frames) => break frames,
                LookupResult::Load { load, continuation } => frames = continuation.resume(self.split(&load)),
            }
        };
        if let Ok(Some(frame)) = frames.and_then(|mut frames| frames.next()) {
            if let Some(name) = &frame.function {
                found.function = name.raw_name().ok().map(Cow::into_owned);
                found.shown = found.function.as_deref().map(|function| readable(function, name.language));
            }
            let place = frame.location;
            found.file = place.as_ref().and_then(|place| place.file).map(str::to_owned);
            found.line = place.and_then(|place| place.line).filter(|line| *line > 0);
        }
        found.symbol = self.names.containing(address).map(|symbol| symbol.name().to_owned());
        if found.function.is_none()
            && let Some(symbol) = &found.symbol
        {
            found.shown = Some(readable(symbol, None));
            found.function = Some(symbol.clone());
        }
        for name in [&mut found.function, &mut found.shown, &mut found.file, &mut found.symbol] {
            name.take_if(|name| name.len() > NAME);
        }
        found
    }

    /// The debug information of a unit in another file.
    fn split(&self, load: &SplitDwarfLoad<Bytes>) -> Option<Arc<Dwarf>> {
        if let Some(unit) = self.package.as_ref().and_then(|package| package.find_cu(load.dwo_id, &load.parent).ok()?) {
            return Some(Arc::new(unit));
        }
        let part = |bytes: Option<Bytes>| bytes.map(|bytes| PathBuf::from(OsStr::from_bytes(bytes.slice())));
        let path = part(load.comp_dir).unwrap_or_default().join(part(load.path)?);
        let elf = parse_beside(&path)?;
        let mut dwarf = Dwarf::load(|id| section(&elf, id.dwo_name())).ok()?;
        let unit = dwarf.unit(dwarf.units().next().ok()??).ok()?;
        if unit.dwo_id != Some(load.dwo_id) {
            return None;
        }
        dwarf.make_dwo(&load.parent);
        Some(Arc::new(dwarf))
    }
}

/// A symbol for readers, with namespaces and parameters.
pub fn shown(symbol: &str) -> String {
    readable(symbol, None)
}

/// Without the common prefix of manglings, `f` is a function of C, not `float`.
fn readable(name: &str, language: Option<gimli::DwLang>) -> String {
    if name.starts_with('_') { addr2line::demangle_auto(name.into(), language).into_owned() } else { name.to_owned() }
}

fn read_package(path: &Path) -> Option<DwarfPackage<Bytes>> {
    let elf = parse_beside(path)?;
    let none = EndianSlice::new(&[], endian(&elf));
    DwarfPackage::load(|id| section(&elf, id.dwo_name()).map_err(|_| gimli::Error::Io), none).ok()
}

/// A file named by a program, or derived from its name: a device is not even opened.
fn parse_beside(path: &Path) -> Option<object::File<'static>> {
    fs::metadata(path).ok().filter(Metadata::is_file)?;
    parse(&bounded::program(path).ok()?).ok()
}

fn parse(file: &File) -> Result<object::File<'static>, Box<dyn Error>> {
    let bytes = usize::try_from(file.metadata()?.len())?;
    // An empty file cannot be mapped.
    let bytes = if bytes == 0 { &[] } else { sys::Mapping::new(file, bytes, false)?.forever() };
    Ok(object::File::parse(bytes)?)
}

fn section(elf: &object::File<'static>, name: Option<&str>) -> object::Result<Bytes> {
    let found = name.and_then(|name| elf.section_by_name(name));
    let data = found.map_or(Ok(Cow::Borrowed(&[][..])), |section| section.uncompressed_data())?;
    let data = match data {
        Cow::Borrowed(data) => data,
        Cow::Owned(data) => data.leak(),
    };
    Ok(EndianSlice::new(data, endian(elf)))
}

fn endian(elf: &object::File<'_>) -> RunTimeEndian {
    if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big }
}

fn device(meta: &Metadata) -> (u32, u32) {
    (libc::major(meta.dev()), libc::minor(meta.dev()))
}

/// The file with a program's separate debug information.
fn debug_file(program: &File) -> Option<PathBuf> {
    let id = executable::build_id(program)?;
    let (folder, name) = id.split_at_checked(2).filter(|(_, name)| !name.is_empty())?;
    Some(PathBuf::from(format!("{DEBUG_FILES}/{folder}/{name}.debug"))).filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::{TempDir, elf};

    #[inline(never)]
    fn somewhere_known(x: u64) -> u64 {
        std::hint::black_box(x) * 3
    }

    /// The place of an address of this program in its file.
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
        let later = Instant::now() + TIME;
        let found = source_lines(&file, &[u64::MAX, offset], later).unwrap();
        assert_eq!(found[0], SourceLine::default());
        let found = &found[1];
        assert!(found.shown.as_ref().is_some_and(|name| name.ends_with("somewhere_known")), "{found:?}");
        assert!(found.file.as_ref().is_some_and(|name| name.ends_with("symbols.rs")), "{found:?}");
        assert!(found.line.is_some_and(|line| (first - 10..first + 10).contains(&line)), "{found:?}");
        let late = source_lines(&file, &[offset], Instant::now()).unwrap_err();
        assert!(late.ends_with("takes more than 0 s"), "{late}");
    }

    #[test]
    fn what_has_no_symbols_says_why() {
        let dir = TempDir::new("symbols");
        dir.write("script", "#!/bin/sh\n");
        let path = dir.path().join("script");
        let meta = std::fs::metadata(&path).unwrap();
        let (device, inode) = (device(&meta), meta.ino());
        let read = |path: &Path, inode| {
            let file = MappedFile { path: path.to_owned(), device, inode };
            source_lines(&file, &[10], Instant::now() + TIME)
        };
        let error = |inode| read(&path, inode).unwrap_err();
        assert!(error(inode).starts_with(&path.display().to_string()), "{}", error(inode));
        assert!(error(inode + 1).contains("replaced"), "{}", error(inode + 1));
        assert!(read(Path::new("/proc/nonexistent/program"), 1).unwrap_err().contains("No such file"));
        // Truncated anywhere in its headers: never a panic.
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for cut in [0, 3, 40, 64, 100, 500, 5_000] {
            dir.write("cut", &whole[..cut]);
            let path = dir.path().join("cut");
            let inode = std::fs::metadata(&path).unwrap().ino();
            match read(&path, inode) {
                Ok(lines) => assert_eq!(lines[0].line, None),
                Err(why) => assert!(!why.contains("damaged"), "it did not crash: {why}"),
            }
        }
    }

    const PROGBITS: u32 = 1;
    const COMPRESSED: u64 = 1 << 11;

    /// The source line of a program's 16th byte, within this many MiB.
    fn found(dir: &TempDir, bytes: &[u8], mib: u64) -> Result<SourceLine, String> {
        dir.write("program", bytes);
        let file = MappedFile { path: dir.path().join("program"), device: (0, 0), inode: 0 };
        Ok(within(&file, &[16], mib << 20, TIME)?.remove(0))
    }

    /// Debug information: a unit over the first page with these further attributes, and its content. Codes above 1 are
    /// those of `more`.
    fn dwarf(attributes: &[u8], values: &[u8], more: &[u8], children: &[u8]) -> [Vec<u8>; 2] {
        const PAGE: [[u8; 8]; 2] = [0x1000_u64.to_le_bytes(); 2];
        let abbreviations = [&[1, 0x11, 1, 0x11, 1, 0x12, 7], attributes, &[0, 0], more, &[0]].concat();
        let unit = [&[4, 0, 0, 0, 0, 0, 8, 1], &PAGE.concat()[..], values, children].concat();
        [abbreviations, [&(unit.len() as u32).to_le_bytes()[..], &unit].concat()]
    }

    fn with_debug([abbreviations, info]: &[Vec<u8>; 2]) -> Vec<u8> {
        elf(&[(".debug_abbrev", PROGBITS, 0, abbreviations, 0), (".debug_info", PROGBITS, 0, info, 0)])
    }

    /// The function "f" with these entries; code 3 is inlined code with entries of its own.
    fn function(children: &[u8]) -> [Vec<u8>; 2] {
        let page = [0x1000_u64.to_le_bytes(); 2].concat();
        let more = [2, 0x2e, 1, 0x03, 8, 0x11, 1, 0x12, 7, 0, 0, 3, 0x1d, 1, 0, 0];
        dwarf(&[], &[], &more, &[&[2, b'f', 0], &page[..], children, &[0, 0]].concat())
    }

    #[test]
    fn debug_information_that_nests_without_end_ends_nobody() {
        let dir = TempDir::new("deep");
        let nested = |depth| with_debug(&function(&[vec![3; depth], vec![0; depth]].concat()));
        let named = found(&dir, &nested(3), 64).unwrap();
        assert_eq!([named.function, named.shown].each_ref().map(Option::as_deref), [Some("f"); 2], "no float");
        let why = found(&dir, &nested(4_000_000), 512).unwrap_err();
        assert!(why.ends_with("its symbols are damaged, or too many"), "{why}");
    }

    #[test]
    fn what_is_small_only_on_disk_takes_no_memory() {
        let dir = TempDir::new("inflates");
        // 1024 times: a zero, 128 Ki times. At the end of memory, it is reported as invalid zstd.
        let block = |last: u32| (last | 1 << 1 | (128 << 10) << 3).to_le_bytes();
        let blocks: Vec<u8> =
            (1..=1024).flat_map(|n| block(u32::from(n == 1024)).into_iter().take(3).chain([0])).collect();
        let compressed = |kind: u32, claimed: u64, data: &[u8]| {
            let head = [kind, 0].map(u32::to_le_bytes).concat();
            [head, [claimed, 1].map(u64::to_le_bytes).concat(), data.to_vec()].concat()
        };
        let bomb = compressed(2, 1 << 20, &[&[0x28, 0xb5, 0x2f, 0xfd, 0, 0x40], &blocks[..]].concat());
        let claim = compressed(1, 1 << 40, &[0x78, 0x9c, 3, 0, 0, 0, 0, 1]);
        for (section, says) in [(bomb, "Invalid zstd"), (claim, "allocation failed")] {
            let bytes = elf(&[(".debug_info", PROGBITS, COMPRESSED, &section, 0)]);
            let why = found(&dir, &bytes, 64).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn symbols_take_no_more_than_they_may() {
        let dir = TempDir::new("many");
        let symbol = |name: u32, length: u64| {
            [&name.to_le_bytes()[..], &[0x12, 0, 1, 0], &0x1000_u64.to_le_bytes(), &length.to_le_bytes()].concat()
        };
        let names = [&b"\0f\0"[..], &b"x".repeat(NAME + 1), b"\0"].concat();
        let with = |table: &[u8], claimed| {
            let (strings, table) = ((".strtab", 3, 0, &names[..], 0), [&[0; 24], table].concat());
            elf(&[strings, (".symtab", 2, 0, &table, claimed)])
        };
        assert_eq!(found(&dir, &with(&symbol(1, 99), 0), 16).unwrap().function.as_deref(), Some("f"));
        assert_eq!(found(&dir, &with(&symbol(3, 99), 0), 16), Ok(SourceLine::default()), "a name without end");
        let why = found(&dir, &with(&symbol(1, 99).repeat(1 << 20), 0), 16).unwrap_err();
        assert!(why.ends_with("takes more than 16 MiB"), "{why}");
        // 2^32 of them, beyond the end of their file.
        let why = found(&dir, &with(&symbol(1, 99), 24 << 32), 16).unwrap_err();
        assert!(why.contains("symbol"), "{why}");
        // A sparse table, which takes none of our memory.
        let path = dir.path().join("program");
        dir.write("program", with(&symbol(1, 99), 24 << 23));
        File::options().write(true).open(&path).unwrap().set_len(300 << 20).unwrap();
        let holes = within(&MappedFile { path, device: (0, 0), inode: 0 }, &[16], 16 << 20, TIME);
        assert!(holes.is_ok(), "{holes:?}");
    }

    #[test]
    fn pipes_in_the_place_of_debug_information_are_not_waited_for() {
        let dir = TempDir::new("beside");
        let pipe = |name: &str| {
            let path = dir.path().join(name);
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        };
        pipe("program.dwp");
        pipe("split");
        assert_eq!(found(&dir, &with_debug(&function(&[])), 64).unwrap().function.as_deref(), Some("f"));
        // The unit refers to that file for its rest: name, folder and number.
        let attributes = [0xb0, 0x42, 8, 0x1b, 8, 0xb1, 0x42, 7];
        let values = [b"split\0", dir.path().as_os_str().as_bytes(), &[0; 9]].concat();
        assert_eq!(found(&dir, &with_debug(&dwarf(&attributes, &values, &[], &[0])), 64), Ok(SourceLine::default()));
    }
}
