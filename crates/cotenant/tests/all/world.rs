//! Shared by the tests: the binary in its own state folder, and a program whose threads start and end.

use cotenant_testing::{Player, TempDir, eventually};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::BufRead;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Prints why a test proves nothing here: it counts as skipped.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

/// Prints what a test omits here; the rest counts.
pub fn skip_in_part(why: &str) {
    eprintln!("skipped in part: {why}");
}

/// The target of all pins.
pub struct Pin {
    /// The original mask of a process of this test, as `/proc` shows it.
    pub own: String,
    /// The CPU to which everything is pinned.
    pub cpu: String,
    /// Another one.
    pub other: String,
    /// A map that marks every CPU.
    pub map: String,
}

/// The binary under test; `COTENANT_BINARY` names another one, such as that of a release.
pub fn binary() -> String {
    std::env::var("COTENANT_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_cotenant").to_owned())
}

impl Pin {
    /// `None`, with a message, without a choice.
    pub fn find() -> Option<Self> {
        let own = mask("/proc/self/status");
        let cpus = own.split(',').flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse::<u32>().unwrap()..=last.parse().unwrap()
        });
        let [cpu, other] =
            cpus.take(2).map(|cpu| cpu.to_string()).collect::<Vec<_>>().try_into().ok().or_else(|| {
                skip("one CPU, nothing can be placed");
                None
            })?;
        let topo = Command::new(binary()).args(["topo", "--json"]).output().unwrap().stdout;
        let topo: serde_json::Value = serde_json::from_slice(&topo).unwrap();
        let map = "X".repeat(topo["cpus"].as_u64().unwrap() as usize);
        Some(Self { own, cpu, other, map })
    }

    /// Arguments that pin everything to `cpus`.
    pub fn args<'a>(&'a self, subcommand: &'a str, cpus: &'a str) -> Vec<&'a str> {
        let policy = ["--policy", "static", "--map", &self.map, "--pin", "cpu", "--cpus", cpus, "--interval", "10ms"];
        [&[subcommand], &policy[..]].concat()
    }
}

/// Whether this user may give a command mounts of its own.
pub fn may_mount() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let script = "mkdir -p /run/cotenant && mount -t tmpfs none /run/cotenant";
        let tried = unshared(script).stderr(Stdio::null()).status();
        is_root() && tried.is_ok_and(|status| status.success())
    })
}

pub fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

fn unshared(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    command
}

/// The folder of a test's journals, for its Cotenants only. Root's is fixed, so the folder is mounted over it for
/// Cotenant only.
pub struct State {
    dir: TempDir,
    mount: &'static str,
}

impl State {
    pub fn new(test: &str) -> Self {
        Self { dir: TempDir::new(test), mount: "mount --bind \"$STATE\" /run/cotenant" }
    }

    /// One without space for a journal; `None`, with a message, if impossible.
    pub fn full(test: &str) -> Option<Self> {
        if !may_mount() {
            skip("a full disk takes the right to mount one");
            return None;
        }
        // One page: the list of claims fits, the journal does not.
        Some(Self { dir: TempDir::new(test), mount: "mount -t tmpfs -o size=4k none /run/cotenant" })
    }

    /// One that cannot be written.
    pub fn read_only(test: &str) -> Option<Self> {
        let dir = TempDir::new(test);
        if is_root() && !may_mount() {
            skip("root may write everywhere, and may not mount here");
            return None;
        }
        let mut rights = fs::metadata(dir.path()).unwrap().permissions();
        rights.set_readonly(true);
        fs::set_permissions(dir.path(), rights).unwrap();
        Some(Self { dir, mount: "mount -t tmpfs -o ro none /run/cotenant" })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Cotenant with these arguments, started by a shell after `first`. Signals have their usual effects, even if the
    /// tests' caller ignores some. Standard input and output are pipes.
    pub fn cotenant_after(&self, first: &str, args: &[&str]) -> Command {
        let cotenant = binary();
        let run = format!("{first}\nexec env --default-signal '{cotenant}' \"$@\"");
        let mut command = if may_mount() {
            unshared(&format!("mkdir -p /run/cotenant && {} || exit 99\n{run}", self.mount))
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", &run]);
            command
        };
        command.arg("cotenant").args(args).env("STATE", self.dir.path());
        // Independent of the settings of the tests' user.
        command
            .env("XDG_STATE_HOME", self.dir.path())
            .env("XDG_CONFIG_HOME", "/proc/nonexistent")
            .env_remove("XDG_DATA_HOME");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    pub fn cotenant(&self, args: &[&str]) -> Command {
        self.cotenant_after("", args)
    }

    /// Starts one that pins a process to a CPU.
    pub fn attach(&self, pin: &Pin, pid: &str) -> Manager {
        let args = [pin.args("attach", &pin.cpu), vec!["-p", pid]].concat();
        Manager::start(self.cotenant(&args))
    }

    /// Number of journals there.
    pub fn journals(&self) -> usize {
        let below = |dir: &Path| fs::read_dir(dir).map_or(0, |d| d.flatten().filter(|e| is_journal(&e.path())).count());
        below(self.path()) + below(&self.path().join("cotenant"))
    }
}

fn is_journal(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("journal-"))
}

/// A Cotenant that manages something. Killed on drop.
pub struct Manager(Option<Child>);

impl Manager {
    /// Starts one; its output is kept.
    pub fn start(mut command: Command) -> Self {
        Self(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    pub fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Its guardian, once started.
    pub fn guardian(&self) -> Option<u32> {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let mut children = children.split_whitespace().map(|word| word.parse().unwrap());
        children.find(|pid| comm(*pid) == "cotenant-guard")
    }

    /// Waits for its end and all its output.
    pub fn output(mut self) -> Output {
        let child = self.0.as_mut().unwrap();
        eventually("Cotenant ends", || child.try_wait().unwrap().is_some());
        self.0.take().unwrap().wait_with_output().unwrap()
    }

    /// Waits for its end; returns its standard error and exit code.
    pub fn end(self) -> (String, Option<i32>) {
        let out = self.output();
        (String::from_utf8_lossy(&out.stderr).into_owned(), out.status.code())
    }

    pub fn terminate(self) -> (String, Option<i32>) {
        signal("TERM", self.pid());
        self.end()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

pub fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn mask(status: impl AsRef<Path>) -> String {
    let text = fs::read_to_string(status).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap_or_default();
    line.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

/// The masks of all threads of a process, without those that ended meanwhile.
pub fn masks(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| mask(thread.path().join("status"))).filter(|mask| !mask.is_empty()).collect()
}

pub fn all_have(pid: u32, mask: &str) -> bool {
    let masks = masks(pid);
    !masks.is_empty() && masks.iter().all(|m| m == mask)
}

/// All threads of a process have that mask. A thread under creation has copied its parent's former mask, and appears
/// with it.
pub fn all_but_newborn_have(what: &str, pid: u32, mask: &str) {
    let all = masks(pid);
    let late = all.iter().filter(|m| *m != mask).count();
    assert!(!all.is_empty() && late <= 1 + all.len() / 50, "{what}: {all:?}");
}

/// Waits until all current threads of a process have that mask, and checks later ones, except for the newest, which the
/// next round places.
pub fn settle(what: &str, pid: u32, mask: &str) {
    let without = || -> BTreeSet<OsString> {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let others = threads.filter(|thread| ![mask, ""].contains(&&*self::mask(thread.path().join("status"))));
        others.map(|thread| thread.file_name()).collect()
    };
    for _ in 0..2 {
        let now = without();
        eventually(what, || now.is_disjoint(&without()));
        (0..20).for_each(|_| all_but_newborn_have(&format!("{what}, and stays so"), pid, mask));
    }
}

/// A process that waits for the end of its standard input. Killed on drop.
pub fn sleeper() -> Player {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Player::start(command)
}

/// Makes a copy of this test binary the program.
const THREADS: &str = "COTENANT_HARM_THREADS";

/// The program with this number of threads, some of them short-lived.
pub fn crowd(threads: usize) -> Player {
    let [program, args @ ..] = crowd_words(threads);
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    Player::start(command)
}

/// Its command line.
pub fn crowd_words(threads: usize) -> [String; 6] {
    let this = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let role = ["--exact", "harm::program", "--nocapture"].map(str::to_owned);
    let [a, b, c] = role;
    ["env".to_owned(), format!("{THREADS}={threads}"), this, a, b, c]
}

/// The copy prints `@ready`, then carries out commands until the end of its input.
pub fn program() {
    let Some(threads) = std::env::var(THREADS).ok().and_then(|n| n.parse::<usize>().ok()) else {
        return skip("other tests start it as a program");
    };
    let fleeting = threads.div_ceil(50);
    for _ in fleeting..threads {
        std::thread::spawn(|| {
            loop {
                std::thread::park();
            }
        });
    }
    std::thread::spawn(move || come_and_go(fleeting));
    println!("@ready {}", std::process::id());
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.as_str() {
            // Forks twice, in its own session: only its mask identifies its origin.
            "daemon" => {
                let script = "setsid sleep 1000 <&- >&- 2>&- & echo $!";
                let out = Command::new("sh").args(["-c", script]).output().unwrap();
                println!("@daemon {}", String::from_utf8_lossy(&out.stdout).trim());
            }
            // By a thread that is not the first one: it takes over the first one's id.
            "exec" => panic!("{}", Command::new("cat").exec()),
            other => panic!("{other}?"),
        }
    }
    std::process::exit(0);
}

/// Keeps this number of threads alive, each for some milliseconds.
fn come_and_go(count: usize) {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    let starter = std::thread::current();
    loop {
        while ALIVE.load(Ordering::Relaxed) >= count {
            std::thread::park();
        }
        ALIVE.fetch_add(1, Ordering::Relaxed);
        let starter = starter.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20)); // its lifetime
            ALIVE.fetch_sub(1, Ordering::Relaxed);
            starter.unpark();
        });
    }
}
