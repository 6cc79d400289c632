//! Values as in `/proc` and sysfs, and durations as users write them. CPU lists and masks are in [`crate::cpuset`].

use crate::{CpuId, CpuSet};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;
use toml::Spanned;
use toml::de::DeTable;

/// A text with another content than expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}")]
pub struct ValueError {
    text: String,
    expected: &'static str,
}

fn error(text: &str, expected: &'static str) -> ValueError {
    ValueError { text: text.trim().chars().take(60).collect(), expected }
}

/// A fault in a text, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct Located {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what was expected.
    pub message: String,
}

impl Located {
    /// At a byte offset of the text.
    pub fn at(text: &str, offset: usize, message: impl Into<String>) -> Self {
        let (line, column) = position(text, offset);
        Self { line, column, message: message.into() }
    }

    /// At the value of a key of a TOML text, by its path; at the beginning of the text without such a value.
    pub fn at_key(text: &str, path: &[&str], message: String) -> Self {
        let table = DeTable::parse(text).map(Spanned::into_inner).unwrap_or_default();
        let mut keys = path.iter();
        let first = keys.next().and_then(|key| table.get(*key));
        let value = keys.fold(first, |value, key| value?.get_ref().get(*key));
        Self::at(text, value.map_or(0, |value| value.span().start), message)
    }

    /// From the TOML parser.
    pub fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        Self::at(text, error.span().map_or(0, |span| span.start), toml_message(text, error))
    }
}

/// An error about text that is not the expected TOML, in one line.
pub fn toml_message(text: &str, error: &toml::de::Error) -> String {
    let begin: String = text.chars().filter(|c| !c.is_whitespace() && *c != '\u{feff}').take(2).collect();
    if begin.starts_with('{') || begin == "[{" {
        return "this is JSON, and TOML is expected here".to_owned();
    }
    // The parser's words for alternatives.
    error.message().replace('\n', " ").replace("wanted string or table", "expected a string")
}

/// Line and column (in characters), both from 1, of a byte offset: for errors that name the place.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// A whole number, decimal or `0x` hexadecimal.
///
/// # Errors
/// On anything else.
pub fn number(text: &str) -> Result<u64, ValueError> {
    let t = text.trim();
    match t.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => t.parse(),
    }
    .map_err(|_| error(text, "a whole number"))
}

/// An identifier in sysfs: -1 means "none".
///
/// # Errors
/// On anything but a whole number.
pub fn id(text: &str) -> Result<Option<u32>, ValueError> {
    let value: i64 = text.trim().parse().map_err(|_| error(text, "an id"))?;
    Ok(u32::try_from(value).ok().filter(|v| *v != u32::MAX))
}

/// A size in bytes. Without a unit it is bytes; `K`, `M`, `G`, `T` (sysfs) and `KiB` … `TiB` count in 1024s, `kB` …
/// `TB` in 1000s, as in hwloc. [`mem_total`] reads `/proc/meminfo`, whose kB means KiB.
///
/// # Errors
/// On anything else, and on sizes that do not fit.
pub fn size(text: &str) -> Result<u64, ValueError> {
    let err = || error(text, "a size such as 32K, 8MiB or 4096");
    let t = text.trim();
    let digits = t.find(|c: char| !c.is_ascii_digit()).unwrap_or(t.len());
    let value: u64 = t[..digits].parse().map_err(|_| err())?;
    let unit = t[digits..].trim_start().to_ascii_lowercase();
    let (prefix, base): (&str, u64) = match unit.as_str() {
        "" | "b" => ("", 1),
        u => match u.strip_suffix("ib").or_else(|| (u.len() == 1).then_some(u)) {
            Some(prefix) => (prefix, 1024),
            None => (u.strip_suffix('b').ok_or_else(err)?, 1000),
        },
    };
    let power = ["", "k", "m", "g", "t"].iter().position(|known| *known == prefix).ok_or_else(err)? as u32;
    value.checked_mul(base.pow(power)).ok_or_else(err)
}

/// `MemTotal` of `/proc/meminfo` or of a node's `meminfo`, in bytes; `None` without such a line.
pub fn mem_total(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("MemTotal:")?;
    let mut words = rest.split_ascii_whitespace();
    let kib: u64 = words.next()?.parse().ok()?;
    (words.next() == Some("kB")).then(|| kib.checked_mul(1024)).flatten()
}

/// A row of the distance table: numbers between spaces.
///
/// # Errors
/// If one is not a number, or there is none.
pub fn distances(text: &str) -> Result<Vec<f64>, ValueError> {
    let err = || error(text, "a row of distances such as 10 21");
    let row: Vec<f64> = text
        .split_ascii_whitespace()
        .map(|w| w.parse::<u32>().map(f64::from))
        .collect::<Result<_, _>>()
        .map_err(|_| err())?;
    if row.is_empty() { Err(err()) } else { Ok(row) }
}

/// The place and names of a cpuset's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpusetKind {
    /// Cgroup v2: `cpuset.cpus.effective`.
    Cgroup2,
    /// Cgroup v1: `cpuset.cpus`.
    Cgroup1,
    /// The cpuset file system, or cgroup v1 with `noprefix`: `cpus`.
    Cpuset,
}

impl CpusetKind {
    /// The file that lists `what` (`cpus` or `mems`).
    pub fn file(self, what: &str) -> String {
        match self {
            Self::Cgroup2 => format!("cpuset.{what}.effective"),
            Self::Cgroup1 => format!("cpuset.{what}"),
            Self::Cpuset => what.to_owned(),
        }
    }
}

/// Mount points of cpusets in `/proc/mounts`, in order. A cgroup v2 mount counts only if its `cgroup.controllers`
/// names cpuset.
pub fn cpuset_mounts(mounts: &str) -> Vec<(CpusetKind, Cow<'_, str>)> {
    let mount = |line| {
        let mut fields = str::split_ascii_whitespace(line);
        let (_, dir, kind, options) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let has = |name| options.split(',').any(|o| o == name);
        let kind = match kind {
            "cgroup2" => CpusetKind::Cgroup2,
            "cpuset" => CpusetKind::Cpuset,
            "cgroup" if has("cpuset") && has("noprefix") => CpusetKind::Cpuset,
            "cgroup" if has("cpuset") => CpusetKind::Cgroup1,
            _ => return None,
        };
        Some((kind, unescaped(dir)))
    };
    mounts.lines().filter_map(mount).collect()
}

/// A field of `/proc/PID/mounts` or `mountinfo`, where blanks, tabs, line ends and backslashes are octal numbers.
pub fn unescaped(field: &str) -> Cow<'_, str> {
    if !field.contains('\\') {
        return Cow::Borrowed(field);
    }
    let mut text = String::new();
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii);
        text.push_str(before);
        text.push(code.map_or('\\', char::from));
        rest = &after[if code.is_some() { 3 } else { 0 }..];
    }
    Cow::Owned(text + rest)
}

/// Which group of its hierarchy `/proc/PID/mountinfo` says to be mounted in a folder; the last where several were, one
/// over the other. `None` where nothing is.
pub fn mounted_group<'a>(mountinfo: &'a str, folder: &str) -> Option<Cow<'a, str>> {
    let group = |line: &'a str| {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (group, place) = (fields.next()?, fields.next()?);
        (unescaped(place) == folder).then(|| unescaped(group))
    };
    mountinfo.lines().rev().find_map(group)
}

/// A list of CPUs or memory nodes of `/proc/PID/status`, such as `Cpus_allowed_list`.
pub fn status_list(status: &str, key: &str) -> Option<CpuSet> {
    let value = |line| str::strip_prefix(line, key)?.strip_prefix(':');
    CpuSet::parse_list(status.lines().find_map(value)?).ok().filter(|set| !set.is_empty())
}

/// The cgroup of the cpuset controller in `/proc/PID/cgroup`: the v1 hierarchy's, otherwise the unified one's.
pub fn cpuset_cgroup(text: &str) -> Option<&str> {
    let line = |wanted: fn(&str) -> bool| {
        text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            wanted(controllers).then_some(path)
        })
    };
    line(|c| c.split(',').any(|c| c == "cpuset")).or_else(|| line(str::is_empty))
}

/// Machine information from `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// `vendor_id` of the first processor.
    pub vendor: Option<String>,
    /// `cpu family` of the first processor.
    pub family: Option<u32>,
    /// Per processor: its package and core, if told.
    pub cpus: BTreeMap<CpuId, (Option<u32>, Option<u32>)>,
    /// Per processor: implementer and part number of its core, on Arm.
    pub parts: BTreeMap<CpuId, (u32, u32)>,
    /// Caches, on s390.
    pub caches: Vec<CpuInfoCache>,
}

/// A cache in s390's `/proc/cpuinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuInfoCache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Whether cores share it.
    pub shared: bool,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of a line.
    pub line_size: Option<u32>,
    /// Ways, if known.
    pub ways: Option<u32>,
}

/// `level=3 type=Unified scope=Shared size=256M line_size=256 associativity=16`
fn cpuinfo_cache(text: &str) -> Option<CpuInfoCache> {
    let value = |key: &str| text.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    Some(CpuInfoCache {
        level: value("level")?.parse().ok().filter(|level| *level > 0)?,
        kind: value("type")?.to_owned(),
        shared: value("scope")? == "Shared",
        bytes: size(value("size")?).ok().filter(|bytes| *bytes > 0)?,
        line_size: value("line_size").and_then(|text| text.parse().ok()),
        ways: value("associativity").and_then(|text| text.parse().ok()),
    })
}

/// A number from the kernel, hexadecimal with `0x`.
fn any_base(text: &str) -> Option<u64> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

/// Implementer and part number of an Arm core, from its `midr_el1`.
pub fn midr(text: &str) -> Option<(u32, u32)> {
    let value = any_base(text.trim())?;
    Some(((value >> 24 & 0xff) as u32, (value >> 4 & 0xfff) as u32))
}

/// Reads `/proc/cpuinfo` of any architecture; unknown lines are skipped.
pub fn cpuinfo(text: &str) -> CpuInfo {
    let mut info = CpuInfo::default();
    let (mut at, mut implementer) = (None, None);
    for line in text.lines() {
        if line.trim().is_empty() {
            at = None;
        }
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        let current = at.and_then(|cpu| info.cpus.get_mut(&cpu));
        let hex = || any_base(value).and_then(|n| u32::try_from(n).ok());
        match (key, current) {
            ("CPU implementer", _) => implementer = hex(),
            ("CPU part", Some(_)) => {
                let part = at.zip(implementer.zip(hex()));
                info.parts.extend(part);
            }
            (key, _) if key.starts_with("cache") => info.caches.extend(cpuinfo_cache(value)),
            // The form of s390: `processor 0: version = FF, …`.
            (key, _) if key.starts_with("processor ") => {
                let number = key["processor ".len()..].parse().ok().filter(|n| *n <= crate::cpuset::MAX_CPU);
                info.cpus.extend(number.map(|n| (CpuId(n), (None, None))));
            }
            ("processor", _) => {
                if let Some(n) = value.parse().ok().filter(|n| *n <= crate::cpuset::MAX_CPU) {
                    at = Some(CpuId(n));
                    info.cpus.insert(CpuId(n), (None, None));
                }
            }
            // s390 tells more of its processors further down.
            ("cpu number", _) => at = value.parse().ok().map(CpuId),
            // The form of sparc: `CPU0: online`.
            (key, _) if value == "online" && key.starts_with("CPU") => {
                let number = key[3..].parse().ok().filter(|n| *n <= crate::cpuset::MAX_CPU);
                info.cpus.extend(number.map(|n| (CpuId(n), (None, None))));
            }
            // Shorter on loongarch and mips.
            ("physical id" | "package", Some(cpu)) => cpu.0 = value.parse().ok(),
            ("core id" | "core", Some(cpu)) => cpu.1 = value.parse().ok(),
            ("vendor_id", _) if info.vendor.is_none() => info.vendor = Some(value.to_owned()),
            ("cpu family", _) if info.family.is_none() => info.family = value.parse().ok(),
            _ => {}
        }
    }
    info
}

/// Parses a duration such as `100ms`, `2s`, `250us`; a bare number is milliseconds.
///
/// # Errors
/// A line describing the error.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" | "" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(format!("'{unit}' is not a unit of time; use us, ms, s, min or h, as in 100ms")),
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|n| Duration::try_from_secs_f64(n * seconds).ok())
        .ok_or_else(|| format!("'{text}' is not a duration; write for example 100ms or 2s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("32K\n", 32 << 10),
            ("24576K", 24 << 20),
            ("8MiB", 8 << 20),
            ("1 GiB", 1 << 30),
            ("16MB", 16_000_000),
            ("100", 100),
            ("2kB", 2000),
            ("1TB", 1_000_000_000_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "K", "-1", "1.5M", "12XB", "99999999999T", "1KKB", "3 apples"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn json_is_told_from_broken_toml() {
        let said = |text: &str| toml_message(text, &toml::from_str::<toml::Table>(text).unwrap_err());
        for json in ["{\"a\": 1}", "\u{feff}{\"a\": 1}", " [\n {}]"] {
            assert_eq!(said(json), "this is JSON, and TOML is expected here", "{json}");
        }
        for toml in ["[a\nb = 1", "a = {"] {
            assert!(!said(toml).contains("JSON"), "{toml}");
        }
    }

    #[test]
    fn numbers_and_ids() {
        assert_eq!((number("64\n"), number("0x1f")), (Ok(64), Ok(31)));
        assert_eq!(number("x").unwrap_err().to_string(), "'x' is not a whole number");
        assert_eq!((id("-1\n"), id("36")), (Ok(None), Ok(Some(36))));
        assert!(id("").is_err());
    }

    #[test]
    fn memory() {
        assert_eq!(mem_total("MemTotal:       16318504 kB\nMemFree: 1 kB\n"), Some(16_318_504 << 10));
        assert_eq!(mem_total("Node 0 MemTotal:       8388608 kB\n"), Some(8 << 30));
        assert_eq!(mem_total("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn slit_rows() {
        assert_eq!(distances("10 16 32\n"), Ok(vec![10.0, 16.0, 32.0]));
        assert!(distances("10 x").is_err() && distances("").is_err());
    }

    #[test]
    fn cpusets() {
        let mounts = "proc /proc proc rw 0 0\nnone /dev/cpuset cpuset rw 0 0\ncgroup /cg cgroup rw,cpuset,cpu 0 0\n\
                      c2 /sys/fs/cgroup cgroup2 rw 0 0\nold /o cgroup rw,noprefix,cpuset 0 0\nx /x cgroup rw,memory 0 0\n";
        let found = cpuset_mounts(mounts);
        assert_eq!(found[0], (CpusetKind::Cpuset, "/dev/cpuset".into()));
        assert_eq!(found[1], (CpusetKind::Cgroup1, "/cg".into()));
        assert_eq!(found[2], (CpusetKind::Cgroup2, "/sys/fs/cgroup".into()));
        assert_eq!(found[3], (CpusetKind::Cpuset, "/o".into()));
        assert_eq!(found.len(), 4);
        assert_eq!(CpusetKind::Cgroup2.file("mems"), "cpuset.mems.effective");
        assert_eq!(cpuset_cgroup("3:cpuset:/a\n0::/b\n"), Some("/a"));
        assert_eq!(cpuset_cgroup("4:cpu,cpuset:/a:b\n"), Some("/a:b"));
        assert_eq!(cpuset_cgroup("2:cpu:/x\n0::/b\n"), Some("/b"));
        assert_eq!(cpuset_cgroup("2:cpu:/x\n"), None);
    }

    #[test]
    fn blanks_of_mount_points_are_numbers() {
        let plain = |field| unescaped(field).into_owned();
        assert_eq!(plain(r"/a\040b\011\134"), "/a b\t\\");
        assert_eq!(plain(r"/a\x\04"), r"/a\x\04");
        let info = "50 40 0:30 /my\\040box /my\\040groups rw - cgroup cgroup rw,cpuset\n";
        assert_eq!(mounted_group(info, "/my groups"), Some("/my box".into()));
        assert_eq!(cpuset_mounts("c /my\\040groups cgroup rw,cpuset 0 0\n")[0].1, "/my groups");
    }

    #[test]
    fn processors() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\nphysical id\t: 1\ncore id\t\t: 3\n\nprocessor\t: 5\n";
        let info = cpuinfo(text);
        assert_eq!((info.vendor.as_deref(), info.family), (Some("AuthenticAMD"), Some(21)));
        assert_eq!(info.cpus[&CpuId(0)], (Some(1), Some(3)));
        assert_eq!(info.cpus[&CpuId(5)], (None, None));
        let arm = cpuinfo(
            "processor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd87\n\nprocessor\t: 2\nCPU part\t: 0xd03\n",
        );
        assert_eq!(arm.parts, BTreeMap::from([(CpuId(1), (0x41, 0xd87)), (CpuId(2), (0x41, 0xd03))]));
        assert_eq!((midr("0x00000000410fd871\n"), midr("none")), (Some((0x41, 0xd87)), None));
        let s390 = "cache4          : level=3 type=Unified scope=Shared size=256M line_size=256 associativity=16\n\
            processor 0: version = FF,  identification = 0133E8\ncache1 : level=1 type=Data scope=Private\n";
        let s390 = cpuinfo(s390);
        let (shared, kind) = (true, "Unified".to_owned());
        let l3 = CpuInfoCache { level: 3, kind, shared, bytes: 256 << 20, line_size: Some(256), ways: Some(16) };
        assert_eq!((s390.caches, s390.cpus.len()), (vec![l3], 1));
        // Each architecture has words of its own.
        for (text, cpus) in [
            (
                "processor\t: 4\npackage\t: 1\ncore\t: 2\n\nprocessor\t: 5\n",
                [(4, (Some(1), Some(2))), (5, (None, None))],
            ),
            (
                "processor 0: v = FF\nprocessor 1: v = FF\n\ncpu number : 1\nphysical id : 3\ncore id : 4\n",
                [(0, (None, None)), (1, (Some(3), Some(4)))],
            ),
            (
                "ncpus active : 2\nCPU0:\t\tonline\nCPU1:\t\toffline\nCPU3: online\n",
                [(0, (None, None)), (3, (None, None))],
            ),
        ] {
            assert_eq!(cpuinfo(text).cpus, BTreeMap::from(cpus.map(|(n, told)| (CpuId(n), told))), "{text}");
        }
    }

    #[test]
    fn what_is_mounted_over_another_counts() {
        let info =
            "50 40 0:30 / /cg ro - cgroup cgroup rw,cpuset\n51 50 0:30 /box /cg rw shared:1 - cgroup cgroup rw\n";
        assert_eq!((mounted_group(info, "/cg"), mounted_group(info, "/c")), (Some("/box".into()), None));
        let status = "Name:\tx\nCpus_allowed:\t6\nCpus_allowed_list:\t1-2\n";
        assert_eq!(status_list(status, "Cpus_allowed_list").unwrap().to_string(), "1-2");
        assert_eq!(status_list(status, "Mems_allowed_list"), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC*|[0-9a-zA-Z:,/ \n\t-]{0,200}") {
            let _ = (number(&text), id(&text), size(&text), mem_total(&text), distances(&text));
            let _ = (cpuset_mounts(&text), cpuset_cgroup(&text), cpuinfo(&text));
        }
    }
}
