//! Saves a machine's topology for use elsewhere: `cotenant topo --gather`.
//!
//! Only files on a list are copied, which all describe hardware. Identifying data of users, hosts or programs are left
//! out: no command lines (of the kernel's, `numa=` only), no mounts, no names of cgroups (the allowed CPUs and nodes
//! are written as the root cgroup's), no serial numbers, no MAC addresses. hwloc can also read the result (`lstopo
//! --input FOLDER`).

use crate::fsroot::FsRoot;
use crate::sense::topology::{self, ReadError};
use cotenant_model::{CpuId, CpuSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Files of memory sizes; their usage is private and varies.
const MEMORY: &[&str] = &["/proc/meminfo", "/sys/devices/system/node/node#/meminfo"];

/// Files copied whole: `#` stands for any number, `*` for any name, `{a,b}` for one of several.
const FILES: &[&str] = &[
    "/sys/devices/{cpu_core,cpu_atom,cpu_lowpower}/cpus",
    "/sys/devices/system/cpu/{kernel_max,offline,online,possible,present}",
    "/sys/devices/system/cpu/cpu#/{cpu_capacity,online}",
    "/sys/devices/system/cpu/cpu#/acpi_cppc/{highest_perf,nominal_freq}",
    "/sys/devices/system/cpu/cpu#/cpufreq/{base_frequency,cpuinfo_max_freq}",
    "/sys/devices/system/cpu/cpu#/cache/index#/{coherency_line_size,id,level,number_of_sets,physical_line_partition,shared_cpu_map,size,type,ways_of_associativity}",
    "/sys/devices/system/cpu/cpu#/topology/{book_id,book_siblings,cluster_cpus,cluster_id,core_cpus,core_id,core_siblings,die_cpus,die_id,drawer_id,drawer_siblings,package_cpus,physical_package_id,thread_siblings}",
    "/sys/devices/system/node/{has_cpu,has_memory,online,possible}",
    "/sys/devices/system/node/node#/{cpumap,distance}",
    "/sys/devices/system/node/node#/access#/initiators/{read_bandwidth,read_latency,write_bandwidth,write_latency}",
    "/sys/devices/system/node/node#/hugepages/*/nr_hugepages",
    "/sys/devices/system/node/node#/memory_side_cache/index#/{indexing,line_size,size,write_policy}",
];

/// Folders of links whose names are the information: the nearest nodes of each memory.
const LINKS: &[&str] = &["/sys/devices/system/node/node#/access#/initiators/node#"];

/// Longest path that the archive's format takes without extensions.
const MAX_PATH: usize = 100;

/// Why nothing, or not everything, was saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The machine cannot be read.
    #[error(transparent)]
    Machine(#[from] ReadError),
    /// Something cannot be written.
    #[error("{}: {error}; give a place that can be written", .path.display())]
    Write {
        /// The written file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The folder is in use.
    #[error("{}: the folder is not empty; give a new one, or a name that ends in .tar", .0.display())]
    NotEmpty(PathBuf),
    /// The archive's name is too long for the paths in it.
    #[error("'{0}' is too long a name for the folder in the archive; give a shorter one")]
    Name(String),
}

/// Saves the machine below `root` as the archive `target` (if its name ends in `.tar`), which holds one folder of the
/// same name, or as the folder `target`. Returns the number of files saved.
///
/// # Errors
/// [`SaveError`].
pub fn save(root: &FsRoot, target: &Path) -> Result<usize, SaveError> {
    let found = if root.is_live() { topology::live()? } else { topology::read(root, None)? };
    let nodes = found.topology.nodes();
    let mems: CpuSet = nodes.iter().filter(|n| n.allowed).map(|n| CpuId(n.id.0)).collect();
    let mut files = copied(root);
    files.extend(
        [
            ("/proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n".into()),
            ("/proc/self/cpuset", "/\n".into()),
            ("/sys/fs/cgroup/cgroup.controllers", "cpuset\n".into()),
            ("/sys/fs/cgroup/cpuset.cpus.effective", format!("{}\n", found.topology.usable())),
            ("/sys/fs/cgroup/cpuset.mems.effective", format!("{mems}\n")),
        ]
        .map(|(path, text): (&str, String)| (path.to_owned(), text)),
    );
    if root.is_live() {
        files.push(("/proc/hwloc-nofile-info".into(), format!("Architecture: {}\n", std::env::consts::ARCH)));
    }
    let failed = |path: &Path, error| SaveError::Write { path: path.to_owned(), error };
    if target.extension().is_some_and(|e| e == "tar") {
        let folder = target.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        if files.iter().any(|(path, _)| folder.len() + path.len() > MAX_PATH) {
            return Err(SaveError::Name(folder));
        }
        let file = File::create(target).map_err(|e| failed(target, e))?;
        archive(&folder, &files, BufWriter::new(file)).map_err(|e| failed(target, e))?;
    } else {
        if fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(SaveError::NotEmpty(target.to_owned()));
        }
        for (path, text) in &files {
            let path = target.join(path.trim_start_matches('/'));
            let folder = path.parent().unwrap_or(target);
            fs::create_dir_all(folder).and_then(|()| fs::write(&path, text)).map_err(|e| failed(&path, e))?;
        }
    }
    Ok(files.len())
}

/// The existing, readable files of the list, in its order.
fn copied(root: &FsRoot) -> Vec<(String, String)> {
    let read = |path: &String| Some((path.clone(), root.read(path).ok()?));
    let mut files: Vec<(String, String)> =
        FILES.iter().flat_map(|p| expanded(root, p)).filter_map(|p| read(&p)).collect();
    files.extend(LINKS.iter().flat_map(|p| expanded(root, p)).map(|link| (link, String::new())));
    let mut filtered = |path: &String, keep: fn(&str) -> Option<String>| {
        let Some((path, text)) = read(path) else { return };
        files.push((path, text.lines().filter_map(keep).map(|line| line + "\n").collect()));
    };
    for path in MEMORY.iter().flat_map(|p| expanded(root, p)) {
        filtered(&path, |line| line.contains("MemTotal").then(|| line.to_owned()));
    }
    // Boards list their serial number among the CPUs.
    filtered(&"/proc/cpuinfo".into(), |line| (!line.starts_with("Serial")).then(|| line.to_owned()));
    // hwloc's own file for further facts: besides the architecture it contains the host's name.
    filtered(&"/proc/hwloc-nofile-info".into(), |line| line.starts_with("Architecture").then(|| line.to_owned()));
    filtered(&"/proc/cmdline".into(), |line| {
        let numa: Vec<&str> = line.split_whitespace().filter(|word| word.starts_with("numa=")).collect();
        Some(numa.join(" "))
    });
    files
}

/// The paths of a pattern; those without `#` and `*` need not exist.
fn expanded(root: &FsRoot, pattern: &str) -> Vec<String> {
    let parts = pattern.trim_start_matches('/').split('/');
    parts
        .fold(vec![String::new()], |paths, part| paths.iter().flat_map(|folder| matching(root, folder, part)).collect())
}

/// The paths in `folder` for a part of a pattern; plain names and alternatives are not looked up.
fn matching(root: &FsRoot, folder: &str, part: &str) -> Vec<String> {
    let in_folder = |name: &str| format!("{folder}/{name}");
    if let Some(names) = part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
        return names.split(',').map(in_folder).collect();
    }
    // Most machines lack some of the folders.
    let Ok(listed) = root.list(folder) else { return Vec::new() };
    match part.strip_suffix('#') {
        Some(prefix) => {
            let number = |name: &String| name.strip_prefix(prefix).and_then(|n| n.parse::<u32>().ok());
            let mut found: Vec<(u32, String)> =
                listed.into_iter().filter_map(|name| Some((number(&name)?, name))).collect();
            found.sort();
            found.iter().map(|(_, name)| in_folder(name)).collect()
        }
        None if part == "*" => listed.iter().map(|name| in_folder(name)).collect(),
        None => vec![in_folder(part)],
    }
}

/// Writes an archive in the common format (POSIX ustar) without owners and times, so that equal machines give equal
/// archives. The tar crate would be more than these plain headers need.
fn archive(folder: &str, files: &[(String, String)], mut out: impl Write) -> io::Result<()> {
    const BLOCK: usize = 512;
    for (path, text) in files {
        let mut header = [0u8; BLOCK];
        let mut put = |at: usize, field: &[u8]| header[at..at + field.len()].copy_from_slice(field);
        put(0, format!("{folder}{path}").as_bytes());
        put(100, b"0000644\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", text.len()).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        "); // its own field counts as blanks in the sum
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.write_all(&header)?;
        out.write_all(text.as_bytes())?;
        out.write_all(&[0; BLOCK][..text.len().next_multiple_of(BLOCK) - text.len()])?;
    }
    out.write_all(&[0; 2 * BLOCK])?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty folder for a test.
    fn folder(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("cotenant-gather-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn machine(root: &Path) {
        for (path, text) in [
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: X\nSerial\t\t: 00000000deadbeef\n"),
            ("proc/cmdline", "root=UUID=1234 password=x numa=off quiet\n"),
            ("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 10 kB\n"),
            ("proc/self/cgroup", "0::/user.slice/user-alice\n"),
            ("proc/mounts", "server:/home/alice /home nfs rw 0 0\n"),
            ("sys/class/net/eth0/address", "02:00:00:00:00:01\n"),
            ("sys/class/dmi/id/product_serial", "S123\n"),
            ("sys/devices/system/cpu/online", "0\n"),
            ("sys/devices/system/cpu/cpu0/topology/core_id", "0\n"),
            ("sys/devices/system/cpu/cpu0/topology/core_cpus", "1\n"),
            ("sys/devices/system/cpu/cpu0/uevent", "MODALIAS=x\n"),
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn only_hardware_is_saved() {
        let base = folder("hardware");
        machine(&base.join("machine"));
        save(&FsRoot::at(base.join("machine")), &base.join("out")).unwrap();
        let saved = FsRoot::at(base.join("out"));
        let read = |path: &str| saved.read(path).ok();
        assert_eq!(read("/proc/cpuinfo").as_deref(), Some("processor\t: 0\nmodel name\t: X\n"));
        assert_eq!(read("/proc/cmdline").as_deref(), Some("numa=off\n"));
        assert_eq!(read("/proc/meminfo").as_deref(), Some("MemTotal: 1000 kB\n"));
        assert_eq!(read("/proc/self/cpuset").as_deref(), Some("/\n"));
        assert_eq!(read("/sys/fs/cgroup/cpuset.cpus.effective").as_deref(), Some("0\n"));
        assert_eq!(read("/proc/mounts").as_deref(), Some("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"));
        for absent in ["/proc/self/cgroup", "/sys/class", "/sys/devices/system/cpu/cpu0/uevent"] {
            assert!(!saved.exists(absent), "{absent}");
        }
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn targets_in_the_way_are_named() {
        let base = folder("targets");
        let root = FsRoot::at(base.join("machine"));
        assert!(matches!(save(&root, &base.join("x.tar")), Err(SaveError::Machine(_))));
        machine(&base.join("machine"));
        assert!(matches!(save(&root, &base), Err(SaveError::NotEmpty(_))));
        assert!(matches!(save(&root, &base.join("absent/x.tar")), Err(SaveError::Write { .. })));
        assert!(matches!(save(&root, &base.join("a".repeat(90) + ".tar")), Err(SaveError::Name(_))));
        fs::remove_dir_all(base).unwrap();
    }
}
