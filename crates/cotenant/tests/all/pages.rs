//! The commands of the README, the tutorial and the how-to pages, as written.
//!
//! Every block of code has a kind. The commands of `sh` and `console` blocks are run, in the order of the page, in one
//! new folder per page, by bash with this Cotenant first in its `PATH` and its own home folder. The output of a
//! `console` block must contain the first words of each shown line, in this order. Blocks of other kinds are not run.
//! After its kind a block may have:
//!
//! * `file=NAME`: the reader saves it under that name, and so does this test;
//! * `needs=NAME,…`: required programs, or `2-cpus`; without one of them, it counts as skipped;
//! * `exact`: its output is deterministic, so each shown line must be in it as written;
//! * `in=debian`: it changes the system; `scripts/test-package` runs it in a clean Debian with systemd;
//! * `norun=WHY`: it cannot be run here, and counts as skipped. WHY names the test that runs it or a similar one, or
//!   says what `it needs`.
//!
//! Promise run/documented: Commands in the README, the tutorial and the how-to pages work as they stand; the example
//! settings file means what the options mean.

use crate::world::{State, skip};
use cotenant_testing::TempDir;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Limit of the time of a command, or of a block of `sh`.
const LIMIT_S: u32 = 300;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A test for each page, and the list of all.
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        const PAGES: &[&str] = &[$($path),*];
        $(
            #[test]
            fn $name() {
                run($path);
            }
        )*
    };
}

pages! {
    readme: "README.md",
    tutorial: "docs/tutorial.md",
    calibrate: "docs/how-to/calibrate.md",
    characterize: "docs/how-to/characterize.md",
    chiplets: "docs/how-to/chiplets.md",
    compare: "docs/how-to/compare.md",
    daemon: "docs/how-to/daemon.md",
    kubernetes: "docs/how-to/kubernetes.md",
    kubernetes_local: "docs/how-to/kubernetes-local.md",
    kubernetes_scheduler: "docs/how-to/kubernetes-scheduler.md",
    slurm: "docs/how-to/slurm.md",
    slurm_bandwidth: "docs/how-to/slurm-bandwidth.md",
    install: "docs/how-to/install.md",
    monitor: "docs/how-to/monitor.md",
    notebooks: "docs/how-to/notebooks.md",
    database_beside_batch: "docs/how-to/database-beside-batch.md",
    operate: "docs/how-to/operate.md",
    page: "docs/how-to/page.md",
    place_by_hand: "docs/how-to/place-by-hand.md",
    qos: "docs/how-to/qos.md",
    qos_to_daemon: "docs/how-to/qos-to-daemon.md",
    read_a_decision: "docs/how-to/read-a-decision.md",
    read_a_report: "docs/how-to/read-a-report.md",
    report_progress: "docs/how-to/report-progress.md",
    schedule: "docs/how-to/schedule.md",
    sharing: "docs/reference/sharing.md",
    topology: "docs/reference/topology.md",
    top: "docs/how-to/top.md",
    two_sockets: "docs/how-to/two-sockets.md",
    without_a_pmu: "docs/how-to/without-a-pmu.md",
    who_hurts_whom: "docs/how-to/who-hurts-whom.md",
    write_a_policy: "docs/how-to/write-a-policy.md",
}

#[test]
fn no_page_is_left_out() {
    for file in fs::read_dir(format!("{ROOT}/docs/how-to")).unwrap() {
        let path = format!("docs/how-to/{}", file.unwrap().file_name().to_str().unwrap());
        assert!(PAGES.contains(&&*path), "{path} has no test");
    }
}

#[test]
fn what_is_not_run_here_says_who_runs_it_or_what_it_needs() {
    for page in PAGES {
        let text = fs::read_to_string(format!("{ROOT}/{page}")).unwrap();
        for block in blocks(page, &text) {
            let Some(why) = block.norun else { continue };
            let mut words = why.split([' ', ',', ';']);
            let runner = words.any(|word| word.contains('/') && Path::new(ROOT).join(word).is_file());
            assert!(runner || why.starts_with("it needs "), "{page}:{}: {why}", block.line);
        }
    }
}

/// Commands in the middle of a sentence are rarely whole; their subcommands and options exist all the same.
#[test]
fn options_that_pages_name_exist() {
    let help = |subcommand: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_cotenant")).args([subcommand, "--help"]).output().unwrap();
        assert!(out.status.success(), "there is no cotenant {subcommand}");
        String::from_utf8(out.stdout).unwrap()
    };
    for page in PAGES {
        let text = fs::read_to_string(format!("{ROOT}/{page}")).unwrap();
        let prose: String = text.split("```").step_by(2).collect();
        for command in prose.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("cotenant ")) {
            let ours = command.split(" -- ").next().unwrap();
            let words: Vec<&str> = ours.split_whitespace().collect();
            let Some(subcommand) = words.first().filter(|word| !word.starts_with('-')) else { continue };
            let help = help(subcommand.trim_end_matches(','));
            for option in words.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
                let option = option.split('=').next().unwrap();
                let known = help.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == option);
                assert!(known, "{page}: cotenant {command}: there is no {option}");
            }
        }
    }
}

/// Names in the table of what changed its meaning are those of today's references.
#[test]
fn what_changed_its_meaning_is_documented_under_its_name() {
    let read = |page: &str| fs::read_to_string(format!("{ROOT}/docs/reference/{page}.md")).unwrap();
    let (metrics, json) = (read("metrics-endpoint"), read("json") + &read("json-data"));
    let changed = read("changed-meanings");
    let cells = changed.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names: Vec<&str> = cells.flat_map(|cell| cell.split('`').step_by(2)).collect();
    let of_metrics = names.iter().filter(|name| name.starts_with("cotenant_"));
    let of_services = names.iter().filter_map(|name| name.strip_prefix("services[]."));
    let of_services = of_services.map(|key| key.split(['.', '[']).next().unwrap());
    let unknown: Vec<&str> = of_metrics
        .filter(|name| !metrics.contains(**name))
        .copied()
        .chain(of_services.filter(|key| !json.contains(&format!("`{key}`"))))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(names.iter().any(|name| name.starts_with("cotenant_")) && names.contains(&"services[].kept"), "{names:?}");
}

/// A block of code.
struct Block {
    /// Its first line in its page, from 1.
    line: usize,
    kind: String,
    file: Option<String>,
    needs: Vec<String>,
    in_debian: bool,
    /// Whether its output is compared exactly.
    exact: bool,
    norun: Option<String>,
    text: String,
}

/// One input for bash, and the lines expected in its output.
struct Step {
    line: usize,
    script: String,
    shown: Vec<String>,
    exact: bool,
}

fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (n, line) in text.lines().enumerate() {
        let body = line.trim_start();
        match (open.take(), body.strip_prefix("```")) {
            (None, Some(info)) => {
                let (info, norun) = match info.split_once("norun=") {
                    Some((info, why)) => (info, Some(why.to_owned())),
                    None => (info, None),
                };
                let mut words = info.split_whitespace();
                let kind = words.next().unwrap_or_else(|| panic!("{page}:{}: which kind of text is this?", n + 1));
                let mut block = Block {
                    line: n + 1,
                    kind: kind.to_owned(),
                    file: None,
                    needs: Vec::new(),
                    in_debian: false,
                    exact: false,
                    norun,
                    text: String::new(),
                };
                for word in words {
                    match word.split_once('=') {
                        Some(("file", name)) => block.file = Some(name.to_owned()),
                        Some(("in", "debian")) => block.in_debian = true,
                        None if word == "exact" => block.exact = true,
                        Some(("needs", list)) => block.needs = list.split(',').map(str::to_owned).collect(),
                        _ => panic!("{page}:{}: what is {word}?", n + 1),
                    }
                }
                open = Some((line.len() - body.len(), block));
            }
            (Some((_, block)), Some("")) => blocks.push(block),
            (Some((indent, mut block)), _) => {
                block.text.extend([line.get(indent..).unwrap_or_default(), "\n"]);
                open = Some((indent, block));
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{page}: a block does not end");
    blocks
}

impl Block {
    fn steps(&self) -> Vec<Step> {
        match &*self.kind {
            "sh" => vec![Step { line: self.line + 1, script: self.text.clone(), shown: Vec::new(), exact: false }],
            "console" => {
                let mut steps: Vec<Step> = Vec::new();
                for (n, line) in self.text.lines().enumerate() {
                    match (line.strip_prefix("$ "), steps.last_mut()) {
                        (Some(script), _) => {
                            let (line, script) = (self.line + 1 + n, script.to_owned());
                            steps.push(Step { line, script, shown: Vec::new(), exact: self.exact });
                        }
                        (None, Some(step)) => step.shown.push(line.to_owned()),
                        (None, None) => panic!("line {}: a console block begins with a command", self.line),
                    }
                }
                steps
            }
            _ => Vec::new(),
        }
    }

    /// Missing requirements.
    fn missing(&self) -> Option<String> {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
        let is_there = |need: &str| match need {
            "2-cpus" => cpus() == 2,
            program => std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|dir| dir.join(program).exists()),
        };
        let missing = self.needs.iter().find(|need| !is_there(need)).map(|need| format!("it needs {need}"));
        self.norun.clone().or(missing)
    }
}

fn run(page: &str) {
    let text = fs::read_to_string(format!("{ROOT}/{page}")).unwrap();
    let (home, state) = (TempDir::new("page"), State::new("page-state"));
    let place = home.path().join("here");
    fs::create_dir(&place).unwrap();
    for block in blocks(page, &text) {
        if let Some(name) = &block.file {
            fs::write(place.join(name), &block.text).unwrap();
        }
        let steps = block.steps();
        if block.in_debian {
            continue;
        }
        if let Some(why) = block.missing().filter(|_| !steps.is_empty()) {
            skip(&format!("{page}:{}: {why}", block.line));
            continue;
        }
        for step in steps {
            step.run(page, &state, home.path(), &place);
        }
    }
}

impl Step {
    fn run(&self, page: &str, state: &State, home: &Path, place: &Path) {
        let at = format!("{page}:{}", self.line);
        let log: PathBuf = home.join(format!("{}.log", self.line));
        // Into a file, since a pipe would stay open with background programs of a page.
        let bash = format!(
            "export HOME='{}'; cd '{}'; unset XDG_CONFIG_HOME
             exec timeout --kill-after=5 {LIMIT_S} bash --norc -euo pipefail -c \"$1\" >'{}' 2>&1",
            home.display(),
            place.display(),
            log.display(),
        );
        let binaries = Path::new(env!("CARGO_BIN_EXE_cotenant")).parent().unwrap();
        let paths = std::env::var_os("PATH").unwrap();
        let path = std::env::join_paths([binaries.to_owned()].into_iter().chain(std::env::split_paths(&paths)));
        let mut command = state.cotenant_after(&bash, &[&self.script]);
        let ended = command.env("PATH", path.unwrap()).stdin(Stdio::null()).status().unwrap();
        let said = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
        let Self { script, .. } = self;
        if ended.code() == Some(4) && script.starts_with("cotenant calibrate") && said.contains("too noisy") {
            return skip(&format!("{at}: other programs kept this machine busy"));
        }
        assert_eq!(ended.code(), Some(0), "{at}: {script}\n{said}");
        let mut lines = said.lines();
        let same = |line: &str, shown: &str| {
            if self.exact {
                line.split_whitespace().eq(shown.split_whitespace())
            } else {
                begins(line) == begins(shown)
            }
        };
        for shown in self.shown.iter().filter(|line| !begins(line).is_empty()) {
            assert!(lines.any(|line| same(line, shown)), "{at}: {script}\nno '{shown}' in\n{said}");
        }
    }
}

/// Possible results of a measurement, of which a page shows one.
const VERDICTS: [[&str; 2]; 4] = [["faster", "by"], ["slower", "by"], ["cannot", "tell"], ["not", "judged:"]];

/// The first two words of a line, with any numbers or none; for a line that begins with a mark, that mark.
fn begins(line: &str) -> Vec<String> {
    let mut words = line.split_whitespace().filter(|word| *word != "…").peekable();
    let marked = words.peek().is_some_and(|word| !word.contains(char::is_alphanumeric));
    let number = |word: &str| word == "–" || word.contains(|c: char| c.is_ascii_digit());
    let plain = |word: &str| if number(word) { "#".to_owned() } else { word.to_owned() };
    let words: Vec<String> = words.take(if marked { 1 } else { 2 }).map(plain).collect();
    if VERDICTS.iter().any(|verdict| words == verdict) { vec!["(verdict)".to_owned()] } else { words }
}

#[test]
fn lines_are_known_by_their_first_words() {
    assert_eq!(begins("pair   1:    0.739 s without"), ["pair", "#"]);
    assert_eq!(begins("  ✗ cycles, inter: none"), ["✗"]);
    assert_eq!(begins("0.100 s  task 0"), ["#", "s"]);
    assert_eq!(begins("cpu_share – │ 0.5"), begins("cpu_share 0.1 │ 0.5"));
    assert_eq!(begins("slower by 3 %"), begins("cannot tell (0.9 to 1.2 times as fast)"));
    assert!(begins("…").is_empty());
}
