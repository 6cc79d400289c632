//! Slurm: the control groups of jobs, written by the prolog, and a table of jobs' observed usage.
//!
//! The control socket's folder also has `slurm` with one file per job, written by the prolog and removed by the epilog,
//! and the table `slurm.tsv`. The time in the table shows readers whether it is still updated. A restarted daemon
//! begins with it.

use crate::containers::{CONTAINERS, Containers, Told};
use crate::node::{Node, ResourceKind};
use cotenant_linux::bounded::{self, Limit};
use cotenant_linux::undo::secure_dir;
use cotenant_setup::replace::replace;
use cotenant_status::status::Status;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The first words of a table, before its time.
const HEAD: &str = "cotenant-slurm\t1\t";

/// Time between two tables.
const WRITE: Duration = Duration::from_secs(10);

/// Jobs of a node, workloads of a table, and bytes of a name.
const JOBS: usize = CONTAINERS;
const WORKLOADS: usize = 512;
const NAME: usize = 253;

/// Control groups that a job may have.
const GROUPS: usize = 8;

/// A sample has at least the weight of one in so many, so that old samples fade.
const MEMORY: u64 = 512;

/// Jobs are dropped so many seconds after their last run.
const OLDEST: u64 = 7 * 24 * 3_600;

/// The user before the name of a profile.
fn user_of(workload: &str) -> &str {
    workload.split_once('.').map_or(workload, |(user, _)| user)
}

/// The usage of a node by jobs of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Use {
    /// Seconds of observation, and those with counted bandwidth.
    samples: u64,
    counted: u64,
    /// CPUs.
    cpus: f64,
    /// Bytes per second from memory.
    bandwidth: f64,
    /// Time of the last observation, seconds since 1970.
    last: u64,
}

impl Use {
    fn add(&mut self, cpus: f64, bandwidth: Option<f64>, now: u64) {
        let mean = |mean: &mut f64, samples: &mut u64, value: f64| {
            *samples += 1;
            *mean += (value - *mean) / (*samples).min(MEMORY) as f64;
        };
        mean(&mut self.cpus, &mut self.samples, cpus);
        if let Some(bandwidth) = bandwidth {
            mean(&mut self.bandwidth, &mut self.counted, bandwidth);
        }
        self.last = now;
    }
}

/// The observed usage of jobs, by the name of their workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table(BTreeMap<String, Use>);

impl Table {
    fn add(&mut self, workload: &str, cpus: f64, bandwidth: Option<f64>, now: u64) {
        if !self.0.contains_key(workload) && self.0.len() >= WORKLOADS {
            // Of the user with the most, so that no user takes the places of others by many names for jobs.
            let mut of_user: BTreeMap<&str, usize> = BTreeMap::new();
            self.0.keys().for_each(|name| *of_user.entry(user_of(name)).or_default() += 1);
            let goes = self.0.iter().min_by_key(|(name, used)| (Reverse(of_user[user_of(name)]), used.last));
            goes.map(|(name, _)| name.clone()).and_then(|name| self.0.remove(&name));
        }
        self.0.entry(workload.to_owned()).or_default().add(cpus, bandwidth, now);
    }

    /// Its text at a time.
    fn text(&self, name: &str, node: &Node, now: u64) -> String {
        let share = |what: ResourceKind| {
            let of = node.shared.iter().filter(|shared| shared.what == what);
            let (used, capacity) = of.fold((Some(0.0), 0.0), |(used, capacity), shared| {
                (used.zip(shared.used).map(|(sum, used)| sum + used), capacity + shared.capacity)
            });
            let share = used.filter(|_| capacity > 0.0).map(|used| used / capacity);
            share.map_or_else(|| "-".to_owned(), |share| format!("{share:.3}"))
        };
        let mut text = format!("{HEAD}{now}\n");
        let _ = writeln!(text, "node\t{name}\t{}\t{}", share(ResourceKind::Cores), share(ResourceKind::Memory));
        for (name, used) in self.0.iter().filter(|(_, used)| now.saturating_sub(used.last) < OLDEST) {
            let bandwidth = if used.counted > 0 { format!("{:.0}", used.bandwidth) } else { "-".to_owned() };
            let Use { samples, counted, cpus, last, .. } = used;
            let _ = writeln!(text, "workload\t{name}\t{samples}\t{cpus:.3}\t{counted}\t{bandwidth}\t{last}");
        }
        text
    }

    /// The content of an earlier table; `None` if it is invalid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (head, rows) = text.split_once('\n')?;
        head.strip_prefix(HEAD)?.parse::<u64>().ok()?;
        let mut table = Self::default();
        for row in rows.lines().filter(|row| !row.starts_with("node\t")) {
            let mut fields = row.split('\t');
            let mut next = || fields.next();
            let is_workload = next()? == "workload";
            let name = next().filter(|name| !name.is_empty() && name.len() <= NAME && !name.contains(char::is_control));
            let name = name?.to_owned();
            let (samples, cpus) = (next()?.parse().ok()?, amount(next()?)?);
            let (counted, bandwidth): (u64, &str) = (next()?.parse().ok()?, next()?);
            let bandwidth = if counted > 0 { amount(bandwidth)? } else { 0.0 };
            let last = next()?.parse().ok()?;
            let is_whole = is_workload && next().is_none() && table.0.len() < WORKLOADS;
            table.0.insert(name, Use { samples, counted, cpus, bandwidth, last }).is_none().then_some(())?;
            is_whole.then_some(())?;
        }
        Some(table)
    }
}

/// A finite number that is not negative.
fn amount(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)
}

/// The jobs of this node and their table.
pub(crate) struct Slurm {
    jobs: PathBuf,
    file: PathBuf,
    /// The name of this node.
    node: String,
    /// Jobs by number, with each control group that they may have.
    told: BTreeMap<u32, Vec<Told>>,
    known: Arc<Containers>,
    table: Table,
    written: Instant,
}

impl Slurm {
    /// Begins with the table next to a control socket. The second value is the reason of its refusal.
    ///
    /// # Errors
    /// Errors of making the folder for jobs.
    pub fn begin(socket: &Path) -> io::Result<(Self, Option<String>)> {
        let (jobs, file) = (socket.with_file_name("slurm"), socket.with_file_name("slurm.tsv"));
        secure_dir(&jobs)?;
        let before = match bounded::text(&file, Limit::Value) {
            Ok(text) => Table::parse(&text),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Some(Table::default()),
            Err(_) => None,
        };
        let remark = before.is_none().then(|| format!("{} is not a table of ours; a new one is begun", file.display()));
        let node = bounded::host_name();
        let node: String = node.split('.').next().unwrap_or_default().chars().take(NAME).collect();
        let node = node.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_', "-");
        let node = if node.is_empty() { "localhost".to_owned() } else { node };
        let (told, known, written) = (BTreeMap::new(), Arc::default(), Instant::now());
        Ok((Self { jobs, file, node, told, known, table: before.unwrap_or_default(), written }, remark))
    }

    /// Lists the present jobs; returns errors of new ones. A file never changes: it is renamed to its name once
    /// complete.
    ///
    /// # Errors
    /// Errors of listing the folder.
    pub fn look(&mut self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(&self.jobs)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let there: std::collections::BTreeSet<u32> = names.filter_map(|name| name.parse().ok()).take(JOBS).collect();
        let before = self.told.len();
        self.told.retain(|job, _| there.contains(job));
        let mut changed = self.told.len() < before;
        let mut remarks = Vec::new();
        for job in there {
            if self.told.contains_key(&job) {
                continue;
            }
            let read = bounded::read(self.jobs.join(job.to_string()), Limit::Value);
            let read = read.map_err(|why| why.to_string());
            let told = |bytes: Vec<u8>| {
                let all = serde_json::Deserializer::from_slice(&bytes).into_iter();
                let all = all.take(GROUPS).map(|told| told.map(|told| Told { job: true, ..told }));
                let all = all.collect::<Result<Vec<Told>, _>>().map_err(|why| why.to_string())?;
                if all.is_empty() { Err("its file is empty".to_owned()) } else { Ok(all) }
            };
            match read.and_then(told) {
                Ok(told) => {
                    self.told.insert(job, told);
                    changed = true;
                }
                Err(why) => remarks.push(format!("slurm: job {job} is not known: {why}")),
            }
        }
        if changed {
            let (known, taken) = Containers::new(self.told.values().flatten().cloned().collect());
            self.known = Arc::new(known);
            remarks.extend(taken.remarks.into_iter().map(|remark| format!("slurm: {remark}")));
        }
        Ok(remarks)
    }

    /// The present jobs.
    pub fn jobs(&self) -> &Arc<Containers> {
        &self.known
    }

    /// Adds the services' status, once a second; writes the table when due, from fresh samples.
    ///
    /// # Errors
    /// Errors of writing it.
    pub fn tell(&mut self, status: &Status, node: impl FnOnce() -> Node) -> io::Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if status.is_stale() {
            return Ok(());
        }
        for service in &status.services {
            let workload = service.container.as_ref().and_then(|of| of.workload.as_ref());
            if let (Some(workload), Some(cpus)) = (workload, service.cpus) {
                self.table.add(workload, cpus, service.bandwidth, now);
            }
        }
        let due = self.written.elapsed() >= WRITE || !self.file.exists();
        let Some(node) = due.then(node) else { return Ok(()) };
        self.written = Instant::now();
        replace(&self.file, self.table.text(&self.node, &node, now).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::SharedResource;
    use cotenant_model::Mode;
    use cotenant_status::identity::Identity;
    use cotenant_status::status::ServiceStatus;
    use std::fs;

    fn node(shared: Vec<SharedResource>) -> Node {
        let (version, containers, interference) = (String::new(), Vec::new(), Vec::new());
        Node { version, mode: Mode::Observe, age_s: 0.0, shared, containers, interference }
    }

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("cotenant-slurm-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The prolog, as it is shipped, where other folders lie in place of the system's.
    #[test]
    fn the_prolog_finds_the_group_that_slurm_uses() {
        let prolog = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/slurm/prolog");
        let script = "mount --bind \"$0/cgroup\" /sys/fs/cgroup && mount --bind \"$0/run\" /run && exec \"$1\"";
        for (there, expected) in [
            ("system.slice/slurmstepd.scope", "/system.slice/slurmstepd.scope/job_7"),
            ("system.slice/n1_slurmstepd.scope", "/system.slice/n1_slurmstepd.scope/job_7"),
            ("batch.slice/slurmstepd.scope", "/batch.slice/slurmstepd.scope/job_7"),
            ("systemd/system.slice/n1_slurmstepd.scope", "/system.slice/n1_slurmstepd.scope/job_7"),
            ("hpc.slice/hpc-jobs.slice/slurmstepd.scope", "/hpc.slice/hpc-jobs.slice/slurmstepd.scope/job_7"),
            ("system.slice/n2_slurmstepd.scope", "/system.slice/slurmstepd.scope/job_7"),
            ("freezer/slurm/uid_1000", "/slurm/uid_1000/job_7"),
            ("cpuset/slurm_n1", "/slurm_n1/uid_1000/job_7"),
            // Before the first job of version 1 Slurm has no group.
            ("freezer", "/slurm_n1/uid_1000/job_7 /slurm/uid_1000/job_7"),
            ("user.slice", "/system.slice/slurmstepd.scope/job_7"),
        ] {
            let folder = folder("prolog");
            fs::create_dir_all(folder.join("cgroup").join(there)).unwrap();
            fs::create_dir_all(folder.join("run/cotenant/slurm")).unwrap();
            let mut command = std::process::Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(&folder).arg(prolog);
            command.envs([("SLURMD_NODENAME", "n1"), ("SLURM_JOB_ID", "7"), ("SLURM_JOB_UID", "1000")]);
            command.envs([("SLURM_JOB_PARTITION", "p"), ("SLURM_JOB_USER", "alice")]);
            let mut called = || command.status().is_ok_and(|status| status.success());
            if !called() {
                eprintln!("skipped: no mount namespace can be made here");
                return;
            }
            let text = fs::read_to_string(folder.join("run/cotenant/slurm/7")).unwrap();
            let told: Vec<Told> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let groups: Vec<&str> = told.iter().map(|told| told.cgroup.as_str()).collect();
            assert_eq!(groups.join(" "), expected, "{there}");
            assert!(called() && !folder.join("run/cotenant/slurm/7").exists(), "the second call is the epilog's");
            fs::remove_dir_all(&folder).unwrap();
        }
    }

    /// Holds cluster/slurm.
    #[test]
    fn a_table_says_what_is_used_and_is_read_again() {
        let mut table = Table::default();
        for (cpus, bandwidth) in [(2.0, None), (4.0, Some(3e9)), (3.0, Some(1e9))] {
            table.add("alice.sort", cpus, bandwidth, 1_000);
        }
        table.add("bob.x", 1.0, None, OLDEST + 999);
        let shared = |what, capacity, used| SharedResource { what, name: String::new(), capacity, used };
        let memory = [shared(ResourceKind::Memory, 2e9, Some(1e9)), shared(ResourceKind::Memory, 2e9, Some(2e9))];
        let cores = shared(ResourceKind::Cores, 8.0, Some(2.0));
        let text = table.text("n1", &node([&memory[..], &[cores]].concat()), OLDEST + 999);
        let both = "workload\talice.sort\t3\t3.000\t2\t2000000000\t1000\nworkload\tbob.x\t1\t1.000\t0\t-\t605799\n";
        assert_eq!(text, format!("cotenant-slurm\t1\t605799\nnode\tn1\t0.250\t0.750\n{both}"));
        assert_eq!(Table::parse(&text).unwrap(), table);
        let later = table.text("n1", &node(Vec::new()), OLDEST + 1_000);
        let one = "workload\tbob.x\t1\t1.000\t0\t-\t605799\n";
        assert_eq!(later, format!("cotenant-slurm\t1\t605800\nnode\tn1\t-\t-\n{one}"), "one was seen last a week ago");
    }

    /// Holds cluster/slurm.
    #[test]
    fn what_is_no_table_is_none() {
        let good = "workload\ta\t1\t1\t1\t1\t1";
        assert!(Table::parse(&format!("{HEAD}5\n{good}\n")).is_some());
        for rows in [
            "workload\ta\t1\t1\t1\t1",
            "workload\ta\t1\t1\t1\t1\t1\t1",
            "workload\t\t1\t1\t1\t1\t1",
            "workload\ta\t1\tNaN\t1\t1\t1",
            "workload\ta\t1\t-1\t1\t1\t1",
            "workload\ta\t-1\t1\t1\t1\t1",
            "workload\ta\u{1b}[2J\t1\t1\t1\t1\t1",
            "job\ta\t1\t1\t1\t1\t1",
            &format!("{good}\n{good}"),
        ] {
            assert_eq!(Table::parse(&format!("{HEAD}5\n{rows}\n")), None, "{rows:?}");
        }
        for text in ["", "x", "cotenant-slurm\t2\t5\n", "cotenant-slurm\t1\t\n", "cotenant-slurm\t1\t5"] {
            assert_eq!(Table::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_table_is_bounded_and_what_was_seen_longest_ago_goes() {
        let mut table = Table::default();
        for i in 0..WORKLOADS as u64 + 3 {
            table.add(&format!("w{i}"), 1.0, None, i);
        }
        assert_eq!(table.0.len(), WORKLOADS);
        assert!(!table.0.contains_key("w2") && table.0.contains_key("w3"));
        // Names without end for one's own jobs take one's own places.
        let mut table = Table::default();
        (0..20).for_each(|i| table.add(&format!("alice.{i}"), 1.0, None, i));
        (0..2 * WORKLOADS as u64).for_each(|i| table.add(&format!("mallory.{i}"), 1.0, None, 100 + i));
        let of = |user| table.0.keys().filter(|name| user_of(name) == user).count();
        assert_eq!((of("alice"), of("mallory")), (20, WORKLOADS - 20));
        let mut used = Use::default();
        (0..100 * MEMORY).for_each(|_| used.add(1.0, None, 0));
        (0..8 * MEMORY).for_each(|_| used.add(3.0, None, 0));
        assert!(used.cpus > 2.99, "what was long ago is forgotten: {}", used.cpus);
    }

    /// Holds cluster/slurm.
    #[test]
    fn jobs_come_and_go_and_a_restarted_daemon_remembers_what_they_used() {
        let folder = folder("jobs");
        let socket = folder.join("control.sock");
        let (mut slurm, remark) = Slurm::begin(&socket).unwrap();
        assert_eq!(remark, None);
        let jobs = folder.join("slurm");
        let job = |id: u32, cgroup: &str| {
            let told = format!(r#"{{"cgroup":"{cgroup}","namespace":"p","pod":"{id}","container":"sort"}}"#);
            fs::write(jobs.join(id.to_string()), told).unwrap();
        };
        job(7, "/system.slice/slurmstepd.scope/job_7");
        job(8, "no path");
        fs::write(jobs.join("9"), "{").unwrap();
        let both = ["slurm", "slurm_n1"].map(|name| {
            format!(
                "{{\"cgroup\":\"/{name}/uid_0/job_10\",\"namespace\":\"p\",\"pod\":\"10\",\"container\":\"first\"}}\n"
            )
        });
        fs::write(jobs.join("10"), both.concat()).unwrap();
        fs::write(jobs.join(".draft"), "{").unwrap();
        let remarks = slurm.look().unwrap();
        assert_eq!((slurm.jobs().len(), remarks.len()), (3, 2), "{remarks:?}");
        for name in ["slurm", "slurm_n1"] {
            let found = slurm.jobs().around(&format!("/{name}/uid_0/job_10/step_0")).map(|found| found.name());
            assert_eq!(found.unwrap(), "p/10/first");
        }
        let known =
            |slurm: &Slurm| slurm.jobs().around("/system.slice/slurmstepd.scope/job_7/step_0").map(|c| c.name());
        assert_eq!(known(&slurm).unwrap(), "p/7/sort");
        assert!(slurm.jobs().around("/system.slice/slurmstepd.scope/job_7").unwrap().identity.job);
        fs::remove_file(jobs.join("7")).unwrap();
        slurm.look().unwrap();
        assert_eq!(known(&slurm), None);

        let container = Identity { workload: Some("alice.sort".to_owned()), ..Identity::default() };
        let service = ServiceStatus {
            container: Some(container),
            cpus: Some(2.0),
            bandwidth: Some(1e9),
            ..ServiceStatus::default()
        };
        let status = Status { services: vec![service], ..Status::of_nobody(Instant::now()) };
        slurm.tell(&status, || node(Vec::new())).unwrap();
        let stale = Status { sample_age_s: 60.0, ..status.clone() };
        fs::remove_file(folder.join("slurm.tsv")).unwrap();
        slurm.tell(&stale, || panic!("stale samples are not told")).unwrap();
        slurm.tell(&status, || node(Vec::new())).unwrap();
        let (again, remark) = Slurm::begin(&socket).unwrap();
        assert_eq!((again.table.0["alice.sort"].samples, remark), (2, None));
        fs::write(folder.join("slurm.tsv"), [0xff, 0xfe]).unwrap();
        let (anew, remark) = Slurm::begin(&socket).unwrap();
        assert!(anew.table.0.is_empty() && remark.is_some());
        fs::remove_dir_all(&folder).unwrap();
    }
}
