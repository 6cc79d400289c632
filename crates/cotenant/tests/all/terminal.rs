//! The binary in a real terminal, made by `script` (util-linux): job control, progress, colour.

use cotenant_testing::{TempDir, eventually};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

const COTENANT: &str = env!("CARGO_BIN_EXE_cotenant");

/// Bash writes this once the terminal is ready for a line (bracketed paste on); earlier input can get lost.
const PROMPT: &str = "\x1b[?2004h";

/// A command line in its own terminal.
struct Terminal {
    script: Child,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    /// `None`, reported, without `script` or a terminal for it.
    fn start(line: &str) -> Option<Self> {
        let probe = Command::new("script").args(["-qec", "test -t 2", "/dev/null"]).stdin(Stdio::null()).output();
        if !probe.is_ok_and(|out| out.status.success()) {
            eprintln!("skipped: no terminal from script(1)");
            return None;
        }
        let mut script = Command::new("script")
            .args(["-qec", line, "/dev/null"])
            .envs([
                ("TERM", "xterm"),
                ("LC_ALL", "C"),
                ("XDG_CONFIG_HOME", "/proc/nonexistent"),
                ("INPUTRC", "/dev/null"),
            ])
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = script.stdout.take().unwrap();
        let (to, screen) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = out.read(&mut bytes) {
                if to.send(bytes[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Some(Self { script, screen, seen: String::new() })
    }

    fn types(&mut self, keys: &str) {
        let stdin = self.script.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Waits until the screen shows it; returns and drops the output before it.
    fn shows(&mut self, text: &str) -> String {
        let end = Instant::now() + Duration::from_secs(300);
        loop {
            if let Some(at) = self.seen.find(text) {
                let before = self.seen[..at].to_owned();
                self.seen.drain(..at + text.len());
                return before;
            }
            match self.screen.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(why) => panic!("the terminal does not show '{text}' ({why}) but: {}", self.seen),
            }
        }
    }

    /// The exit code, and the terminal's output since the last look.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.script.wait().unwrap().code();
        for bytes in &self.screen {
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
        (code, std::mem::take(&mut self.seen))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn control_c_ends_the_command_and_the_summary_follows() {
    let Some(mut terminal) = Terminal::start(&format!("{COTENANT} run -- sh -c 'echo up; exec sleep 1000'")) else {
        return;
    };
    terminal.shows("up");
    terminal.types("\x03");
    terminal.shows("cotenant: managed ");
    assert_eq!(terminal.end().0, Some(130));
}

/// Holds run/transparent.
#[test]
fn control_z_stops_both_and_fg_resumes_both() {
    let Some(mut terminal) = Terminal::start("bash --norc --noprofile -i") else { return };
    terminal.shows(PROMPT);
    terminal.types(&format!("{COTENANT} run -q -- sh -c 'echo u''p; cat'\n"));
    terminal.shows("up\r\n");
    terminal.types("\x1a");
    terminal.shows("Stopped");
    terminal.shows("cat'\r\n");
    terminal.shows(PROMPT);
    terminal.types("fg; echo code $?\n");
    terminal.shows("cat'\r\n"); // fg prints the resumed command
    terminal.types("still here\n");
    terminal.shows("still here\r\nstill here");
    terminal.types("\x04");
    terminal.shows("code 0");
    terminal.shows(PROMPT);
    terminal.types("exit\n");
    assert_eq!(terminal.end().0, Some(0));
}

/// Holds run/transparent.
#[test]
fn a_full_screen_program_keeps_its_terminal() {
    let Some(mut terminal) =
        Terminal::start(&format!("{COTENANT} run -q -- sh -c 'tty; stty size; stty -echo; head -1'"))
    else {
        return;
    };
    terminal.shows("/dev/pts/");
    terminal.types("typed\n");
    terminal.shows("typed");
    assert_eq!(terminal.end().0, Some(0));
}

/// Holds run/terminal.
#[test]
fn the_table_of_a_queue_keeps_to_the_terminal() {
    let folder = std::env::temp_dir().join(format!("cotenant-terminal-queue-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("list"), "until [ -e go ]; do sleep 0.05; done\n".repeat(10)).unwrap();
    let line = format!("stty cols 40 rows 6; cd {} && {COTENANT} schedule --policy linux list", folder.display());
    let Some(mut terminal) = Terminal::start(&line) else { return };
    // A line for the cursor, one for the bar, one for the omitted jobs: three jobs are shown.
    terminal.shows("0 of 10 j…\x1b[K");
    terminal.shows("  3-until");
    terminal.shows("  and 7 more\x1b[K");
    terminal.shows("\x1b[5A\r"); // redrawn in the same place
    fs::write(folder.join("go"), "").unwrap();
    terminal.shows("\x1b[J"); // erased before other output
    terminal.shows("10 jobs under linux");
    let (code, _) = terminal.end();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(code, Some(0));
}

/// Holds run/terminal.
#[test]
fn comparing_shows_how_far_it_is() {
    let folder = std::env::temp_dir().join(format!("cotenant-terminal-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let go = folder.join("go");
    let wait = format!("until [ -e {} ]; do read -t 0.1 x <> <(:); done; true", go.display());
    let line = format!("{COTENANT} compare --runs 2 -- bash -c '{wait}'");
    let Some(mut terminal) = Terminal::start(&line) else { return };
    terminal.shows("run 1 of 4 (without), ");
    fs::write(&go, "").unwrap();
    terminal.shows("\r\x1b[K"); // erased before other output
    terminal.shows("pair   2:");
    let (code, rest) = terminal.end();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(code, Some(0));
    assert!(rest.contains("speed-up with auto"), "{rest}");
}

/// Holds run/terminal.
#[test]
fn comparing_windows_shows_how_far_it_is() {
    let line = format!(
        "sleep 1000 & {COTENANT} compare -p $! --policy none --windows 10s --metric 'cmd:echo 5'; code=$?; kill $!; exit $code"
    );
    let Some(mut terminal) = Terminal::start(&line) else { return };
    terminal.shows("managing with none: sleep (");
    terminal.shows("window 1 of 10 (with"); // one of the two
    terminal.types("\x03");
    terminal.shows("stopped after 0 of 5 pairs");
    let (code, _) = terminal.end();
    assert_eq!(code, Some(130));
}

/// Holds run/terminal.
#[test]
fn a_long_simulation_shows_how_far_it_is() {
    let folder = std::env::temp_dir().join(format!("cotenant-terminal-sim-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let scenario = "machine = 'ivy-bridge-2s'\nend_s = 1e7\n[[app]]\nprogram = 'mcf06'\nthreads = 2\nwork_s = 1e6\n";
    fs::write(folder.join("long.toml"), scenario).unwrap();
    let line = format!("exec {COTENANT} sim --policy none --seeds 1 {}/long.toml", folder.display());
    let Some(mut terminal) = Terminal::start(&line) else { return };
    terminal.shows(" simulations\x1b[K"); // long before the first one is done
    terminal.types("\x03");
    let (code, _) = terminal.end();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(code, Some(130));
}

/// Holds run/terminal.
#[test]
fn a_workload_shows_how_far_it_is_while_it_runs() {
    let folder = TempDir::new("terminal-bench");
    let wait = "until [ -e go ]; do read -t 0.1 x <> <(:); done; true";
    let file = format!(
        "[bench]\npolicies = ['auto']\nrepetitions = 1\n[[app]]\nname = 'waits'\ncommand = ['bash', '-c', '{wait}']\n"
    );
    fs::write(folder.path().join("b.toml"), file).unwrap();
    let line = format!("cd {} && {COTENANT} bench b.toml", folder.path().display());
    let Some(mut terminal) = Terminal::start(&line) else { return };
    terminal.shows("workload run 1 of "); // nothing of it has ended
    fs::write(folder.path().join("go"), "").unwrap();
    terminal.shows("throughput");
    assert_eq!(terminal.end().0, Some(0));
}

/// Holds run/terminal.
#[test]
fn characterizing_shows_how_far_it_is_while_the_command_runs() {
    let folder = TempDir::new("terminal-characterize");
    let wait = "until [ -e go ]; do read -t 0.1 x <> <(:); done; sleep 0.05";
    let line = format!(
        "cd {0} && XDG_DATA_HOME={0} {COTENANT} characterize --only corun --kernels cpu --runs 1 -n x -- bash -c \"{wait}\"",
        folder.path().display()
    );
    let Some(mut terminal) = Terminal::start(&line) else { return };
    terminal.shows("a run alone, "); // it has not ended
    fs::write(folder.path().join("go"), "").unwrap();
    terminal.shows("the profile is in");
    assert_eq!(terminal.end().0, Some(0));
}

/// Holds run/terminal.
#[test]
fn calibrating_shows_how_far_it_is() {
    let folder = TempDir::new("terminal-calibrate");
    let only = "--only clock,migration,bandwidth -o calibrated.toml";
    let line = format!("cd {} && {COTENANT} calibrate {only}", folder.path().display());
    let Some(mut terminal) = Terminal::start(&line) else { return };
    terminal.shows(" % "); // no figure of it is known yet
    terminal.shows("written to calibrated.toml");
    assert_eq!(terminal.end().0, Some(0));
}

/// The output of a command in a terminal of 80 columns, without colours.
fn shown(folder: &Path, line: &str) -> Option<String> {
    let line = format!(
        "cd {0} && export XDG_DATA_HOME={0} && stty cols 80 rows 24 && {COTENANT} {line} 2>errors",
        folder.display()
    );
    let (code, shown) = Terminal::start(&line).map(Terminal::end)?;
    let errors = fs::read_to_string(folder.join("errors")).unwrap();
    assert_eq!(code, Some(0), "{line}: {shown}{errors}");
    Some(
        ["\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"]
            .iter()
            .fold(shown, |text, code| text.replace(code, "")),
    )
}

/// Promise run/terminal: Tables fit the terminal without exponents, colour is for terminals only, and whatever takes
/// longer than 2 s shows its progress.
#[test]
fn tables_fit_the_terminal_and_have_no_exponents() {
    let folder = TempDir::new("terminal-tables");
    let scenario = include_str!("../../examples/two-apps.toml");
    fs::write(folder.path().join("s.toml"), scenario).unwrap();
    let bench = format!("{scenario}\n[bench]\npolicies = ['sam', 'auto']\nrepetitions = 2\n");
    fs::write(folder.path().join("b.toml"), bench).unwrap();
    let long = "an-application-with-a-name-that-is-longer-than-it-has-to-be";
    let apps = format!("[app.{long}.per_cpu_s]\ncycles = 2e9\n");
    fs::write(folder.path().join("apps.toml"), apps).unwrap();
    fs::write(folder.path().join("queue"), format!("true\n: {long} {long}\n")).unwrap();
    let task = |id, cpu| {
        format!(
            "{{\"id\": {id}, \"app\": \"db\", \"cpu\": {cpu}, \"cycles\": 2.2e8, \"instructions\": 1.5e8, \"inter\": 200000, \"llc_misses\": 210000}}"
        )
    };
    let snapshot = format!("{{\"interval_s\": 0.1, \"tasks\": [{}, {}]}}", task(1, 0), task(2, 10));
    fs::write(folder.path().join("now.json"), snapshot).unwrap();
    for line in [
        "topo",
        "topo --from epyc-9454-2s",
        "doctor",
        "kernel --list",
        "kernel hubench --seconds 0.1",
        "sim s.toml --seeds 2 --policy none,sam,numad,dino,auto,optimal --evaluations 20",
        "sim --mix mcf06,milc06,povray06,lbm06 --machine nehalem-i7-920",
        "bench b.toml",
        "profiles import apps.toml",
        "profiles list",
        "calibrate --quick --only clock,core-to-core,smt,migration,coherence,distances,remote -o c.toml",
        "characterize --only corun,degradation --kernels bst-8mb --runs 1 -n x -- sleep 0.05",
        "compare --runs 2 -- sleep 0.05",
        "schedule queue",
        "record -o r.rec -- sleep 0.3",
        "replay r.rec",
        "why r.rec sleep",
        "decide --machine ivy-bridge-2s --policy sam --snapshot now.json",
        "restore",
    ] {
        let Some(text) = shown(folder.path(), line) else { return };
        for row in text.lines() {
            assert!(row.chars().count() <= 80 || !row.trim().contains(' '), "{line}: {row}\n{text}");
            let numbers = row.split(|c: char| c.is_whitespace() || "/,;()±×".contains(c));
            let exponent = numbers.into_iter().find(|word| word.contains('e') && word.parse::<f64>().is_ok());
            assert_eq!(exponent, None, "{line}: {row}");
        }
    }
}

/// Holds run/terminal.
#[test]
fn colour_is_for_terminals_that_want_it() {
    let help = |line: &str| Terminal::start(line).map(Terminal::end);
    let Some((code, coloured)) = help(&format!("{COTENANT} run --help")) else { return };
    assert_eq!(code, Some(0));
    assert!(coloured.contains('\x1b'), "clap's own emphasis: {coloured}");
    let (_, plain) = help(&format!("env NO_COLOR=1 {COTENANT} run --help")).unwrap();
    assert!(!plain.contains('\x1b') && plain.contains("--policy"), "{plain}");
    for shown in ["topo", "doctor", "restore"] {
        let out = Command::new(COTENANT).arg(shown).output().unwrap();
        assert!(!out.stdout.contains(&0x1b), "{shown}");
    }
}

#[test]
fn doctor_fits_the_terminal() {
    let Some((code, shown)) = Terminal::start(&format!("stty cols 60 rows 24; {COTENANT} doctor")).map(Terminal::end)
    else {
        return;
    };
    assert_eq!(code, Some(0));
    assert!(shown.contains("\x1b[32m✓\x1b[0m "), "{shown}");
    let plain = ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"].iter().fold(shown, |text, code| text.replace(code, ""));
    let fits = |line: &str| line.chars().count() <= 60 || line.split_whitespace().count() == 1;
    assert!(plain.lines().count() > 20 && plain.lines().all(fits), "{plain}");
}

#[test]
fn a_closed_terminal_ends_attaching_and_gives_back() {
    let mut target = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let stat = PathBuf::from(format!("/proc/{}/status", target.id()));
    let Some(mut terminal) = Terminal::start(&format!("echo I am $$; exec {COTENANT} attach -p {}", target.id()))
    else {
        target.kill().unwrap();
        target.wait().unwrap();
        return;
    };
    terminal.shows("I am ");
    terminal.shows(&format!("managing with auto: cat ({}); Ctrl-C ends it", target.id()));
    terminal.shows(" s: 1 task, 0 moves so far"); // the live view
    drop(terminal); // the terminal is gone
    assert!(fs::read_to_string(&stat).unwrap().contains("cat"), "the target goes on");
    drop(target.stdin.take());
    assert!(target.wait().unwrap().success());
}

/// The sequences that take a terminal, and those that restore it.
const TAKEN: &str = "\x1b[?1049h";
const GIVEN_BACK: &str = "\x1b[?1049l";

/// `cotenant top` in a terminal, which is restored at its end.
const TOP: &str = "stty cols 80 rows 24; before=$(stty -g)";
const AFTER: &str = "code=$?; test \"$before\" = \"$(stty -g)\" || echo it is not as it was; exit $code";

/// Holds daemon/top.
#[test]
fn top_obeys_keys_and_gives_the_terminal_back() {
    let Some(mut terminal) = Terminal::start(&format!("{TOP}; {COTENANT} top --no-daemon; {AFTER}")) else { return };
    terminal.shows(TAKEN);
    terminal.shows("own look at");
    terminal.types(" ");
    terminal.shows("PAUSED");
    terminal.types(" /");
    terminal.shows("filter: ");
    terminal.types("nobody-is-called-so");
    terminal.shows("no service matches the filter");
    terminal.types("\x1b");
    terminal.shows("quit");
    terminal.types("\r");
    terminal.shows("back");
    terminal.types("q");
    let (code, rest) = terminal.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains(GIVEN_BACK) && !rest.contains("not as it was"), "{rest:?}");
}

/// Holds daemon/top.
#[test]
fn top_gives_the_terminal_back_on_a_signal() {
    for (signal, ended) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let top = format!("env --default-signal sh -c 'echo I am $$.; exec {COTENANT} top --no-daemon'");
        let Some(mut terminal) = Terminal::start(&format!("{TOP}; {top}; {AFTER}")) else { return };
        terminal.shows("I am ");
        let pid = terminal.shows(".");
        terminal.shows("own look at");
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
        let (code, rest) = terminal.end();
        assert_eq!(code, Some(ended), "{rest}");
        assert!(rest.contains(GIVEN_BACK) && !rest.contains("not as it was"), "{rest:?}");
    }
}

/// Holds daemon/top.
#[test]
fn control_z_gives_the_terminal_back_and_fg_takes_it_again() {
    let Some(mut terminal) = Terminal::start("bash --norc --noprofile -i") else { return };
    terminal.shows(PROMPT);
    terminal.types(&format!("stty cols 80 rows 24; {COTENANT} top --no-daemon\n"));
    terminal.shows("own look at");
    terminal.types("\x1a");
    terminal.shows(GIVEN_BACK);
    terminal.shows("Stopped");
    terminal.shows(PROMPT);
    terminal.types("fg; echo code $?\n");
    terminal.shows(TAKEN);
    terminal.shows("own look at");
    terminal.types("q");
    terminal.shows(GIVEN_BACK);
    terminal.shows("code 0");
    terminal.shows(PROMPT);
    terminal.types("exit\n");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn top_ends_with_its_terminal() {
    let line = format!("sh -c 'stty cols 80 rows 24; echo pid $$.; exec {COTENANT} top --no-daemon'");
    let Some(mut terminal) = Terminal::start(&line) else { return };
    terminal.shows("pid ");
    let pid = terminal.shows(".");
    terminal.shows("own look at");
    drop(terminal);
    let stat = || fs::read_to_string(format!("/proc/{pid}/stat"));
    eventually("it is gone", || stat().map_or(true, |stat| stat.contains(") Z")));
}

#[test]
fn top_travels_through_a_recording() {
    let folder = TempDir::new("terminal-top");
    let Some(mut terminal) = Terminal::start(&format!(
        "cd {} && {COTENANT} record -q -o a.rec --interval 20ms -- sleep 1 && {TOP}; NO_COLOR=1 {COTENANT} top a.rec; {AFTER}",
        folder.path().display()
    )) else {
        return;
    };
    terminal.shows(TAKEN);
    terminal.shows("recording a.rec, observed");
    terminal.shows(" of "); // of more than nine, so that the whole text is written again
    terminal.types("\x1b[H"); // home
    terminal.shows("moment 1");
    terminal.types("\x1b[C"); // right
    terminal.shows("2");
    terminal.types("\x03");
    let (code, rest) = terminal.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains(GIVEN_BACK) && !rest.contains("not as it was"), "{rest:?}");
}

#[test]
fn who_waits_for_a_pipe_can_be_interrupted() {
    let dir = TempDir::new("waits-for-a-pipe");
    let pipe = dir.path().join("jobs");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut waits = Command::new(COTENANT).arg("schedule").arg(&pipe).spawn().unwrap();
    // Opened once the other end is open.
    let writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    let pid = waits.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let deadline = Instant::now() + Duration::from_secs(300);
    let ended = loop {
        match waits.try_wait().unwrap() {
            None if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            ended => break ended,
        }
    };
    let _ = waits.kill();
    let _ = waits.wait();
    drop(writer);
    assert_eq!(ended.and_then(|status| status.signal()), Some(2), "{ended:?}");
}
