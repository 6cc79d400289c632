//! Whether the jobs of Slurm that run on this node are known: each step from the prolog to the rule.

use crate::containers::Told;
use cotenant_linux::FsRoot;
use cotenant_linux::bounded::{self, Limit};
use cotenant_linux::sense::census::Census;
use cotenant_status::status::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Jobs that are named in a line.
const NAMED: usize = 5;

/// A step that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The step.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// What to do; absent if nothing is wrong, or if nothing could be checked.
    pub remedy: Option<String>,
    /// Whether it could be checked.
    pub checked: bool,
}

impl Step {
    fn good(what: &'static str, found: String) -> Self {
        Self { what, found, remedy: None, checked: true }
    }

    fn bad(what: &'static str, found: String, remedy: impl Into<String>) -> Self {
        Self { what, found, remedy: Some(remedy.into()), checked: true }
    }

    fn unchecked(what: &'static str, why: &str) -> Self {
        Self { what, found: why.to_owned(), remedy: None, checked: false }
    }

    /// Whether something is wrong.
    pub fn fails(&self) -> bool {
        self.remedy.is_some()
    }
}

const FOLDER: &str = "the daemon's folder for jobs";
const PROLOG: &str = "the prolog";
const GROUP: &str = "the jobs' control groups";
const RULE: &str = "a rule for the jobs";

/// The steps, in their order. `status`: what the daemon beside this folder says.
pub fn steps(fs: &FsRoot, folder: &Path, status: &Result<Status, String>) -> Vec<Step> {
    let why = match std::fs::read_dir(folder) {
        Ok(entries) => {
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            return jobs(fs, folder, &names.filter_map(|name| name.parse().ok()).collect(), status);
        }
        Err(why) => why,
    };
    let remedy = match (why.kind(), status) {
        (io::ErrorKind::PermissionDenied, _) => "run this as root".to_owned(),
        (_, Err(why)) => why.clone(),
        (_, Ok(_)) => "write `slurm = true` into a file of conf.d, and run `systemctl reload cotenant`".to_owned(),
    };
    let mut all = vec![Step::bad(FOLDER, format!("{}: {why}", folder.display()), remedy)];
    all.extend([PROLOG, GROUP, RULE].map(|what| Step::unchecked(what, "not without the folder")));
    all
}

fn jobs(fs: &FsRoot, folder: &Path, told: &BTreeSet<u32>, status: &Result<Status, String>) -> Vec<Step> {
    let mut all = vec![Step::good(FOLDER, folder.display().to_string())];
    let mut census = Census::new(fs.clone()).with_patience();
    if let Err(why) = census.look() {
        all.extend([PROLOG, GROUP, RULE].map(|what| Step::unchecked(what, &why.to_string())));
        return all;
    }
    // The control groups of processes of jobs that run here.
    let mut running: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for resident in census.residents().values() {
        if let Some(job) = job_of(&resident.cgroup) {
            running.entry(job).or_default().insert(&resident.cgroup);
        }
    }
    // A job with a file runs here, wherever its Slurm keeps it.
    if running.is_empty() && told.is_empty() {
        let why = "no job runs on this node: try it with `srun --nodelist=NODE sleep 60 &`";
        all.extend([PROLOG, GROUP, RULE].map(|what| Step::unchecked(what, why)));
        return all;
    }
    let without: Vec<u32> = running.keys().filter(|job| !told.contains(job)).copied().collect();
    all.push(if without.is_empty() {
        Step::good(PROLOG, format!("it has written of {}", named(&told.iter().copied().collect::<Vec<_>>())))
    } else {
        let found = format!("there is no file of {}", named(&without));
        let remedy = "let `scontrol show config` show Prolog; a job without steps needs PrologFlags=Alloc; jobs that \
                      began before the prolog was set have no file";
        Step::bad(PROLOG, found, remedy)
    });
    let is_there = |job: u32| {
        // One that cannot be read names no group.
        let Ok(text) = bounded::read(folder.join(job.to_string()), Limit::Value) else { return false };
        let groups = serde_json::Deserializer::from_slice(&text).into_iter::<Told>().map_while(Result::ok);
        let mut groups = groups.map(|told| told.cgroup);
        groups.any(|group| {
            census.residents().values().any(|resident| {
                resident.cgroup.strip_prefix(&*group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        })
    };
    let lost: Vec<u32> = told.iter().copied().filter(|job| !is_there(*job)).collect();
    all.push(if told.is_empty() {
        Step::unchecked(GROUP, "not without a file")
    } else if lost.is_empty() {
        Step::good(GROUP, "processes run in those that the files name".to_owned())
    } else {
        let found = format!("no process runs in those of {}", named(&lost));
        Step::bad(GROUP, found, "let `groups` in the prolog print where your Slurm keeps jobs (/proc/PID/cgroup)")
    });
    all.push(match status {
        _ if told.is_empty() => Step::unchecked(RULE, "not without a file"),
        Err(why) => Step::bad(RULE, "not known".to_owned(), why.clone()),
        Ok(status) => {
            let managed = |job: &u32| {
                let of_job = |it: &cotenant_status::identity::Identity| it.job && it.pod == job.to_string();
                status.services.iter().any(|service| service.container.as_ref().is_some_and(of_job))
            };
            let unnamed: Vec<u32> = told.iter().copied().filter(|job| !managed(job)).collect();
            if unnamed.is_empty() {
                Step::good(RULE, "each job that is known is a service of the daemon".to_owned())
            } else {
                let found = format!("none takes {}", named(&unnamed));
                let remedy = "a rule such as `match = { namespace = \"*\" }`; `cotenant daemon --check` prints what each \
                              rule matches now";
                Step::bad(RULE, found, remedy)
            }
        }
    });
    all
}

/// `jobs 7, 8 and 3 more`
fn named(jobs: &[u32]) -> String {
    let first: Vec<String> = jobs.iter().take(NAMED).map(ToString::to_string).collect();
    let more = jobs.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} {}{more}", if jobs.len() == 1 { "job" } else { "jobs" }, first.join(", "))
}

/// The job that a control group belongs to, in either version.
fn job_of(cgroup: &str) -> Option<u32> {
    let is_slurm = cgroup.contains("slurm");
    cgroup.split('/').find_map(|part| part.strip_prefix("job_")?.parse().ok()).filter(|_| is_slurm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_status::identity::Identity;
    use cotenant_status::status::ServiceStatus;
    use cotenant_testing::TempDir;
    use std::time::Instant;

    fn machine(name: &str, jobs: &[u32]) -> TempDir {
        let machine = TempDir::new(name);
        machine.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        for job in jobs {
            let rest = ["0"; 40].join(" ");
            machine.write(&format!("proc/{job}/stat"), format!("{job} (a) S 1 1 1 0 -1 0 {rest}\n"));
            let path = format!("/system.slice/slurmstepd.scope/job_{job}/step_0");
            machine.write(&format!("proc/{job}/cgroup"), format!("0::{path}\n"));
        }
        machine
    }

    /// Of a daemon with these jobs, or none.
    fn says(jobs: Option<&[u32]>) -> Result<Status, String> {
        let job = |job: &u32| ServiceStatus {
            container: Some(Identity { pod: job.to_string(), job: true, ..Identity::default() }),
            ..ServiceStatus::default()
        };
        let jobs = jobs.ok_or("no daemon answers")?;
        Ok(Status { services: jobs.iter().map(job).collect(), ..Status::of_nobody(Instant::now()) })
    }

    /// Each row of the page's table.
    #[test]
    fn the_first_step_that_is_missing_is_named() {
        let machine = machine("jobs", &[41, 42]);
        let (fs, folder) = (FsRoot::at(machine.path()), machine.path().join("slurm"));
        let failing = |status: &Result<Status, String>| -> Vec<&'static str> {
            let all = steps(&fs, &folder, status);
            assert_eq!(all.len(), 4, "{all:?}");
            all.iter().filter(|step| step.fails()).map(|step| step.what).collect()
        };
        assert_eq!(failing(&says(Some(&[]))), [FOLDER]);
        let stopped = says(None);
        assert_eq!(steps(&fs, &folder, &stopped)[0].remedy.as_deref(), Some("no daemon answers"));
        let told = |job: u32, group: &str| {
            let text =
                format!("{{\"cgroup\":\"{group}\",\"namespace\":\"p\",\"pod\":\"{job}\",\"container\":\"c\"}}\n");
            machine.write(&format!("slurm/{job}"), text);
        };
        told(41, "/system.slice/slurmstepd.scope/job_41");
        assert_eq!(failing(&says(Some(&[41]))), [PROLOG], "nothing was written of 42");
        told(42, "/elsewhere/job_42");
        assert_eq!(failing(&says(Some(&[41, 42]))), [GROUP]);
        told(42, "/system.slice/slurmstepd.scope/job_42");
        assert_eq!(failing(&says(Some(&[42]))), [RULE]);
        assert_eq!(failing(&stopped), [RULE]);
        assert_eq!(failing(&says(Some(&[41, 42]))), [""; 0]);
    }

    #[test]
    fn without_a_job_there_is_nothing_to_check() {
        let machine = machine("jobs-none", &[]);
        machine.write("slurm/.keep", "");
        let all = steps(&FsRoot::at(machine.path()), &machine.path().join("slurm"), &says(Some(&[])));
        assert!(!all.iter().any(Step::fails) && all.iter().filter(|step| step.checked).count() == 1, "{all:?}");
        assert_eq!(job_of("/slurm/uid_1000/job_7/step_0"), Some(7));
        assert_eq!(job_of("/system.slice/n1_slurmstepd.scope/job_8"), Some(8));
        assert_eq!((job_of("/user.slice/job_9"), job_of("/slurm/job_x")), (None, None));
        assert_eq!(named(&[1, 2, 3, 4, 5, 6, 7]), "jobs 1, 2, 3, 4, 5 and 2 more");
    }
}
