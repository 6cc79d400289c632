//! Writes a corpus with the tested binary, for `scripts/corpus`.

use super::journals::{self, Facts};
use super::{commands, corpus, interface, replayed, simulated};
use crate::world::{self, Manager, Pin, State, signal};
use cotenant_testing::{Player, TempDir, eventually};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn write_the_corpus() {
    if std::env::var_os("COTENANT_CORPUS").is_none() {
        return world::skip("scripts/corpus asks for it");
    }
    write_recordings();
    write_journals();
    write_ledger();
    write_measurements();
    // The commands read the others' files.
    write_tables();
}

/// A folder with the files for the commands, and their program `./program`.
pub fn folder() -> TempDir {
    let folder = TempDir::new("corpus");
    assert!(Command::new("cp").arg("-r").arg(corpus().join("inputs/.")).arg(folder.path()).status().unwrap().success());
    symlink(std::env::current_exe().unwrap(), folder.path().join("program")).unwrap();
    folder
}

/// Starts the binary in that folder.
fn start(state: &State, folder: &Path, words: &[String]) -> Manager {
    Manager::start(command(state, folder, words))
}

fn command(state: &State, folder: &Path, words: &[String]) -> Command {
    let mut command = state.cotenant(&words.iter().map(String::as_str).collect::<Vec<_>>());
    command.current_dir(folder).env("XDG_DATA_HOME", folder.join("data")).stdin(Stdio::null());
    command
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(|word| word.replace("${IFS}", " ")).collect()
}

/// A server for probes of redis and HTTP, whose answer is a number.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 1024];
                while let Ok(read) = stream.read(&mut buffer)
                    && read > 0
                {
                    let http = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n42.5";
                    let said = String::from_utf8_lossy(&buffer[..read]);
                    let answer = match said.strip_prefix("PING ").map(str::trim_end) {
                        Some(word) => format!("${}\r\n{word}\r\n", word.len()),
                        None => http.to_owned(),
                    };
                    if stream.write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    port
}

/// Live runs: the name of the recording, and the command line, with the program as `{ROLE}`.
fn runs() -> Vec<(String, String)> {
    let registry = cotenant_policies::standard();
    let policies = registry.names().filter(|name| !["fifo", "mas", "cas", "das"].contains(name));
    let policy = |name: &str| {
        let map = if name == "static" { "--map XX --pin cpu --cpus {cpu}" } else { "" };
        let near = ["weighted", "brute-force", "assignment", "overhead"].contains(&name);
        let profile = if near { "near.toml --collector accessed --collector-budget 20" } else { "thresholds.toml" };
        let line = format!(
            "run -q --policy {name} {map} --profile {profile} --profiles apps.toml --interval 50ms \
             --record run-{name}.rec -- {{high:600}}"
        );
        (format!("run-{name}"), line)
    };
    let port = server();
    let other = [
        ("run-atom-turns", "run -q --policy atom --atom turn=50ms,rounds=2,settle=10%,all --interval 10ms --record {rec} -- {high:900}".to_owned()),
        ("run-advise", "run -q --mode advise --policy static --map XX --pin cpu --cpus {cpu} --interval 50ms --record {rec} -- {high:300}".to_owned()),
        ("run-redacted", "run -q --policy static --map XX --pin cpu --cpus {cpu} --interval 50ms --record {rec} --record-redacted -- {high:300}".to_owned()),
        ("run-limit", "run -q --policy none --interval 5ms --record {rec} --record-limit 12K -- {high:3000}".to_owned()),
        (
            "run-metrics",
            format!(
                "run -q --policy atom --interval 20ms --record {{rec}} --metric cmd:echo${{IFS}}5,name=command,every=50ms,higher \
                 --metric log:numbers:seconds=([0-9.]+),lower,name=file,every=50ms \
                 --metric http://127.0.0.1:{port}/,lower,name=page,every=50ms \
                 --metric redis:{port}:p99,every=50ms --metric http:{port}/:p99,name=answers,every=50ms -- {{high:900}}"
            ),
        ),
        ("record-observe", "record -q --interval 50ms -o {rec} -- {high:400}".to_owned()),
        ("attach-static", "attach -q --policy static --map XX --pin cpu --cpus {cpu} --interval 20ms --record {rec} -p {pid}".to_owned()),
        ("qos-tracking", "qos -q --time 3s --high {high:0} --low {busy:0} --record {rec}".to_owned()),
        ("qos-targeted", "qos -q --time 3s --high {high:0} --low {marked:0} --controller targeted --record {rec}".to_owned()),
        ("qos-simple", "qos -q --time 1s --high {high:0} --low {marked:0} --low {busy:0} --controller simple:1e17,1e18,4/1/0 --record {rec}".to_owned()),
        ("qos-steady-latency", "qos -q --time 4s --high {high:0} --low {busy:0} --low {marked:0} --metric latency_p99_s --goal 95% --record {rec}".to_owned()),
        ("qos-steady-metric", format!("qos -q --time 3s --high {{high:0}} --low {{busy:0}} --metric redis:{port}:p99,every=50ms --record {{rec}}")),
        ("qos-quota", "qos -q --time 4s --high {tied:0} --low {busy-tied:0} --means quota --record {rec}".to_owned()),
        ("qos-outside", "qos -q --time 2s --high {high:0} --low {busy:0} --means outside --record {rec}".to_owned()),
        ("qos-conservative", "qos -q --time 3s --high {high:0} --low {busy:0} --metric latency_p50_s --record {rec} --record-redacted".to_owned()),
        ("qos-advise", "qos -q --time 1s --mode advise --high {high:0} --low {busy:0} --record {rec}".to_owned()),
    ];
    policies.map(policy).chain(other.map(|(name, line)| (name.to_owned(), line))).collect()
}

fn write_recordings() {
    let to = corpus().join("recordings");
    let apps = fs::read_to_string(corpus().join("inputs/apps.toml")).unwrap();
    for (name, bytes) in simulated::recordings(&apps) {
        fs::write(to.join(format!("{name}.rec")), bytes).unwrap();
    }
    let pin = Pin::find().expect("two CPUs to choose from");
    for (name, line) in runs() {
        let (state, folder) = (State::new("corpus-write"), folder());
        let file = folder.path().join(format!("{name}.rec"));
        fs::write(folder.path().join("numbers"), "seconds=0.25\n").unwrap();
        let mut target = line.contains("{pid}").then(|| start_program("threads:2", folder.path()));
        let pid = target.as_mut().map(|target| target.hear("ready")).unwrap_or_default();
        let role = |word: &str| -> Vec<String> {
            let Some(role) = word.strip_prefix('{').and_then(|word| word.strip_suffix('}')).filter(|r| r.contains(':'))
            else {
                return vec![
                    word.replace("{cpu}", &pin.cpu).replace("{rec}", &format!("{name}.rec")).replace("{pid}", &pid),
                ];
            };
            let tied = if role.contains("tied") { format!("taskset -c {} ", pin.cpu) } else { String::new() };
            let role = role.replace("-tied", "").replace("tied", "high");
            if name.starts_with("qos") {
                return vec![format!(
                    "COTENANT_CORPUS_ROLE={role} exec {tied}./program --exact corpus::program --nocapture >/dev/null"
                )];
            }
            ["env", &format!("COTENANT_CORPUS_ROLE={role}"), "./program", "--exact", "corpus::program", "--nocapture"]
                .map(str::to_owned)
                .to_vec()
        };
        let words: Vec<String> = words(&line).iter().flat_map(|word| role(word)).collect();
        let manager = start(&state, folder.path(), &words);
        if let Some(target) = &mut target {
            eventually("it is placed", || state.journals() > 0);
            let len = || fs::metadata(&file).map_or(0, |meta| meta.len());
            let before = len();
            eventually("some rounds more are recorded", || len() > before);
            target.kill();
        }
        let out = manager.output();
        let said = String::from_utf8_lossy(&out.stderr);
        if out.status.code() == Some(2) {
            world::skip_in_part(&format!("{name}: {said}"));
            continue;
        }
        fs::copy(&file, to.join(format!("{name}.rec"))).unwrap_or_else(|e| panic!("{name}: {e}: {said}"));
    }
    // Its writer was killed.
    let (state, folder) = (State::new("corpus-write"), folder());
    let manager =
        start(&state, folder.path(), &words("run -q --policy none --interval 20ms --record a.rec -- sleep 3"));
    let len = || fs::metadata(folder.path().join("a.rec")).map_or(0, |meta| meta.len());
    eventually("it has begun", || len() > 0);
    let header = len();
    eventually("a second is on disk", || len() > header + 100);
    signal("KILL", manager.pid());
    manager.output();
    fs::copy(folder.path().join("a.rec"), to.join("run-killed.rec")).unwrap();
}

/// Kills Cotenant and its guardian, so that neither makes up for the other.
fn kill_both(manager: Manager) {
    let guardian = manager.guardian().expect("it is there before the first change");
    for name in ["STOP", "KILL"] {
        signal(name, manager.pid());
        signal(name, guardian);
    }
    manager.output();
    eventually("the guardian has ended", || world::comm(guardian).is_empty());
}

fn write_template(name: &str, state: &State, pin: Option<&Pin>) {
    let journal = journals::found(state, "journal-");
    fs::write(corpus().join(format!("journals/{name}.journal")), journals::template(&journal, pin)).unwrap();
    let restored = state.cotenant(&["restore"]).output().unwrap();
    assert!(restored.status.success(), "{name}: {}", String::from_utf8_lossy(&restored.stdout));
}

fn write_journals() {
    let pin = Pin::find().expect("two CPUs to choose from");
    let folder = folder();
    let state = State::new("corpus-masks");
    let (mut many, one) = (start_program("threads:3", folder.path()), journals::leader());
    let pid: u32 = many.hear("ready").parse().unwrap();
    let manager = state.attach(&pin, &format!("{pid},{}", one.pid()));
    world::settle("all are placed", pid, &pin.cpu);
    world::settle("it is placed", one.pid(), &pin.cpu);
    let claims = journals::found(&state, "claims-");
    // Another agent takes one of them over.
    let set = Command::new("taskset").args(["-cp", &pin.other, &one.pid().to_string()]).output().unwrap();
    assert!(set.status.success());
    eventually("Cotenant leaves it", || journals::found(&state, "journal-").contains("\nleft "));
    let owner = manager.pid();
    let began = journals::start_and_session(owner, owner).0;
    kill_both(manager);
    write_template("masks", &state, Some(&pin));
    let mut known = Facts::new();
    journals::know(&mut known, 0, pid);
    journals::know(&mut known, 1, one.pid());
    let mut template = claims.replace(&format!("{owner} {began} "), "{owner.pid} {owner.start} ");
    for p in [0, 1] {
        let (pid, start) = (&known[&format!("p{p}.pid")], &known[&format!("p{p}t0.start")]);
        template = template.replace(&format!("{pid} {start}\n"), &format!("{{p{p}.pid}} {{p{p}t0.start}}\n"));
    }
    fs::write(corpus().join("journals/claims"), template).unwrap();
    drop((many, one));

    // Jobs that end, that go on, and one with a process in a session of its own.
    for pause in ["signals", "v1", "v2"] {
        let state = State::new("corpus-pauses");
        let loops = "while [ -e going ]; do sleep 0.01; done";
        fs::write(folder.path().join("going"), "").unwrap();
        fs::write(folder.path().join("list"), format!("true\n{loops}\nsetsid sh -c '{loops}' & {loops}\n")).unwrap();
        let line = format!(
            "schedule -q --policy mas --quantum 10ms --jobs 9 --cpus {} --pause {pause} --logs {pause} list",
            pin.cpu
        );
        let manager = start(&state, folder.path(), &words(&line));
        let text = || if state.journals() == 0 { String::new() } else { journals::found(&state, "journal-") };
        eventually("all are known", || {
            if pause == "signals" {
                let stray = |line: &str| line.starts_with("stop ") && line.contains(" 0\t");
                return text().contains("\ncont ") && text().lines().any(stray);
            }
            let ledger = fs::read_to_string(folder.path().join(format!("{pause}/state.jsonl"))).unwrap_or_default();
            text().contains("\ngroup ") && ledger.matches("started").count() == 3
        });
        kill_both(manager);
        write_template(&format!("pause-{pause}"), &state, Some(&pin));
        fs::remove_file(folder.path().join("going")).unwrap();
    }

    // An external group whose name needs escapes.
    let group = journals::home("v1").unwrap().join("corpus a%b");
    let groups = journals::Groups::make(std::slice::from_ref(&group)).unwrap();
    let (state, high, low) = (State::new("corpus-foreign"), journals::leader(), journals::leader());
    fs::write(group.join("cgroup.procs"), low.pid().to_string()).unwrap();
    let line = format!("qos -q --high-pid {} --metric cmd:echo${{IFS}}1,every=20ms --low-cgroup", high.pid());
    let manager = start(&state, folder.path(), &[words(&line), vec![group.to_str().unwrap().to_owned()]].concat());
    eventually("it is known", || state.journals() > 0 && journals::found(&state, "journal-").contains("\ngroup "));
    kill_both(manager);
    write_template("pause-foreign", &state, Some(&pin));
    drop((high, low, groups));

    // Limits of CPU time.
    let (state, high) = (State::new("corpus-quota"), journals::leader());
    let line = format!(
        "qos -q --high-pid {} --metric cmd:echo${{IFS}}1,every=20ms --means quota --low true --low cat",
        high.pid()
    );
    let mut command = state.cotenant(&words(&line).iter().map(String::as_str).collect::<Vec<_>>());
    command.current_dir(folder.path());
    let manager = Manager::start(command);
    eventually("both are known, and the group to freeze", || {
        state.journals() > 0 && journals::found(&state, "journal-").matches("\ngroup ").count() == 3
    });
    kill_both(manager);
    write_template("quota", &state, Some(&pin));
}

/// A queue that was killed: one job has ended well, one has failed, one runs, and one was never started.
fn write_ledger() {
    let (state, folder) = (State::new("corpus-ledger"), folder());
    fs::write(folder.path().join("going"), "").unwrap();
    let ledger = folder.path().join("jobs.toml.logs/state.jsonl");
    let manager = start(&state, folder.path(), &words("schedule -q --policy fifo --jobs 1 jobs.toml"));
    eventually("the third job runs", || fs::read_to_string(&ledger).is_ok_and(|text| text.contains("{\"job\":2,")));
    let pid = manager.pid();
    signal("KILL", pid);
    manager.output();
    let text = fs::read_to_string(&ledger).unwrap();
    fs::remove_file(folder.path().join("going")).unwrap();
    let line = text.lines().find(|line| line.contains("\"job\":2,")).unwrap();
    let value: serde_json::Value = serde_json::from_str(line).unwrap();
    let (pid, start) = (&value["started"]["pid"], &value["started"]["start"]);
    let template = line.replace(&format!(":{pid},"), ":{p0.pid},").replace(&format!(":{start}}}"), ":{p0t0.start}}");
    fs::write(corpus().join("journals/state.jsonl"), text.replace(line, &template)).unwrap();
}

/// Profiles of this machine and of a program, regions, and JSON that reports read.
fn write_measurements() {
    let (state, folder) = (State::new("corpus-measure"), folder());
    for line in [
        "calibrate --quick -o machine.toml",
        "characterize -q -n busy --runs 2 --by cpu-time --kernels bst-4mb --at-once 2 -- sh busy.sh",
        "characterize -q -n busy --only corun --runs 2 --by time --kernels bst-4mb -o busy.toml -- sh busy.sh",
        "regions -q --source cachegrind -o regions.toml -- true",
    ] {
        let out = command(&state, folder.path(), &words(line)).output().unwrap();
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    }
    for file in ["machine.toml", "busy.toml", "regions.toml"] {
        fs::copy(folder.path().join(file), corpus().join("inputs").join(file)).unwrap();
    }
    let stored = corpus().join("data/cotenant/profiles/corpus");
    fs::create_dir_all(&stored).unwrap();
    let of_this_machine = fs::read_dir(folder.path().join("data/cotenant/profiles")).unwrap().next().unwrap().unwrap();
    fs::copy(of_this_machine.path().join("busy.toml"), stored.join("busy.toml")).unwrap();
    commands::write_reports(&corpus().join("inputs"));
}

fn write_tables() {
    let lines = |name: &str, lines: &mut dyn Iterator<Item = String>| {
        let text: String = lines.map(|line| line + "\n").collect();
        fs::write(corpus().join(name), text).unwrap();
    };
    lines("interface.txt", &mut interface::lines().0.into_iter());
    lines("recordings.txt", &mut replayed().into_iter());
    let (table, skipped) = commands::lines(&corpus());
    assert!(skipped.is_empty(), "{skipped:?}");
    lines("commands.txt", &mut table.into_iter());
    fs::write(corpus().join("intended.txt"), "").unwrap();
}

pub fn start_program(role: &str, folder: &Path) -> Player {
    let mut command = Command::new("./program");
    command.args(["--exact", "corpus::program", "--nocapture"]).env("COTENANT_CORPUS_ROLE", role).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Player::start(command)
}
