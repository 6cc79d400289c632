//! Page-aligned memory whose pages the first writer owns.

use std::alloc::{self, Layout};
use std::fs;
use std::path::Path;
use std::ptr::NonNull;

/// Alignment: larger pages only mean that two buffers may share one.
const ALIGN: usize = 4096;

/// Zeroed memory. Its pages come from the memory node of the thread that first writes them.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is plain owned bytes; users of its pointer are responsible for races.
unsafe impl Send for Memory {}
// SAFETY: as above; a shared reference only gives the pointer.
unsafe impl Sync for Memory {}

impl Memory {
    /// This many bytes, at least one; `None` if the address space is exhausted.
    pub fn zeroed(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes.max(1)).ok()?;
        let layout = Layout::from_size_align(bytes, ALIGN).ok()?;
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        Some(Self { start, layout })
    }

    /// Its first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout and freed once.
        unsafe { alloc::dealloc(self.start(), self.layout) };
    }
}

/// Bytes that the system can provide without swapping, limited by this process's control groups; `None` if unknown.
pub fn available() -> Option<u64> {
    let text = |path: &str| fs::read_to_string(path).ok();
    let groups = text("/proc/self/cgroup").and_then(|own| from_groups(Path::new("/sys/fs/cgroup"), &own));
    [text("/proc/meminfo").and_then(|text| from_meminfo(&text)), groups].into_iter().flatten().min()
}

/// Memory figures of a version of control groups.
struct Version {
    /// Its controller, and its folder below the mounts.
    controller: &'static str,
    limit: &'static str,
    used: &'static str,
    /// The reclaimable part in `memory.stat`: the page cache.
    back: [&'static str; 2],
}

const VERSIONS: [Version; 2] = [
    Version { controller: "", limit: "memory.max", used: "memory.current", back: ["inactive_file", "active_file"] },
    Version {
        controller: "memory",
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        back: ["total_inactive_file", "total_active_file"],
    },
];

impl Version {
    /// Remaining allowance of a group; `None` without a limit.
    fn room(&self, group: &Path) -> Option<u64> {
        let text = |name: &str| fs::read_to_string(group.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        let limit = number(self.limit)?;
        let stat = text("memory.stat").unwrap_or_default();
        let pairs = stat.lines().filter_map(|line| line.split_once(' '));
        let back =
            pairs.filter(|(name, _)| self.back.contains(name)).filter_map(|(_, bytes)| bytes.parse::<u64>().ok());
        // What is not known to be free is taken as used.
        let used = number(self.used).unwrap_or(limit).saturating_sub(back.sum());
        Some(limit.saturating_sub(used))
    }
}

/// The smallest remaining allowance of our group and its ancestors.
fn from_groups(mounts: &Path, own: &str) -> Option<u64> {
    let path_of = |controller: &str| {
        own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then_some(path)
        })
    };
    let of = |version: &Version| {
        // In a container the path may be the outer one, but the mount the inner one.
        let path = Path::new(path_of(version.controller).unwrap_or("/"));
        let below = |group: &Path| Some(mounts.join(version.controller).join(group.strip_prefix("/").ok()?));
        path.ancestors().filter_map(|group| version.room(&below(group)?)).min()
    };
    VERSIONS.iter().filter_map(of).min()
}

fn from_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_or_absent() {
        let text = "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:   23810752 kB\nBuffers: 5 kB\n";
        assert_eq!(from_meminfo(text), Some(23_810_752 << 10));
        for bad in
            ["", "MemAvailable:", "MemAvailable: 5 MB", "MemAvailable: -1 kB", "MemAvailable: 18446744073709551615 kB"]
        {
            assert_eq!(from_meminfo(bad), None, "{bad}");
        }
    }

    /// Holds place/schedule.
    #[test]
    fn control_groups_allow_what_is_left_of_their_limits() {
        let mounts = std::env::temp_dir().join(format!("cotenant-groups-{}", std::process::id()));
        let file = |path: &str, text: &str| {
            let path = mounts.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(from_groups(&mounts, "0::/\n"), None);
        // Version 2: a slice of 1,000 of which 700 are used, 300 by the page cache; the session in it has no limit of
        // its own.
        file("user.slice/memory.max", "1000\n");
        file("user.slice/memory.current", "700\n");
        file("user.slice/memory.stat", "anon 400\ninactive_file 100\nactive_file 200\n");
        file("user.slice/me.scope/memory.max", "max\n");
        file("user.slice/me.scope/memory.current", "500\n");
        let own = "1:name=systemd:/x\n0::/user.slice/me.scope\n";
        assert_eq!(from_groups(&mounts, own), Some(600));
        file("user.slice/memory.current", "9000\n");
        assert_eq!(from_groups(&mounts, own), Some(0), "more than the limit");
        assert_eq!(from_groups(&mounts, "0::/other\n"), None);
        // Version 1, with the path as seen outside of the container.
        file("memory/memory.limit_in_bytes", "5000\n");
        file("memory/memory.usage_in_bytes", "1500\n");
        file("memory/memory.stat", "inactive_file 7\ntotal_inactive_file 300\ntotal_active_file 200\n");
        assert_eq!(from_groups(&mounts, "3:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n"), Some(4_000));
        fs::remove_dir_all(&mounts).unwrap();
    }
}
