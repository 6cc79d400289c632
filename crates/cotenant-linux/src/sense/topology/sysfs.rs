//! Values of sysfs and `/proc` below a root, and the reader's cpuset.

use crate::fsroot::FsRoot;
use cotenant_model::parse::{self, CpusetKind};
use cotenant_model::topology::assembly::Assembly;
use cotenant_model::{CpuId, CpuSet};
use std::cell::RefCell;
use std::io::{self, ErrorKind};

pub(super) const CPU: &str = "/sys/devices/system/cpu";
pub(super) const NODE: &str = "/sys/devices/system/node";

/// The kernel's restriction of the reader; `None`: all.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowed {
    /// By its cpuset.
    pub(super) cpus: Option<CpuSet>,
    /// Memory nodes, likewise.
    pub(super) mems: Option<CpuSet>,
    /// Whether a cpuset of that kind only names online CPUs.
    pub(super) is_online: bool,
    /// The CPUs of its own mask.
    pub(super) task: Option<CpuSet>,
}

/// Reads values; absent or malformed ones are `None`, because sysfs differs between kernels.
pub(super) struct Sysfs<'a> {
    pub(super) root: &'a FsRoot,
    /// Existing but unreadable paths, with reasons.
    unread: RefCell<Vec<String>>,
}

impl<'a> Sysfs<'a> {
    pub(super) fn new(root: &'a FsRoot) -> Self {
        Self { root, unread: RefCell::default() }
    }

    /// The content of a path; a missing one is ignored.
    fn there<T>(&self, path: &str, read: io::Result<T>) -> Option<T> {
        let absent = |why: &io::Error| matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        read.map_err(|why| (!absent(&why)).then(|| self.unread.borrow_mut().push(format!("{path}: {why}")))).ok()
    }

    /// One line about an existing but unreadable path.
    pub(super) fn unread(&self) -> Option<String> {
        let unread = self.unread.borrow();
        let first = unread.first()?;
        let more = if unread.len() > 1 { format!(", and {} more", unread.len() - 1) } else { String::new() };
        Some(format!("{first}{more}: what cannot be read counts as absent"))
    }

    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut text = self.there(path, self.root.read(path))?;
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

    /// The first existing mask.
    pub(super) fn mask(&self, paths: &[String]) -> Option<CpuSet> {
        paths.iter().find_map(|path| CpuSet::parse_mask(&self.text(path)?).ok())
    }

    /// Numbered entries of a folder, `prefix0`, `prefix1`, …; `None` without the folder.
    pub(super) fn numbered(&self, folder: &str, prefix: &str) -> Option<Vec<u32>> {
        let mut numbers = self.there(folder, self.root.numbered(folder, prefix))?;
        numbers.retain(|n| *n <= cotenant_model::cpuset::MAX_CPU);
        Some(numbers)
    }

    /// The kernel's restriction of the reader.
    pub(super) fn allowed(&self, notes: &mut Assembly) -> Allowed {
        let status = self.text("/proc/self/status").unwrap_or_default();
        let of_task = |key| parse::status_list(&status, key);
        let (cpus, mems) = (of_task("Cpus_allowed_list"), of_task("Mems_allowed_list"));
        let mut allowed = Allowed { task: cpus.clone(), ..Allowed::default() };
        let Some((kind, mount)) = self.cpuset_mount() else { return allowed };
        let own = self.text("/proc/self/cpuset").filter(|t| !t.trim().is_empty());
        let Some(cgroup) = own.map(|t| t.trim_end_matches('\n').to_owned()).or_else(|| {
            let text = self.text("/proc/self/cgroup")?;
            parse::cpuset_cgroup(&text).map(str::to_owned)
        }) else {
            return allowed;
        };
        // In a container its own group may be mounted, with the host's path.
        let info = self.text("/proc/self/mountinfo").unwrap_or_default();
        let mounted = parse::mounted_group(&info, &mount).unwrap_or("/").trim_end_matches('/');
        let inside = cgroup.strip_prefix(mounted).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let folder = format!("{mount}{}", inside.unwrap_or(&cgroup).trim_end_matches('/'));
        let mut read = |what: &str| {
            let path = format!("{folder}/{}", kind.file(what));
            let text = self.text(&path)?;
            let set = CpuSet::parse_list(&text);
            if let Err(e) = &set {
                notes.note(format!("{path}: {e}; everything is taken as allowed"));
                return Some(None);
            }
            Some(set.ok())
        };
        // A missing file is ignored: the path may be of another namespace.
        allowed.cpus = read("cpus").unwrap_or(cpus);
        allowed.mems = read("mems").unwrap_or(mems);
        allowed.is_online = kind == CpusetKind::Cgroup2;
        allowed
    }

    /// The mount point of cpusets: the usual places first, as in hwloc, then `/proc/mounts`.
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
