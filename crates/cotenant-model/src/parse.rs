//! Values as `/proc` and sysfs print them, and durations as people type them. CPU lists and masks are in
//! [`crate::cpuset`].

use crate::CpuId;
use std::collections::BTreeMap;
use std::time::Duration;
use toml::Spanned;
use toml::de::DeTable;

/// A text that is not what its file should hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}")]
pub struct ValueError {
    text: String,
    expected: &'static str,
}

fn error(text: &str, expected: &'static str) -> ValueError {
    ValueError { text: text.trim().chars().take(60).collect(), expected }
}

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct Located {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what is expected.
    pub message: String,
}

impl Located {
    /// At a byte offset of the text.
    pub fn at(text: &str, offset: usize, message: impl Into<String>) -> Self {
        let (line, column) = position(text, offset);
        Self { line, column, message: message.into() }
    }

    /// At the value of a key of a TOML text, by its path; at the beginning of the text where there is no such value.
    pub fn at_key(text: &str, path: &[&str], message: String) -> Self {
        let table = DeTable::parse(text).map(Spanned::into_inner).unwrap_or_default();
        let mut keys = path.iter();
        let first = keys.next().and_then(|key| table.get(*key));
        let value = keys.fold(first, |value, key| value?.get_ref().get(*key));
        Self::at(text, value.map_or(0, |value| value.span().start), message)
    }

    /// As the TOML parser tells it.
    pub fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        Self::at(text, error.span().map_or(0, |span| span.start), toml_message(text, error))
    }
}

/// What is wrong with a text that is not the TOML that was expected, in one line.
pub fn toml_message(text: &str, error: &toml::de::Error) -> String {
    let begin: String = text.chars().filter(|c| !c.is_whitespace() && *c != '\u{feff}').take(2).collect();
    if begin.starts_with('{') || begin == "[{" {
        return "this is JSON, and TOML is expected here".to_owned();
    }
    // The parser's words for one of several words.
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

/// An identifier as sysfs prints it: -1 stands for "none".
///
/// # Errors
/// On anything but a whole number.
pub fn id(text: &str) -> Result<Option<u32>, ValueError> {
    let value: i64 = text.trim().parse().map_err(|_| error(text, "an id"))?;
    Ok(u32::try_from(value).ok().filter(|v| *v != u32::MAX))
}

/// A size in bytes. Without a unit it is bytes; `K`, `M`, `G`, `T` (sysfs) and `KiB` … `TiB` count in 1024s, `kB` …
/// `TB` in 1000s, as hwloc reads them. `/proc/meminfo`, which writes kB and means KiB, is read by [`mem_total`].
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

/// `MemTotal` of `/proc/meminfo` or of a node's `meminfo`, in bytes; `None` where there is no such line.
pub fn mem_total(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("MemTotal:")?;
    let mut words = rest.split_ascii_whitespace();
    let kib: u64 = words.next()?.parse().ok()?;
    (words.next() == Some("kB")).then(|| kib.checked_mul(1024)).flatten()
}

/// A row of the distance table: numbers between spaces.
///
/// # Errors
/// Where one of them is no number, or there is none.
pub fn distances(text: &str) -> Result<Vec<f64>, ValueError> {
    let err = || error(text, "a row of distances such as 10 21");
    let row: Vec<f64> = text
        .split_ascii_whitespace()
        .map(|w| w.parse::<u32>().map(f64::from))
        .collect::<Result<_, _>>()
        .map_err(|_| err())?;
    if row.is_empty() { Err(err()) } else { Ok(row) }
}

/// Where a cpuset's files are, and how they are called.
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
pub fn cpuset_mounts(mounts: &str) -> Vec<(CpusetKind, &str)> {
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
        Some((kind, dir))
    };
    mounts.lines().filter_map(mount).collect()
}

/// The cgroup that `/proc/PID/cgroup` names for the cpuset controller: the v1 hierarchy's, else the unified one's.
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

/// What `/proc/cpuinfo` tells about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// `vendor_id` of the first processor.
    pub vendor: Option<String>,
    /// `cpu family` of the first processor.
    pub family: Option<u32>,
    /// Per processor: its package (`physical id`) and core (`core id`), where x86 kernels print them.
    pub cpus: BTreeMap<CpuId, (Option<u32>, Option<u32>)>,
}

/// Reads `/proc/cpuinfo` of any architecture; lines that say nothing here are passed over.
pub fn cpuinfo(text: &str) -> CpuInfo {
    let mut info = CpuInfo::default();
    let mut at = None;
    for line in text.lines() {
        if line.trim().is_empty() {
            at = None;
        }
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        let current = at.and_then(|cpu| info.cpus.get_mut(&cpu));
        match (key, current) {
            ("processor", _) => {
                if let Some(n) = value.parse().ok().filter(|n| *n <= crate::cpuset::MAX_CPU) {
                    at = Some(CpuId(n));
                    info.cpus.insert(CpuId(n), (None, None));
                }
            }
            ("physical id", Some(cpu)) => cpu.0 = value.parse().ok(),
            ("core id", Some(cpu)) => cpu.1 = value.parse().ok(),
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
/// A line that says what is wrong.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" | "" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(format!("'{unit}' is no unit of time; use us, ms, s, min or h, as in 100ms")),
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|n| Duration::try_from_secs_f64(n * seconds).ok())
        .ok_or_else(|| format!("'{text}' is no duration; write for example 100ms or 2s"))
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
        assert_eq!(found[0], (CpusetKind::Cpuset, "/dev/cpuset"));
        assert_eq!(found[1], (CpusetKind::Cgroup1, "/cg"));
        assert_eq!(found[2], (CpusetKind::Cgroup2, "/sys/fs/cgroup"));
        assert_eq!(found[3], (CpusetKind::Cpuset, "/o"));
        assert_eq!(found.len(), 4);
        assert_eq!(CpusetKind::Cgroup2.file("mems"), "cpuset.mems.effective");
        assert_eq!(cpuset_cgroup("3:cpuset:/a\n0::/b\n"), Some("/a"));
        assert_eq!(cpuset_cgroup("4:cpu,cpuset:/a:b\n"), Some("/a:b"));
        assert_eq!(cpuset_cgroup("2:cpu:/x\n0::/b\n"), Some("/b"));
        assert_eq!(cpuset_cgroup("2:cpu:/x\n"), None);
    }

    #[test]
    fn processors() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\nphysical id\t: 1\ncore id\t\t: 3\n\nprocessor\t: 5\n";
        let info = cpuinfo(text);
        assert_eq!((info.vendor.as_deref(), info.family), (Some("AuthenticAMD"), Some(21)));
        assert_eq!(info.cpus[&CpuId(0)], (Some(1), Some(3)));
        assert_eq!(info.cpus[&CpuId(5)], (None, None));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC*|[0-9a-zA-Z:,/ \n\t-]{0,200}") {
            let _ = (number(&text), id(&text), size(&text), mem_total(&text), distances(&text));
            let _ = (cpuset_mounts(&text), cpuset_cgroup(&text), cpuinfo(&text));
        }
    }
}
