//! Values of sysfs and `/proc` below a root, and the cpuset that holds the reader.

use crate::fsroot::FsRoot;
use cotenant_model::parse::{self, CpusetKind};
use cotenant_model::topology::assembly::Assembly;
use cotenant_model::{CpuId, CpuSet};

pub(super) const CPU: &str = "/sys/devices/system/cpu";
pub(super) const NODE: &str = "/sys/devices/system/node";

/// Reads values; one that is absent or malformed is `None`, as sysfs differs from kernel to kernel.
pub(super) struct Sysfs<'a> {
    pub(super) root: &'a FsRoot,
}

impl Sysfs<'_> {
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut text = self.root.read(path).ok()?;
        // Linux 5.15 ends the masks of some architectures with a NUL.
        text.truncate(text.trim_end_matches('\0').len());
        Some(text)
    }

    pub(super) fn number(&self, path: &str) -> Option<u64> {
        parse::number(&self.text(path)?).ok()
    }

    /// An id such as `core_id`; -1 is none.
    pub(super) fn id(&self, path: &str) -> Option<u32> {
        parse::id(&self.text(path)?).ok().flatten()
    }

    pub(super) fn list(&self, path: &str) -> Option<CpuSet> {
        CpuSet::parse_list(&self.text(path)?).ok()
    }

    /// The first mask that is there.
    pub(super) fn mask(&self, paths: &[String]) -> Option<CpuSet> {
        paths.iter().find_map(|path| CpuSet::parse_mask(&self.text(path)?).ok())
    }

    /// Numbered entries of a folder, `prefix0`, `prefix1`, …; `None` where there is no folder.
    pub(super) fn numbered(&self, folder: &str, prefix: &str) -> Option<Vec<u32>> {
        let mut numbers = self.root.numbered(folder, prefix).ok()?;
        numbers.retain(|n| *n <= cotenant_model::cpuset::MAX_CPU);
        Some(numbers)
    }

    /// The CPUs and memory nodes that the reader's cpuset allows; `None` = all.
    pub(super) fn allowed(&self, notes: &mut Assembly) -> (Option<CpuSet>, Option<CpuSet>) {
        let Some((kind, mount)) = self.cpuset_mount() else { return (None, None) };
        let own = self.text("/proc/self/cpuset").filter(|t| !t.trim().is_empty());
        let Some(cgroup) = own.map(|t| t.trim_end_matches('\n').to_owned()).or_else(|| {
            let text = self.text("/proc/self/cgroup")?;
            parse::cpuset_cgroup(&text).map(str::to_owned)
        }) else {
            return (None, None);
        };
        let mut read = |what: &str| {
            let path = format!("{mount}{}/{}", cgroup.trim_end_matches('/'), kind.file(what));
            // A file that is absent allows everything: inside a container the path may be that of another namespace.
            let text = self.text(&path)?;
            let set = CpuSet::parse_list(&text);
            if let Err(e) = &set {
                notes.note(format!("{path}: {e}; everything is taken as allowed"));
            }
            set.ok()
        };
        (read("cpus"), read("mems"))
    }

    /// Where cpusets are mounted: the usual places first, as hwloc looks, then what `/proc/mounts` says.
    fn cpuset_mount(&self) -> Option<(CpusetKind, String)> {
        let usual = [
            (CpusetKind::Cgroup2, "/sys/fs/cgroup", "cpuset.cpus.effective"),
            (CpusetKind::Cgroup1, "/sys/fs/cgroup/cpuset", "cpuset.cpus"),
            (CpusetKind::Cpuset, "/dev/cpuset", "cpus"),
        ];
        let found = usual.iter().find(|(_, dir, file)| self.root.exists(&format!("{dir}/{file}")));
        if let Some((kind, dir, _)) = found {
            return Some((*kind, (*dir).to_owned()));
        }
        let mounts = self.text("/proc/mounts")?;
        let usable = |(kind, dir): &(CpusetKind, &str)| {
            *kind != CpusetKind::Cgroup2
                || self
                    .text(&format!("{dir}/cgroup.controllers"))
                    .is_some_and(|t| t.split_ascii_whitespace().any(|c| c == "cpuset"))
        };
        parse::cpuset_mounts(&mounts).into_iter().find(usable).map(|(kind, dir)| (kind, dir.to_owned()))
    }

    pub(super) fn cpu_path(cpu: CpuId, file: &str) -> String {
        format!("{CPU}/cpu{cpu}/{file}")
    }
}
