//! The background by a program's own control group, see [`crate::act::cpu_time`].

use crate::act::cpu_time::{Place, Quota};
use crate::act::groups::{self, Group, Hierarchy, LimitError};
use std::cell::Cell;

/// Makes a group run only on otherwise idle CPUs (`cpu.idle`, Linux 5.15; before that the least weight), or normally
/// again. This is relative to sibling groups: control groups share the CPU level by level. Returns the written text for
/// people.
///
/// # Errors
/// If the kernel refuses.
pub fn set(quota: &mut Quota, on: bool) -> Result<String, LimitError> {
    let (file, values) = switch(&quota.group);
    quota.write(file, values[usize::from(on)])?;
    Ok(format!("{file} {}", values[usize::from(on)]))
}

/// The file, with its values for normal and background.
fn switch(group: &Group) -> (&'static str, [&'static str; 2]) {
    let idle = ("cpu.idle", ["0", "1"]);
    match group.hierarchy {
        _ if group.path.join(idle.0).exists() => idle,
        Hierarchy::V2 => ("cpu.weight", ["100", "1"]),
        _ => ("cpu.shares", ["1024", "2"]),
    }
}

/// That file, if groups of new programs have it at that place: tested with a temporary group.
pub fn file_at(place: &Place) -> Option<&'static str> {
    let file = Cell::new("");
    let works = groups::works(place.hierarchy, &place.around, &place.home, |probe| {
        file.set(switch(probe).0);
        Ok(())
    });
    works.ok().map(|()| file.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::cpu_time::{place, works_here};
    use crate::tests::journal;
    use cotenant_testing::TempDir;
    use std::fs;

    /// Holds undo/limits.
    #[test]
    fn the_background_is_told_to_the_kernel_and_taken_back() {
        if !works_here() {
            eprintln!("skipped: CPU time cannot be limited here");
            return;
        }
        let state = TempDir::new("quota-background");
        let mut journal = journal(state.path());
        let mut quota = Quota::make(&mut journal, &[]).unwrap();
        let path = quota.group.path.clone();
        for on in [true, false] {
            let said = set(&mut quota, on).unwrap();
            let (file, value) = said.split_once(' ').unwrap();
            assert_eq!(fs::read_to_string(path.join(file)).unwrap().trim(), value);
            assert!(["cpu.idle 1", "cpu.weight 1", "cpu.shares 2"].contains(&said.as_str()) == on, "{on}: {said}");
            assert_eq!(file_at(&place(&[]).unwrap()), Some(file));
        }
        set(&mut quota, true).unwrap();
        quota.end(&mut journal).unwrap();
        assert!(!path.exists() && journal.finish().failed == 0);
    }

    /// Kernels that know no `cpu.idle` give the least weight.
    /// Holds qos/background.
    #[test]
    fn before_linux_5_15_the_background_is_the_least_weight() {
        for (hierarchy, file, values) in
            [(Hierarchy::V2, "cpu.weight", ["1", "100"]), (Hierarchy::V1Cpu, "cpu.shares", ["2", "1024"])]
        {
            let tree = TempDir::new("quota-weight");
            tree.write(file, "");
            let mut quota = Quota::of(Group { hierarchy, path: tree.path().to_owned(), home: None });
            for (on, value) in [true, false].into_iter().zip(values) {
                assert_eq!(set(&mut quota, on).unwrap(), format!("{file} {value}"));
                assert_eq!(fs::read_to_string(tree.path().join(file)).unwrap(), value);
            }
            tree.write("cpu.idle", "");
            assert_eq!(set(&mut quota, true).unwrap(), "cpu.idle 1");
        }
    }
}
