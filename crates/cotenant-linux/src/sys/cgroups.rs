//! Where control groups are.

use crate::bounded::{self, Limit};
use std::path::Path;

/// Mount points of a cgroup hierarchy: version 2, or the version 1 hierarchy with that controller.
pub fn mounts(root: &Path, v1_controller: Option<&str>) -> Vec<String> {
    let mounts =
        ["proc/self/mounts", "proc/mounts"].iter().find_map(|path| bounded::text(root.join(path), Limit::Machine).ok());
    let mounts = mounts.unwrap_or_default();
    let wanted = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let hit = match v1_controller {
            None => kind == "cgroup2",
            Some(controller) => kind == "cgroup" && options.split(',').any(|o| o == controller),
        };
        hit.then(|| place.trim_start_matches('/').to_owned())
    };
    mounts.lines().filter_map(wanted).collect()
}

/// The control group that this process is in, from the root of the version 2 hierarchy (`None`) or of the version 1
/// hierarchy with that controller.
pub fn own(root: &Path, v1_controller: Option<&str>) -> Option<String> {
    of(root, "self", v1_controller)
}

/// The same of any process.
pub fn of(root: &Path, pid: &str, v1_controller: Option<&str>) -> Option<String> {
    let groups = bounded::text(root.join(format!("proc/{pid}/cgroup")), Limit::Value).ok()?;
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is = controllers.split(',').any(|name| name == v1_controller.unwrap_or_default());
        is.then(|| path.to_owned())
    })
}
