//! Format of a queue of jobs: TOML, or a command per line.

use anyhow::Result;
use cotenant_cli::usage;
use cotenant_model::parse::{position, toml_message};
use cotenant_setup::{names, units};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use toml::Spanned;

/// More threads than any Linux has.
const MOST_THREADS: usize = 1 << 22;

/// Most bytes of a file's name made from a job's; `.out` and `.err` follow, and file systems allow 255.
const NAME_BYTES: usize = 200;

/// One job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobSpec {
    /// Names its log files; each only once.
    pub name: String,
    /// The displayed name; with the arguments if the user gave no name.
    pub title: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<PathBuf>,
    /// Under which name profiles know it.
    pub app: String,
    /// Its memory limit in bytes; `None`: not given.
    pub memory: Option<u64>,
    /// Number of further starts after failures.
    pub retries: u32,
    /// Threads that it runs.
    pub threads: usize,
    /// Its place.
    pub line: usize,
}

impl JobSpec {
    /// The command without redirections.
    pub fn prepare(&self) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).envs(&self.env).stdin(Stdio::null());
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    job: Vec<Spanned<RawJob>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    memory: Option<Spanned<String>>,
    #[serde(default)]
    retries: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawJob {
    name: Option<Spanned<String>>,
    command: Spanned<toml::Value>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    profile: Option<String>,
    memory: Option<Spanned<String>>,
    retries: Option<u32>,
    threads: Option<Spanned<usize>>,
}

/// Reads a queue: TOML by the file's name, otherwise a list. Relative paths start at Cotenant's folder.
///
/// # Errors
/// One line that names the place.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Vec<JobSpec>> {
    let name = path.display();
    let is_toml = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml"));
    let jobs = if is_toml { of_toml(text) } else { of_list(text) };
    let jobs = jobs.map_err(|(at, why)| {
        let (line, column) = position(text, at);
        usage(format!("{name}:{line}:{column}: {why}"))
    })?;
    if jobs.is_empty() {
        return Err(usage(format!(
            "{name}: there is no job in it; write [[job]] tables with command = …, or a command per line"
        )));
    }
    let mut seen = BTreeSet::new();
    for job in &jobs {
        if !seen.insert(file_name(&job.name)) {
            return Err(usage(format!(
                "{name}:{}:1: there is another job with the name {}; their logs would be one; choose another name",
                job.line, job.name
            )));
        }
    }
    Ok(jobs)
}

type At<T> = Result<T, (usize, String)>;

fn of_toml(text: &str) -> At<Vec<JobSpec>> {
    let file: File =
        toml::from_str(text).map_err(|e| (e.span().map_or(0, |span| span.start), toml_message(text, &e)))?;
    let memory = |given: &Option<Spanned<String>>| -> At<Option<u64>> {
        let bytes =
            |m: &Spanned<String>| units::bytes(m.as_ref()).map_err(|why| (m.span().start, format!("memory: {why}")));
        given.as_ref().map(bytes).transpose()
    };
    let default_memory = memory(&file.memory)?;
    let mut jobs = Vec::new();
    for (i, spanned) in file.job.into_iter().enumerate() {
        let line = position(text, spanned.span().start).0;
        let job = spanned.into_inner();
        let at = job.command.span().start;
        let command = match job.command.into_inner() {
            toml::Value::String(line) if !line.trim().is_empty() => shell(&line),
            toml::Value::Array(words) if !words.is_empty() => words
                .into_iter()
                .map(|word| word.as_str().map(str::to_owned).ok_or((at, "command: its words are strings".to_owned())))
                .collect::<At<_>>()?,
            _ => {
                let why = "command is a line for the shell, as in \"a | b\", or a list of words, as in [\"a\", \"-b\"]";
                return Err((at, why.to_owned()));
            }
        };
        if let Some(threads) = job.threads.as_ref().filter(|n| !(1..=MOST_THREADS).contains(n.as_ref())) {
            return Err((threads.span().start, format!("threads is from 1 to {MOST_THREADS}")));
        }
        if let Some(name) = job.name.as_ref().filter(|name| name.as_ref().trim().is_empty()) {
            return Err((name.span().start, "name is empty; leave it out, or give one".to_owned()));
        }
        let (base, rest) = program(&command);
        let mut env = file.env.clone();
        env.extend(job.env);
        let name = job.name.as_ref().map_or_else(|| format!("{}-{base}", i + 1), |name| name.as_ref().clone());
        jobs.push(JobSpec {
            title: if job.name.is_some() { name.clone() } else { format!("{name} {rest}").trim_end().to_owned() },
            name,
            app: job.profile.unwrap_or(base),
            env,
            cwd: job.cwd.or_else(|| file.cwd.clone()),
            memory: memory(&job.memory)?.or(default_memory),
            retries: job.retries.unwrap_or(file.retries),
            threads: job.threads.map_or(1, Spanned::into_inner),
            line,
            command,
        });
    }
    Ok(jobs)
}

fn of_list(text: &str) -> At<Vec<JobSpec>> {
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    let commands = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let job = |(i, (line, words)): (usize, (usize, &str))| {
        if words.contains('\0') {
            let at = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
            return Err((at, "a command holds no NUL".to_owned()));
        }
        let command = shell(words);
        let (app, rest) = program(&command);
        let name = format!("{}-{app}", i + 1);
        let title = format!("{name} {rest}").trim_end().to_owned();
        Ok(JobSpec { name, title, app, command, threads: 1, line, ..JobSpec::default() })
    };
    commands.enumerate().map(job).collect()
}

fn shell(line: &str) -> Vec<String> {
    vec!["/bin/sh".to_owned(), "-c".to_owned(), line.to_owned()]
}

/// The program's name, and its arguments; for a line for the shell, the name of its first word that sets no variable.
fn program(command: &[String]) -> (String, String) {
    let is_shell = command.len() == 3 && command[0] == "/bin/sh" && command[1] == "-c";
    let (name, rest) = if is_shell {
        let bare = |word: &str| word.trim_matches(|c| "(){};&|!'\"".contains(c)).to_owned();
        let is_before = |word: &&str| bare(word).is_empty() || word.contains('=');
        let words: Vec<&str> = command[2].split_whitespace().skip_while(is_before).collect();
        let bared: Vec<String> = words.iter().map(|word| bare(word)).filter(|word| !word.is_empty()).collect();
        let name = if bared.is_empty() { "sh".to_owned() } else { names::of_command(&bared) };
        (name, words.get(1..).unwrap_or_default().join(" "))
    } else {
        (names::of_command(command), command[1..].join(" "))
    };
    (if name.chars().all(|c| c == '/') { "job".to_owned() } else { name }, rest)
}

/// A name as that of a file.
pub(super) fn file_name(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "._-+".contains(c);
    let mut bytes = 0;
    let fits = |c: &char| {
        bytes += c.len_utf8();
        bytes <= NAME_BYTES
    };
    let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).take_while(fits).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_command_per_line() {
        let jobs = parse(Path::new("list"), "# all\n\n  A=1 /bin/echo a | cat\nsleep 1\n").unwrap();
        let short: Vec<_> =
            jobs.iter().map(|j| (j.name.as_str(), j.app.as_str(), j.line, j.command[2].as_str())).collect();
        assert_eq!(short, [("1-echo", "echo", 3, "A=1 /bin/echo a | cat"), ("2-sleep", "sleep", 4, "sleep 1")]);
        assert_eq!(
            parse(Path::new("-"), "#\n").unwrap_err().to_string().split(';').next(),
            Some("-: there is no job in it")
        );
    }

    #[test]
    fn toml_says_more() {
        let text = "memory = '1G'\nretries = 1\ncwd = '/'\nenv = { A = '1', B = '1' }\n\
            [[job]]\ncommand = ['a b', 'c']\nname = 'x'\nenv = { B = '2' }\nprofile = 'p'\nthreads = 2\n\
            [[job]]\ncommand = 'd | e'\nmemory = '2M'\nretries = 0\ncwd = '/tmp'\n";
        let jobs = parse(Path::new("q.toml"), text).unwrap();
        assert_eq!(
            jobs[0],
            JobSpec {
                name: "x".into(),
                title: "x".into(),
                command: vec!["a b".into(), "c".into()],
                env: BTreeMap::from([("A".into(), "1".into()), ("B".into(), "2".into())]),
                cwd: Some("/".into()),
                app: "p".into(),
                memory: Some(1 << 30),
                retries: 1,
                threads: 2,
                line: 5,
            }
        );
        assert_eq!((jobs[1].name.as_str(), jobs[1].memory, jobs[1].retries), ("2-d", Some(2 << 20), 0));
        assert_eq!(jobs[1].cwd.as_deref(), Some(Path::new("/tmp")));
    }

    #[test]
    fn what_is_wrong_says_where() {
        for (text, expected) in [
            ("[[job]]\ncommand = 3\n", "q.toml:2:11: command is a line"),
            ("[[job]]\ncommand = []\n", "q.toml:2:11: command is a line"),
            ("[[job]]\ncommand = ['a', 1]\n", "q.toml:2:11: command: its words are strings"),
            ("[[job]]\nname = 'a'\n", "q.toml:1:1: missing field `command`"),
            ("[[job]]\ncommand = 'a'\nmemory = '1X'\n", "q.toml:3:10: memory: 'X' is not a unit"),
            ("[[job]]\ncommand = 'a'\nthreads = 0\n", "q.toml:3:11: threads is from 1 to 4194304"),
            ("[[job]]\ncommand = 'a'\nthreads = 9223372036854775807\n", "q.toml:3:11: threads is from 1 to"),
            ("[[job]]\ncommand = 'a'\nname = ' '\n", "q.toml:3:8: name is empty"),
            ("[[job]]\ncommand = 'a'\nnice = 1\n", "q.toml:3:1: unknown field `nice`"),
            (
                "[[job]]\ncommand = 'a'\nname = 'x/y'\n[[job]]\ncommand = 'a'\nname = 'x_y'\n",
                "q.toml:4:1: there is another",
            ),
            ("", "q.toml: there is no job in it"),
        ] {
            let why = parse(Path::new("q.toml"), text).unwrap_err().to_string();
            assert!(why.starts_with(expected), "{text}: {why}");
        }
    }

    #[test]
    fn names_stay_in_their_folder() {
        assert_eq!(["../a", "a b", ".x", "é"].map(file_name), ["_.._a", "a_b", "_.x", "é"]);
        let long = file_name(&"字".repeat(300));
        assert!(long.len() <= NAME_BYTES && long.chars().all(|c| c == '字'), "a file can be called so: {long}");
    }

    #[test]
    fn jobs_are_called_as_their_programs() {
        let jobs = parse(
            Path::new("list"),
            "A=1 B=2 ./cotenant kernel chase --seconds 1\ncotenant topo\n/ x\nA=1\n(xz -k a) &\n'b' c\n",
        );
        let names: Vec<String> = jobs.unwrap().into_iter().map(|job| job.app).collect();
        assert_eq!(names, ["chase", "cotenant", "job", "sh", "xz", "b"]);
    }

    #[test]
    fn titles_tell_jobs_of_the_same_program_apart() {
        let list = parse(Path::new("list"), "xz -k a.tar\nA=1 /bin/xz -k b.tar | wc\n(sync)\n").unwrap();
        let titles: Vec<&str> = list.iter().map(|job| &*job.title).collect();
        assert_eq!(titles, ["1-xz -k a.tar", "2-xz -k b.tar | wc", "3-sync"]);
        let toml =
            parse(Path::new("q.toml"), "[[job]]\ncommand = ['xz', 'c d']\n[[job]]\ncommand = 'a b'\nname = 'x'\n");
        let titles: Vec<String> = toml.unwrap().into_iter().map(|job| job.title).collect();
        assert_eq!(titles, ["1-xz c d", "x"]);
    }
}
