//! Values of sysfs and `/proc` below a root, and the reader's cpuset.

use crate::fsroot::FsRoot;
use cotenant_model::parse::{self, CpusetKind};
use cotenant_model::topology::assembly::Assembly;
use cotenant_model::{CpuId, CpuSet};
use std::borrow::Cow;
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
    /// Memory nodes, likewise.
    task_mems: Option<CpuSet>,
}

impl Allowed {
    /// Resolves contradictions in favour of the kernel's permissions. `may`: the kernel's direct answer, otherwise its
    /// own lists count.
    pub(super) fn settle(&mut self, online: &CpuSet, may: Option<&CpuSet>, nodes: &CpuSet, out: &mut Assembly) {
        let of = |set: Option<&CpuSet>, all: &CpuSet| set.map(|set| set.and(all)).filter(|set| !set.is_empty());
        let task = of(may.or(self.task.as_ref()), online);
        let cpuset = self.cpus.as_ref().map(|cpus| cpus.and(online));
        if let (Some(task), Some(cpuset)) = (&task, &cpuset)
            && (!task.is_subset(cpuset) || (may.is_some() && task != cpuset))
        {
            let listed = self.cpus.take().unwrap_or_default();
            out.note(format!("the cpuset allows CPUs {listed}, but this process may run on {task}; that is believed"));
        }
        // The process that reads this runs on one.
        if let Some(told) = self.cpus.take_if(|cpus| !cpus.intersects(online)) {
            let told = if told.is_empty() { "no CPUs".to_owned() } else { format!("CPUs {told}") };
            out.note(format!("the cpuset allows {told}, and CPUs {online} are online; that is not believed"));
        }
        if self.cpus.is_none() {
            self.cpus = task;
        }
        if self.mems.as_ref().is_some_and(|mems| !mems.intersects(nodes)) && !nodes.is_empty() {
            let listed = self.mems.take().unwrap_or_default();
            out.note(format!("the cpuset allows memory nodes {listed}, and there are {nodes}; that is not believed"));
        }
        if self.mems.is_none() {
            self.mems = of(self.task_mems.as_ref(), nodes);
        }
    }
}

/// Reads values; absent or malformed ones are `None`, because sysfs differs between kernels.
pub(super) struct Sysfs<'a> {
    pub(super) root: &'a FsRoot,
    /// Unreadable or unexpected files, with the reasons.
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

    /// The value of a text; an unexpected one is noted.
    fn value<T, E>(&self, path: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        let text = self.text(path)?;
        let said = || format!("{path} says {:?}", text.trim().chars().take(40).collect::<String>());
        parse(&text).map_err(|_| self.unread.borrow_mut().push(said())).ok()
    }

    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.value(path, parse::number)
    }

    /// An id such as `core_id`; -1 is none.
    pub(super) fn id(&self, path: &str) -> Option<u32> {
        self.value(path, parse::id).flatten()
    }

    pub(super) fn size(&self, path: &str) -> Option<u64> {
        self.value(path, parse::size)
    }

    pub(super) fn list(&self, path: &str) -> Option<CpuSet> {
        self.value(path, CpuSet::parse_list)
    }

    /// The first existing mask, otherwise the first list next to one.
    pub(super) fn mask(&self, paths: &[String]) -> Option<CpuSet> {
        let list = |path: &String| match path.strip_suffix("map") {
            Some(of) => self.list(&format!("{of}list")),
            None => self.list(&format!("{path}_list")),
        };
        let mask = paths.iter().find_map(|path| self.value(path, CpuSet::parse_mask));
        mask.or_else(|| paths.iter().find_map(list))
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
        let mut allowed = Allowed { task: cpus, task_mems: mems, ..Allowed::default() };
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
        let mounted = parse::mounted_group(&info, &mount).unwrap_or("/".into());
        let inside = cgroup.strip_prefix(mounted.trim_end_matches('/'));
        let inside = inside.filter(|rest| rest.is_empty() || rest.starts_with('/')).unwrap_or(&cgroup);
        // A path outside a container's view begins with `/..`.
        if inside.split('/').any(|part| part == "..") {
            return allowed;
        }
        let mut group = inside.trim_end_matches('/');
        // Where a group of version 2 has no cpusets, those of one around it count.
        let is_plain = |group: &str| {
            let folder = format!("{mount}{group}");
            self.root.exists(&folder) && !self.root.exists(&format!("{folder}/{}", kind.file("cpus")))
        };
        while kind == CpusetKind::Cgroup2 && is_plain(group) {
            let Some((around, _)) = group.rsplit_once('/') else { break };
            group = around;
        }
        let folder = format!("{mount}{group}");
        // A file that is absent means nothing: the path may be that of another namespace.
        let mut read = |what: &str| {
            let path = format!("{folder}/{}", kind.file(what));
            let set = CpuSet::parse_list(&self.text(&path)?);
            set.map_err(|e| notes.note(format!("{path}: {e}; it is passed over"))).ok()
        };
        (allowed.cpus, allowed.mems) = (read("cpus"), read("mems"));
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
        let usable = |(kind, dir): &(CpusetKind, Cow<'_, str>)| {
            *kind != CpusetKind::Cgroup2
                || self
                    .text(&format!("{dir}/cgroup.controllers"))
                    .is_some_and(|t| t.split_ascii_whitespace().any(|c| c == "cpuset"))
        };
        parse::cpuset_mounts(&mounts).into_iter().find(usable).map(|(kind, dir)| (kind, dir.into_owned()))
    }

    pub(super) fn cpu_path(cpu: CpuId, file: &str) -> String {
        format!("{CPU}/cpu{cpu}/{file}")
    }
}
