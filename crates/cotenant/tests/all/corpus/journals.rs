//! Journals and claims as templates: names of the original processes, boot and control groups are `{NAME}`, filled in
//! for living ones of this machine. All other bytes are the release's.
//!
//! `{p0.pid}`, `{p0t0.tid}` and `{p0t0.start}` are a process, one of its threads and when that began; `{own}`,
//! `{cpu}` and `{other}` masks; `{v1}`, `{v2}`, `{v1cpu}` and `{resctrl}` our own group in that hierarchy.

use crate::world::{self, Pin, State};
use cotenant_testing::Player;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The CRC-32 of IEEE 802.3 of a line, as appended to it.
fn sealed(text: &str) -> String {
    format!("{text}\t{:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// A thread's start, in clock ticks since boot, and session from `/proc`.
pub fn start_and_session(pid: u32, tid: u32) -> (u64, u32) {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    (fields[19].parse().unwrap(), fields[3].parse().unwrap())
}

/// Boot, host and pid namespace, as a header names them.
fn here() -> [(&'static str, String); 3] {
    let line = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let id = line("/etc/machine-id");
    let host = if id.is_empty() { line("/proc/sys/kernel/hostname") } else { id };
    let pidns = fs::metadata("/proc/self/ns/pid").unwrap().ino().to_string();
    [("boot", line("/proc/sys/kernel/random/boot_id")), ("host", host), ("pidns", pidns)]
}

/// The name of this boot and pid namespace in files.
fn tag() -> String {
    let [(_, boot), _, (_, pidns)] = here();
    format!("{}-{pidns}", &boot[..8])
}

/// Our own group in a hierarchy; `None` without one.
pub fn home(hierarchy: &str) -> Option<PathBuf> {
    let (kind, controller) = match hierarchy {
        "v1" => ("cgroup", "freezer"),
        "v1cpu" => ("cgroup", "cpu"),
        _ => ("cgroup2", ""),
    };
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|words| {
        words[2] == kind && (controller.is_empty() || words[3].split(',').any(|option| option == controller))
    })?[1];
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        words.next()?.split(',').any(|name| name == controller).then(|| words.next())?
    })?;
    Some(Path::new(mount).join(path.trim_start_matches('/')))
}

/// Without the slash at the end of the top-level group.
fn plain(home: &Path) -> String {
    home.to_str().unwrap().trim_end_matches('/').to_owned()
}

/// Values of placeholders.
pub type Facts = BTreeMap<String, String>;

/// Makes a journal that was found a template.
pub fn template(journal: &str, pin: Option<&Pin>) -> String {
    let mut threads: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let (mut processes, mut template, mut owner) = (Vec::new(), String::new(), String::new());
    for line in journal.lines() {
        let (text, _) = line.rsplit_once('\t').unwrap();
        assert_eq!(sealed(text).trim_end(), line, "its checksum holds");
        let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let mut process = |pid: &str| {
            let known = processes.iter().position(|known| known == pid);
            known.unwrap_or_else(|| {
                processes.push(pid.to_owned());
                processes.len() - 1
            })
        };
        match words[0].as_str() {
            "set" => {
                let p = process(&words[3]);
                // The first thread is the leader, which the others have no order among.
                let tids = threads.entry(p as u32).or_insert_with(|| vec![words[3].clone()]);
                let t = tids.iter().position(|tid| *tid == words[1]).unwrap_or_else(|| {
                    tids.push(words[1].clone());
                    tids.len() - 1
                });
                let pin = pin.expect("masks are set where there is a choice");
                let mask = |mask: &str| match mask {
                    _ if mask == pin.own => "{own}".to_owned(),
                    _ if mask == pin.cpu => "{cpu}".to_owned(),
                    _ if mask == pin.other => "{other}".to_owned(),
                    _ => panic!("{mask}"),
                };
                words[1] = format!("{{p{p}t{t}.tid}}");
                words[2] = format!("{{p{p}t{t}.start}}");
                words[3] = format!("{{p{p}.pid}}");
                words[4] = format!("{{p{p}.session}}");
                "{now}".clone_into(&mut words[5]);
                words[6] = mask(&words[6]);
                words[7] = mask(&words[7]);
            }
            "left" => {
                let of = |(p, tids): (&u32, &Vec<String>)| Some((*p, tids.iter().position(|tid| *tid == words[1])?));
                let (p, t) = threads.iter().find_map(of).unwrap();
                words[1] = format!("{{p{p}t{t}.tid}}");
                words[2] = format!("{{p{p}t{t}.start}}");
            }
            "stop" | "cont" => {
                let p = process(&words[1]);
                words[1] = format!("{{p{p}.pid}}");
                words[2] = format!("{{p{p}t0.start}}");
            }
            "group" => {
                let name = match words[1].as_str() {
                    "1" => "v1",
                    "1cpu" => "v1cpu",
                    "resctrl" => "resctrl",
                    _ => "v2",
                };
                let home = if name == "resctrl" { PathBuf::from("/sys/fs/resctrl") } else { home(name).unwrap() };
                let home = plain(&home);
                for word in &mut words[2..] {
                    *word = word.replace(&home, &format!("{{{name}}}")).replace(&owner, "{owner.pid}-{owner.start}");
                }
            }
            "ungroup" => {
                for name in ["v1", "v1cpu", "v2"] {
                    let Some(home) = home(name) else { continue };
                    let home = plain(&home);
                    words[1] = words[1].replace(&home, &format!("{{{name}}}"));
                }
                words[1] = words[1].replace(&owner, "{owner.pid}-{owner.start}");
            }
            _ => {
                owner = words.last().unwrap().strip_prefix("owner=").unwrap().replace(':', "-");
                for (word, (key, _)) in words[1..].iter_mut().zip(here()) {
                    *word = format!("{key}={{{key}}}");
                }
                "owner={owner.pid}:{owner.start}".clone_into(words.last_mut().unwrap());
            }
        }
        template += &words.join(" ");
        template.push('\n');
    }
    template
}

/// Fills a template in.
pub fn fill(template: &str, facts: &Facts) -> String {
    facts.iter().fold(template.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// Facts known without looking at a process: this boot, and an ended Cotenant.
pub fn dead_owner() -> Facts {
    let mut child = Command::new("true").spawn().unwrap();
    let owner = child.id();
    child.wait().unwrap();
    let mut facts: Facts = here().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    facts.insert("owner.pid".to_owned(), owner.to_string());
    facts.insert("owner.start".to_owned(), "1".to_owned());
    for name in ["v1", "v2", "v1cpu"] {
        if let Some(home) = home(name) {
            facts.insert(name.to_owned(), plain(&home));
        }
    }
    facts
}

/// Adds a process and its threads as `p0` and so on.
pub fn know(facts: &mut Facts, p: usize, pid: u32) {
    let mut tids: Vec<u32> = fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    tids.sort_by_key(|tid| (*tid != pid, *tid));
    let mut add = |name: String, value: String| facts.insert(name, value);
    for (t, tid) in tids.into_iter().enumerate() {
        let (start, session) = start_and_session(pid, tid);
        add(format!("p{p}t{t}.tid"), tid.to_string());
        add(format!("p{p}t{t}.start"), start.to_string());
        add(format!("p{p}.session"), session.to_string());
        add("now".to_owned(), start.to_string());
    }
    add(format!("p{p}.pid"), pid.to_string());
}

/// The folder where a test's Cotenant keeps its state.
fn state_folder(state: &State) -> PathBuf {
    let folder = if world::is_root() { state.path().to_owned() } else { state.path().join("cotenant") };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

/// Puts a filled-in journal where the next Cotenant finds it.
pub fn lay(state: &State, template: &str, facts: &Facts, torn: &str) {
    let text: String = fill(template, facts).lines().map(sealed).collect();
    assert!(!text.contains('{'), "all is filled in: {text}");
    let name = format!("journal-{}-{}-{}", tag(), facts["owner.pid"], facts["owner.start"]);
    fs::write(state_folder(state).join(name), text + torn).unwrap();
}

/// The same of the list of claims.
pub fn lay_claims(state: &State, template: &str, facts: &Facts) {
    fs::write(state_folder(state).join(format!("claims-{}", tag())), fill(template, facts)).unwrap();
}

/// The journal, or the claims, in that place.
pub fn found(state: &State, kind: &str) -> String {
    let files = fs::read_dir(state_folder(state)).unwrap().flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(kind) && path.extension().is_none()
    };
    let paths: Vec<PathBuf> = files.filter(named).collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    fs::read_to_string(&paths[0]).unwrap()
}

/// A control group of a test, with a process in it; removed on drop.
pub struct Groups(pub Vec<PathBuf>);

impl Groups {
    /// `None`, with a message, if none can be created.
    pub fn make(paths: &[PathBuf]) -> Option<Self> {
        let mut groups = Self(Vec::new());
        for path in paths {
            if let Err(why) = fs::create_dir(path) {
                world::skip_in_part(&format!("{}: {why}", path.display()));
                return None;
            }
            groups.0.push(path.clone());
        }
        Some(groups)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.0.iter().rev().for_each(|path| drop(fs::remove_dir(path)));
    }
}

/// A process that leads a session of its own.
pub fn leader() -> Player {
    let mut command = Command::new("setsid");
    command.arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped());
    Player::start(command)
}
