//! The place of a program: CPUs, a control group with a limit, a folder; and how its real progress is counted.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Period of the CPU limit.
const PERIOD_US: f64 = 20_000.0;

/// A program's command in `PATH`, or in the usual folders of servers.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin"]).map(|folder| Path::new(folder).join(tool)).find(|file| file.exists())
}

/// The place of one program. Ends all that it started.
pub struct Place {
    pub dir: PathBuf,
    cpus: usize,
    group: Option<PathBuf>,
}

impl Place {
    pub fn new(cpus: usize) -> Self {
        let id = std::process::id();
        let dir = std::env::temp_dir().join(format!("cotenant-proxies-{id}"));
        fs::create_dir_all(&dir).expect("a folder");
        let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new);
        let group = roots.into_iter().find_map(|root| {
            let group = root.join(format!("cotenant-proxies-{id}"));
            fs::create_dir(&group).ok()?;
            let limits = ["cpu.cfs_quota_us", "cpu.max"].iter().any(|file| group.join(file).exists());
            limits.then_some(group.clone()).or_else(|| fs::remove_dir(&group).ok().and(None))
        });
        Self { dir, cpus, group }
    }

    fn cpu_list(&self) -> &'static str {
        if self.cpus == 1 { "0" } else { "0,1" }
    }

    /// A command on these CPUs, in the group.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Command {
        let group = self.group.as_ref().map(|group| format!("echo $$ > {}/cgroup.procs; ", group.display()));
        let script = format!("{}exec taskset -c {} \"$@\"", group.unwrap_or_default(), self.cpu_list());
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).args(words).current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub fn finish(&self, words: &[&str]) -> io::Result<()> {
        let mut command = self.command(words);
        let done = command.stderr(Stdio::inherit()).status()?.success();
        if done { Ok(()) } else { Err(io::Error::other(format!("{words:?} failed"))) }
    }

    /// Writes a file into the folder.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        fs::write(self.dir.join(name), content)
    }

    /// Limits CPU time; returns whether that is possible.
    pub fn limit(&self, share: f64) -> bool {
        let Some(group) = &self.group else { return share == 1.0 };
        let quota = (PERIOD_US * share * self.cpus as f64) as u64;
        if group.join("cpu.max").exists() {
            let text = if share < 1.0 { format!("{quota} {PERIOD_US}") } else { "max".to_owned() };
            return fs::write(group.join("cpu.max"), text).is_ok();
        }
        let text = if share < 1.0 { quota.to_string() } else { "-1".to_owned() };
        fs::write(group.join("cpu.cfs_period_us"), PERIOD_US.to_string()).is_ok()
            && fs::write(group.join("cpu.cfs_quota_us"), text).is_ok()
    }

    /// This many busy loops on each of the CPUs.
    pub fn busy(&self, loops: usize) -> Vec<Ended> {
        let list = self.cpu_list().split(',');
        let each = list.flat_map(|cpu| std::iter::repeat_n(cpu, loops));
        each.map(|cpu| {
            let mut command = Command::new("taskset");
            command.args(["-c", cpu, "sh", "-c", "while :; do :; done"]);
            Ended(command.spawn().expect("sh starts"))
        })
        .collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            let deadline = Instant::now() + Duration::from_secs(20);
            while Instant::now() < deadline {
                let pids = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
                if pids.is_empty() {
                    break;
                }
                for pid in pids.lines() {
                    let _ = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = fs::remove_dir(group);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A process, killed on drop.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How progress is counted: the total so far, and its divisor.
pub enum Progress {
    /// Per second.
    Counted(Arc<AtomicU64>),
    /// Per second, by the program in a file that it maps.
    Mapped(fs::File),
    /// Requests per nanosecond of waiting.
    Waited { requests: Arc<AtomicU64>, ns: Arc<AtomicU64> },
}

/// A program that runs.
pub struct Running {
    child: Ended,
    progress: Progress,
    begin: Instant,
    /// Makes its clients stop.
    over: Arc<AtomicBool>,
}

impl Running {
    pub fn new(child: Child, progress: Progress, over: Arc<AtomicBool>) -> Self {
        Self { child: Ended(child), progress, begin: Instant::now(), over }
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    pub fn lives(&mut self) -> bool {
        matches!(self.child.0.try_wait(), Ok(None))
    }

    pub fn progress(&self) -> [f64; 2] {
        let seconds = self.begin.elapsed().as_secs_f64();
        match &self.progress {
            Progress::Counted(done) => [done.load(Ordering::Relaxed) as f64, seconds],
            Progress::Mapped(file) => {
                let mut bytes = [0; 8];
                let _ = file.read_exact_at(&mut bytes, 0);
                [u64::from_ne_bytes(bytes) as f64, seconds]
            }
            Progress::Waited { requests, ns } => [requests, ns].map(|count| count.load(Ordering::Relaxed) as f64),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A program that repeatedly reads `data` from a pipe: bytes read.
pub fn fed(place: &Place, words: &[&str], data: Vec<u8>) -> io::Result<Running> {
    let mut child = place.command(words).stdin(Stdio::piped()).spawn()?;
    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (mut pipe, count) = (child.stdin.take().expect("it is piped"), done.clone());
    std::thread::spawn(move || {
        for chunk in data.chunks(16 << 10).cycle() {
            if pipe.write_all(chunk).is_err() {
                return; // it has ended
            }
            count.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
    });
    Ok(Running::new(child, Progress::Counted(done), over))
}

/// A program whose output is read as fast as it prints: bytes.
pub fn drained(place: &Place, words: &[&str]) -> io::Result<Running> {
    let mut child = place.command(words).stdout(Stdio::piped()).spawn()?;
    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (mut pipe, count) = (child.stdout.take().expect("it is piped"), done.clone());
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(got @ 1..) = pipe.read(&mut buffer) {
            count.fetch_add(got as u64, Ordering::Relaxed);
        }
    });
    Ok(Running::new(child, Progress::Counted(done), over))
}

/// Number of units so far according to a line.
pub type Units = fn(&str) -> Option<u64>;

/// A program whose lines are counted, or some lines of which give a count.
pub fn told(place: &Place, words: &[&str], units: Option<Units>) -> io::Result<Running> {
    let mut child = place.command(words).stdout(Stdio::piped()).spawn()?;
    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (pipe, count) = (child.stdout.take().expect("it is piped"), done.clone());
    std::thread::spawn(move || {
        for (line, before) in BufReader::new(pipe).lines().map_while(Result::ok).zip(0..) {
            if let Some(now) = units.map_or(Some(before + 1), |units| units(&line)) {
                count.store(now, Ordering::Relaxed);
            }
        }
    });
    Ok(Running::new(child, Progress::Counted(done), over))
}

/// A program that counts its units in the first eight bytes of a file that it maps, `counter` in its folder.
pub fn mapped(place: &Place, words: &[&str]) -> io::Result<Running> {
    place.file("counter", [0; 4096])?;
    let child = place.command(words).spawn()?;
    Ok(Running::new(child, Progress::Mapped(fs::File::open(place.dir.join("counter"))?), Arc::default()))
}
