//! Services and their rules, on made-up machines.

use super::*;
use crate::config::Config;
use crate::containers::{Told, tests::told};
use cotenant_linux::FsRoot;
use cotenant_linux::sys::Subuids;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;

/// A machine from processes: id, parent, control group, program.
struct Machine(PathBuf);

impl Machine {
    fn new(test: &str, processes: &[(u32, u32, &str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("cotenant-services-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for (pid, parent, cgroup, program) in processes {
            let folder = root.join(format!("proc/{pid}"));
            fs::create_dir_all(&folder).unwrap();
            let rest = ["0"; 40].join(" ");
            fs::write(folder.join("stat"), format!("{pid} (x) S {parent} 1 1 0 -1 0 {rest}\n")).unwrap();
            fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
            symlink(program, folder.join("exe")).unwrap();
        }
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::write(root.join("proc/self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
        Self(root)
    }

    /// The kernel's name of a process.
    fn call(&self, pid: u32, comm: &str) {
        let path = self.0.join(format!("proc/{pid}/stat"));
        let stat = fs::read_to_string(&path).unwrap();
        fs::write(path, stat.replacen("(x)", &format!("({comm})"), 1)).unwrap();
    }

    /// The services by name: the rule, and the processes.
    fn find(&self, rules: &str, own: u32) -> Vec<(String, usize, String)> {
        let found = self.services(rules, Vec::new(), own);
        let what = |target: &Target| match target {
            Target::Cgroup(path) => path.strip_prefix(&self.0).unwrap().display().to_string(),
            Target::Trees(pids) | Target::Pids(pids) => format!("{pids:?}"),
        };
        found.into_values().map(|s| (s.name, s.rule, what(&s.target))).collect()
    }

    fn services(&self, rules: &str, told: Vec<Told>, own: u32) -> BTreeMap<String, Service> {
        fs::write(self.0.join("c.toml"), rules).unwrap();
        let config = Config::read(Some(&self.0.join("c.toml"))).unwrap();
        let mut census = Census::new(FsRoot::at(&self.0));
        census.look().unwrap();
        find(&config.rules, &census, &Containers::new(told).0, own).0
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn rule(name: &str, matches: &str, class: &str) -> String {
    format!("[[rule]]\nname = \"{name}\"\nmatch = {{ {matches} }}\nclass = \"{class}\"\n")
}

fn found(services: &[(&str, usize, &str)]) -> Vec<(String, usize, String)> {
    services.iter().map(|(name, rule, what)| ((*name).to_owned(), *rule, (*what).to_owned())).collect()
}

/// Holds daemon/rules.
#[test]
fn the_first_rule_that_matches_says_what_belongs_together() {
    let machine = Machine::new(
        "rules",
        &[
            (1, 0, "/init.scope", "/sbin/init"),
            (10, 1, "/system.slice/nginx.service", "/usr/sbin/nginx"),
            (11, 10, "/system.slice/nginx.service", "/usr/sbin/nginx"),
            (20, 1, "/system.slice/system-pg.slice/pg@16.service", "/usr/bin/postgres"),
            (21, 20, "/system.slice/system-pg.slice/pg@16.service/sub", "/usr/bin/postgres"),
            (30, 1, "/batch.slice/a/b", "/opt/job (deleted)"),
            (31, 1, "/user.slice/user-7.slice/session-1.scope", "/opt/job"),
            (32, 31, "/user.slice/user-7.slice/session-1.scope", "/opt/job"),
        ],
    );
    let units = rule("units", "unit = \"*.service\"", "normal");
    let both = [
        ("nginx.service", 0, "sys/fs/cgroup/system.slice/nginx.service"),
        ("pg@16.service", 0, "sys/fs/cgroup/system.slice/system-pg.slice/pg@16.service"),
    ];
    assert_eq!(machine.find(&units, 0), found(&both));
    // A slice is a unit, too, and the innermost matching one counts.
    let slice = rule("pg", "unit = \"system-pg.slice\"", "low");
    assert_eq!(machine.find(&slice, 0), found(&[("system-pg.slice", 0, "sys/fs/cgroup/system.slice/system-pg.slice")]));
    let batch = rule("batch", "cgroup = \"/batch.slice/**\"", "low");
    assert_eq!(machine.find(&batch, 0), found(&[("b", 0, "sys/fs/cgroup/batch.slice/a/b")]));
    assert_eq!(machine.find(&rule("a", "cgroup = \"/batch.slice/*\"", "low"), 0), [], "* stays in its folder");
    // Programs: descendants belong to their ancestor; several processes with the same program are one service.
    let jobs = rule("jobs", "command = \"job\"", "normal");
    assert_eq!(machine.find(&jobs, 0), found(&[("job", 0, "[30, 31]")]));
    let nginx = rule("web", "unit = \"nginx.service\", command = \"/usr/sbin/*\"", "ignore") + &units;
    let ignored = (both[0].0, 0, both[0].2);
    assert_eq!(machine.find(&nginx, 0), found(&[ignored, (both[1].0, 1, both[1].2)]), "and is nobody else's");
    assert_eq!(machine.find(&units, 11), found(&both[1..]), "we are in it");
}

/// A container that is restarted in its pod has the same name.
#[test]
fn what_has_another_control_group_is_another_one() {
    let machine = Machine::new(
        "elsewhere",
        &[(10, 1, "/pods/a/1", "/batch"), (11, 1, "/pods/a/2", "/batch"), (12, 1, "/x", "/job"), (13, 1, "/x", "/job")],
    );
    let at = |cgroup: &str| Told { cgroup: cgroup.to_owned(), ..told("shop", "a", "main") };
    let batch = |cgroup| machine.services(&rule("a", "pod = \"a\"", "low"), vec![at(cgroup)], 0).remove("shop/a/main");
    let [first, second] = ["/pods/a/1", "/pods/a/2"].map(|cgroup| batch(cgroup).unwrap());
    assert_eq!(first.ends_as(&second), Some("its control group has changed"));
    assert_eq!(first.ends_as(&first), None);
    let unknown = Service { container: None, ..first.clone() };
    assert_eq!(unknown.ends_as(&first), Some("it is another container"));
    let mixed = Service { mixed: true, ..first.clone() };
    assert!(first.ends_as(&mixed).is_some_and(|why| why.contains("can be throttled")));
    let job = machine.services(&rule("j", "command = \"job\"", "low"), Vec::new(), 0).remove("job").unwrap();
    let later = Service { target: Target::Trees(vec![13]), ..job.clone() };
    assert_eq!(job.ends_as(&later), None, "processes are followed");
}

#[test]
fn only_containers_of_pods_are_kept_from_the_background() {
    let machine = Machine::new("enforcer", &[(10, 1, "/pods/a/main", "/batch")]);
    let by = |told: Vec<Told>| {
        let found = machine.services(&rule("all", "cgroup = \"/pods/**\"", "low"), told, 0);
        found.into_values().next().unwrap().enforcer()
    };
    let pod = told("shop", "a", "main");
    assert_eq!(by(vec![pod.clone()]), Enforcer::Outside);
    assert_eq!(by(vec![Told { job: true, ..pod }]), Enforcer::Auto);
    assert_eq!(by(Vec::new()), Enforcer::Auto);
}

#[test]
fn containers_are_found_by_what_the_bridge_tells() {
    let machine = Machine::new(
        "containers",
        &[
            (10, 1, "/pods/db-0/postgres", "/usr/bin/postgres"),
            (11, 10, "/pods/db-0/postgres/inner", "/usr/bin/postgres"),
            (12, 1, "/pods/db-0/proxy", "/envoy"),
            (13, 1, "/pods/job-7/main", "/batch"),
            (14, 1, "/pods/db-0", "/pause"),
            (15, 1, "/system.slice/a.service", "/a"),
        ],
    );
    let list = || {
        let mut list = vec![told("shop", "db-0", "postgres"), told("shop", "db-0", "proxy")];
        list.push(Told { class: Some("low".to_owned()), ..told("batch", "job-7", "main") });
        list
    };
    let found = |rules: &str| -> Vec<(String, usize, Class, usize)> {
        let found = machine.services(rules, list(), 0);
        found.into_values().map(|s| (s.name, s.rule, s.terms.class, s.summary.processes)).collect()
    };
    let one = |name: &str, rule, class, processes| (name.to_owned(), rule, class, processes);
    let database = rule("db", "namespace = \"sh*\", container = \"postgres\"", "high");
    let rest = rule("rest", "namespace = \"*\"", "normal");
    let postgres = one("shop/db-0/postgres", 0, Class::High, 2);
    assert_eq!(
        found(&(database.clone() + &rest)),
        [one("batch/job-7/main", 1, Class::Normal, 1), postgres.clone(), one("shop/db-0/proxy", 1, Class::Normal, 1)]
    );
    assert_eq!(found(&rule("l", "label = { app = \"job-*\" }", "low")), [one("batch/job-7/main", 0, Class::Low, 1)]);
    assert_eq!(found(&rule("none", "label = { tier = \"*\" }", "low")), []);
    let allowed = rest.clone() + "annotations = [\"class\"]\n";
    assert_eq!(found(&allowed)[0], one("batch/job-7/main", 0, Class::Low, 1));
    // Services found by their control group have their known name, too.
    assert_eq!(found(&rule("g", "cgroup = \"/pods/db-0/postgres\"", "high")), [(postgres.0, 0, Class::High, 1)]);
    let nobody = machine.services(&(database + &rest), Vec::new(), 0);
    assert!(nobody.is_empty(), "nobody has told of them yet: {nobody:?}");
}

/// Whoever pauses a control group pauses all that is in it.
#[test]
fn who_is_not_to_wait_is_not_below_whoever_is() {
    let machine = Machine::new(
        "mixed",
        &[
            (10, 1, "/batch.slice/sort.service", "/sort"),
            (11, 1, "/batch.slice/ssh.service", "/sshd"),
            (12, 1, "/jobs.slice/a.service", "/a"),
            (13, 1, "/jobs.slice/a.service/inner", "/a"),
            (14, 1, "/jobs.slice/b.service", "/b"),
            (15, 1, "/jobs.slice/b.service/inner", "/unnamed"),
        ],
    );
    let mixed = |rules: &str| -> Vec<(String, bool)> {
        machine.services(rules, Vec::new(), 0).into_values().map(|s| (s.name, s.mixed)).collect()
    };
    let one = |name: &str, mixed| vec![(name.to_owned(), mixed)];
    let slice = rule("batch", "unit = \"batch.slice\"", "low");
    assert_eq!(mixed(&slice), one("batch.slice", false));
    let ssh = |class| rule("ssh", "unit = \"ssh.service\"", class) + &slice;
    assert_eq!(mixed(&ssh("ignore"))[0], ("batch.slice".to_owned(), true));
    assert_eq!(mixed(&ssh("high"))[0], ("batch.slice".to_owned(), true));
    let jobs = rule("jobs", "cgroup = \"/jobs.slice/**\"", "low");
    assert!(mixed(&jobs).iter().all(|(_, mixed)| !mixed), "all of them are to wait");
    // Nor is a service without a rule.
    for narrow in ["unit = \"b.service\", command = \"/b\"", "cgroup = \"/jobs.slice/b.service\""] {
        assert_eq!(mixed(&rule("b", narrow, "low")), one("b.service", true), "{narrow}");
    }
}

/// A program's descendants come with it, but not those that are another rule's, that opted out, or that are ours.
#[test]
fn whom_another_rule_names_comes_with_nobody() {
    let processes = [
        (10, 1, "/x", "/batch"),
        (11, 10, "/x", "/child"),
        (12, 11, "/x", "/important"),
        (13, 12, "/x", "/helper"),
        (14, 10, "/x", "/batch"),
    ];
    let machine = Machine::new("trees", &processes);
    let batch = rule("batch", "command = \"batch\"", "low");
    let found = |rules: &str, own| {
        let found = machine.services(rules, Vec::new(), own);
        let what = |s: Service| (s.name, format!("{:?}", s.target), s.mixed);
        found.into_values().map(what).collect::<Vec<_>>()
    };
    let one = |name: &str, target: &str, mixed| (name.to_owned(), target.to_owned(), mixed);
    assert_eq!(found(&batch, 0), [one("batch", "Trees([10])", false)]);
    let other = rule("other", "command = \"important\"", "normal");
    let apart = one("batch", "Pids([10, 11, 14])", true);
    assert_eq!(found(&(other + &batch), 0), [apart.clone(), one("important", "Trees([12])", false)]);
    let ignored = rule("i", "command = \"important\"", "ignore") + &batch;
    assert_eq!(found(&ignored, 0)[0], apart);
    // The guardian has the same program as the daemon.
    let all = rule("all", "user = \"root\"", "low");
    if sys::euid() == 0 {
        let ours: Vec<_> = machine.services(&all, Vec::new(), 12).into_values().flat_map(|s| s.members).collect();
        assert!(!ours.contains(&12) && !ours.contains(&13) && ours.contains(&11), "{ours:?}");
    }
    // Under the same rule each has its own program, including processes started by the other.
    let both = rule("both", "command = \"{batch,important}\"", "low");
    assert!(found(&both, 0).iter().all(|(.., mixed)| !mixed));
    // Opting out counts from the second look on: before, the process may still be about to execute its program.
    fs::write(machine.0.join("proc/11/environ"), "COTENANT=off\0").unwrap();
    fs::write(machine.0.join("c.toml"), &batch).unwrap();
    let config = Config::read(Some(&machine.0.join("c.toml"))).unwrap();
    let mut census = Census::new(FsRoot::at(&machine.0));
    let targets = [(); 2].map(|()| {
        census.look().unwrap();
        let (found, whose) = find(&config.rules, &census, &Containers::default(), 0);
        let service = found.into_values().next().unwrap();
        (format!("{:?}", service.target), service.has_lost(&[10, 11, 12, 14], &whose, &census))
    });
    assert_eq!(targets, [("Trees([10])".to_owned(), false), ("Pids([10, 14])".to_owned(), true)]);
}

#[test]
fn who_moves_to_another_control_group_belongs_to_it_no_more() {
    let machine = Machine::new("moved", &[(10, 1, "/a.slice", "/a"), (11, 1, "/a.slice/b", "/b")]);
    fs::write(machine.0.join("c.toml"), rule("a", "unit = \"a.slice\"", "normal")).unwrap();
    let config = Config::read(Some(&machine.0.join("c.toml"))).unwrap();
    let mut census = Census::new(FsRoot::at(&machine.0));
    let mut has_lost = |group: &str| {
        fs::write(machine.0.join("proc/11/cgroup"), format!("0::{group}\n")).unwrap();
        census.look().unwrap();
        let (found, whose) = find(&config.rules, &census, &Containers::default(), 0);
        found["a.slice"].has_lost(&[10, 11, 12], &whose, &census)
    };
    assert_eq!(["/a.slice/b", "/a.slice2", "/a.slice"].map(&mut has_lost), [false, true, false]);
    // Later looks read it rarely, so that a returning process does not count as lost.
    for _ in 0..4 {
        assert!(has_lost("/elsewhere"));
    }
    assert!(!has_lost("/a.slice"));
}

#[test]
fn nobody_takes_the_places_of_others() {
    let user = sys::euid() + 1;
    // They also act as other users.
    let table = format!("{user}:200000:65536\n");
    let parties = Parties(Subuids::parse(&table, "").into());
    let mut found = BTreeMap::new();
    for (uid, number, letter) in [(user, OF_ONE + 9, 'a'), (200_000, 9, 'c'), (sys::euid(), SERVICES - OF_ONE + 1, 'b')]
    {
        let names = (0..number).map(|i| format!("{letter}{i:04}"));
        found.extend(names.map(|name| (name.clone(), Service::called(&name, &name, uid))));
    }
    // A managed one of theirs stays; of the others, the first by name.
    let last = format!("a{:04}", OF_ONE + 8);
    let remarks = fit(&mut found, |name| name == last || name == "b0000", &parties);
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    let of = format!("more than 512 services of user {} match; as many", sys::user_name(user));
    assert!(remarks[0].starts_with(&of), "{remarks:?}");
    let theirs = found.values().filter(|service| service.uid != sys::euid()).count();
    assert_eq!((found.len(), theirs, found.contains_key(&last)), (SERVICES, OF_ONE - 1, true), "the machine's first");
    assert!(fit(&mut found, |_| false, &parties).is_empty());
}

/// `COTENANT=off` of one process exempts a program's processes of the same user only, but a whole control group, which
/// is managed as one.
/// Holds daemon/rules.
#[test]
fn of_a_program_nobody_opts_out_for_another_user() {
    if sys::euid() != 0 {
        eprintln!("skipped: only root sees other users' processes");
        return;
    }
    let machine = Machine::new("opted-out", &[(10, 1, "/a", "/db"), (11, 1, "/a", "/db"), (12, 1, "/a", "/db")]);
    let rules = rule("db", "command = \"db\"", "normal");
    let owners = || -> Vec<(String, u32)> {
        let found = machine.services(&rules, Vec::new(), 0);
        found.into_values().map(|s| (format!("{:?}", s.target), s.uid)).collect()
    };
    assert_eq!(owners(), [("Trees([10, 11, 12])".to_owned(), 0)]);
    fs::write(machine.0.join("proc/10/environ"), "A=b\0COTENANT=off\0").unwrap();
    assert_eq!(owners(), [], "all are one user's");
    for pid in [10, 11] {
        chown(machine.0.join(format!("proc/{pid}")), Some(7), None).unwrap();
    }
    assert_eq!(owners(), [("Trees([12])".to_owned(), 0)]);
    let slice = rule("a", "cgroup = \"/a\"", "low");
    assert!(machine.services(&slice, Vec::new(), 0).is_empty(), "one of its members does for the whole group");
}

/// Holds daemon/rules.
#[test]
fn nobody_becomes_important_by_the_name_of_a_program() {
    if sys::euid() != 0 {
        eprintln!("skipped: only root manages other users' processes");
        return;
    }
    let machine = Machine::new("programs", &[(10, 1, "/a", "/x"), (11, 1, "/b", "/x"), (12, 1, "/c", "/x")]);
    for (pid, owner, mode) in [(10, 0, 0o755), (11, 7, 0o755), (12, 0, 0o777)] {
        let folder = machine.0.join(format!("files/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("postgres");
        fs::write(&file, "").unwrap();
        chown(&file, Some(owner), None).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let exe = machine.0.join(format!("proc/{pid}/exe"));
        fs::remove_file(&exe).unwrap();
        symlink(file, exe).unwrap();
    }
    chown(machine.0.join("proc/11"), Some(7), None).unwrap();
    let pids = |rules: &str| -> Vec<(String, usize)> {
        machine.find(rules, 0).into_iter().map(|(_, rule, pids)| (pids, rule)).collect()
    };
    let pid = |pids: &str, rule: usize| (pids.to_owned(), rule);
    let by_name = rule("pg", "command = \"postgres\"", "high");
    assert_eq!(pids(&by_name), [pid("[10]", 0)]);
    assert_eq!(pids(&rule("pg", "command = \"/**/postgres\"", "high")), [pid("[10]", 0)], "nor by a path");
    // Nor do they evade a rule meant for them.
    let both = by_name.clone() + &rule("rest", "command = \"*\"", "low");
    assert_eq!(pids(&both), [pid("[10]", 0), pid("[11]", 1), pid("[12]", 1)]);
    assert_eq!(pids(&rule("pg", "command = \"postgres\", user = \"7\"", "high")), [pid("[11]", 0)], "they are meant");
    assert_eq!(pids(&rule("pg", "command = \"postgres\"", "normal")).len(), 3);
    // Users can mount the file under another name.
    for (folder, namespace) in [("proc/self", "1"), ("proc/10", "2")] {
        fs::create_dir_all(machine.0.join(folder).join("ns")).unwrap();
        symlink(namespace, machine.0.join(folder).join("ns/user")).unwrap();
    }
    assert_eq!(pids(&by_name), []);
}

/// As Debian has redis: the file is `redis-check-rdb`, `redis-server` a link to it.
#[test]
fn a_program_is_meant_by_the_name_that_people_know() {
    let machine = Machine::new("called", &[(10, 1, "/a", "/x"), (11, 1, "/b", "/x"), (12, 1, "/c", "/bin/dash")]);
    let file = machine.0.join("usr/bin/redis-check-rdb");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "").unwrap();
    symlink("redis-check-rdb", machine.0.join("usr/bin/redis-server")).unwrap();
    fs::write(machine.0.join("usr/bin/elsewhere"), "").unwrap();
    for (pid, comm, program) in [(10, "redis-server", "redis-check-rdb"), (11, "redis-server", "elsewhere")] {
        machine.call(pid, comm);
        let exe = machine.0.join(format!("proc/{pid}/exe"));
        fs::remove_file(&exe).unwrap();
        symlink(file.with_file_name(program), exe).unwrap();
    }
    machine.call(12, "nightly-report");
    let pids = |matches: &str, class| -> Vec<(String, String)> {
        let services = machine.find(&rule("a", matches, class), 0);
        services.into_iter().map(|(name, _, pids)| (name, pids)).collect()
    };
    let all = |of: &[(&str, &str)]| -> Vec<(String, String)> {
        of.iter().map(|(name, pids)| ((*name).to_owned(), (*pids).to_owned())).collect()
    };
    let root = sys::euid() == 0;
    let redis = "command = \"redis-server\"";
    if root {
        let both = all(&[("/usr/bin/redis-server", "[10]"), ("redis-server", "[11]")]);
        assert_eq!(pids(redis, "low"), both, "whatever says so gives way");
        assert_eq!(pids("command = \"/usr/bin/redis-server\"", "high"), all(&[("redis-server", "[10]")]));
        assert_eq!(pids(redis, "high"), all(&[("redis-server", "[10]")]), "that alone is proven");
        let in_group = "command = \"redis-server\", cgroup = \"/*\"";
        assert_eq!(pids(in_group, "high"), all(&[("a", "sys/fs/cgroup/a")]), "nor does its group become important");
        assert_eq!(pids("command = \"redis-server\", user = \"0\"", "high").len(), 2, "its user is meant");
    } else {
        eprintln!("skipped in part: only root's links prove anything");
        assert_eq!(pids(redis, "low"), all(&[("redis-server", "[10, 11]")]));
    }
    let script = "command = \"nightly-*\"";
    assert_eq!(pids(script, "low"), all(&[("nightly-report", "[12]")]));
    assert_eq!(pids(script, "high").is_empty(), root);
}

/// Users name units of their own service managers as they like, and so do containers that run one.
/// Holds daemon/rules.
#[test]
fn nobody_becomes_important_by_the_name_of_a_unit() {
    let own = "/user.slice/user-7.slice/user@7.service/app.slice/pg@16.service";
    let inside = "/machine.slice/libpod-1.scope/system.slice/pg@16.service";
    let machine = Machine::new(
        "units",
        &[
            (10, 1, "/system.slice/pg@16.service", "/usr/bin/postgres"),
            (11, 1, own, "/home/mallory/mine"),
            (12, 1, inside, "/usr/bin/postgres"),
        ],
    );
    let folder = "sys/fs/cgroup/system.slice/pg@16.service";
    let high = rule("pg", "unit = \"pg@*\"", "high");
    // Nor do they match a later rule, which was not meant for them.
    let both = high.clone() + &rule("rest", "unit = \"*.service\"", "low");
    if sys::euid() == 0 {
        for rules in [&high, &both] {
            assert_eq!(machine.find(rules, 0), found(&[("pg@16.service", 0, folder)]));
        }
    }
    let named = rule("pg", "unit = \"pg@*\", cgroup = \"/user.slice/**\"", "high");
    assert_eq!(machine.find(&named, 0).len(), 1, "who names the folder means it");
    assert_eq!(machine.find(&rule("pg", "unit = \"pg@*\"", "normal"), 0).len(), 3);
}

#[test]
fn services_of_the_same_name_are_called_by_their_paths() {
    let machine = Machine::new(
        "names",
        &[(2, 1, "/a.slice/x.service", "/a"), (3, 1, "/b.slice/x.service", "/b"), (4, 1, "/y.service", "/c")],
    );
    let names: Vec<String> =
        machine.find(&rule("all", "unit = \"*.service\"", "normal"), 0).into_iter().map(|s| s.0).collect();
    assert_eq!(names, ["/a.slice/x.service", "/b.slice/x.service", "y.service"]);
    // An ignored service takes no name from managed ones.
    let rules = rule("a", "cgroup = \"/a.slice/**\"", "ignore") + &rule("all", "unit = \"*.service\"", "normal");
    let names: Vec<String> = machine.find(&rules, 0).into_iter().map(|s| s.0).collect();
    assert_eq!(names, ["/a.slice/x.service", "x.service", "y.service"]);
    // A user's unit with the name of a machine's unit changes only its own name.
    let own = "/user.slice/user-7.slice/user@7.service/app.slice/x.service";
    let machine = Machine::new("names-of-users", &[(2, 1, "/a.slice/x.service", "/a"), (3, 1, own, "/b")]);
    let all = rule("all", "unit = \"*.service\"", "normal");
    let names: Vec<String> = machine.find(&all, 0).into_iter().map(|s| s.0).collect();
    assert_eq!(names, [own, "x.service"]);
}
