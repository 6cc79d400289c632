//! Names of programs: on the screen, and in stored profiles.

use cotenant_kernels::Kernel;
use cotenant_linux::address_space::command_line;
use cotenant_linux::bounded::{self, Limit};
use cotenant_model::text;
use std::ffi::OsStr;
use std::path::Path;

/// This program, which has the kernels.
const OURS: &str = "cotenant";

/// The kernel keeps this many characters of a process's name.
const COMM: usize = 15;

/// The name of a command's program: its first word without folders; a kernel of this package counts as its own program.
pub fn of_command<W: AsRef<OsStr>>(words: &[W]) -> String {
    let Some(first) = words.first() else { return String::new() };
    let base = base(Path::new(first));
    let kernel = || words[2..].iter().find_map(|word| Kernel::by_name(word.as_ref().to_str()?));
    if base == OURS
        && words.get(1).is_some_and(|word| word.as_ref() == "kernel")
        && let Some(kernel) = kernel()
    {
        return kernel.name.to_owned();
    }
    base
}

/// The name of the program in a line for the shell, after assignments and `exec`.
pub fn of_line(line: &str) -> String {
    let is_variable = |(name, _): (&str, &str)| name.chars().all(|char| char.is_alphanumeric() || char == '_');
    let is_before = |word: &&str| *word == "exec" || word.split_once('=').is_some_and(is_variable);
    let words: Vec<&str> = line.split_whitespace().skip_while(is_before).collect();
    if words.is_empty() { text::name(line.trim().as_bytes()) } else { of_command(&words) }
}

/// The name of a process: the kernel's, completed from the command line. `None` after its end.
pub fn of_process(pid: u32) -> Option<String> {
    let comm = bounded::read(format!("/proc/{pid}/comm"), Limit::Value).ok()?;
    Some(whole(&text::name(comm.trim_ascii()), &command_line(pid)))
}

/// The name of a file or folder without those above it.
pub fn base(path: &Path) -> String {
    text::name(path.file_name().unwrap_or(path.as_os_str()).as_encoded_bytes())
}

fn whole(comm: &str, words: &[String]) -> String {
    let is_it = |word: &String| {
        let base = base(Path::new(word));
        base == comm || comm.len() >= COMM && base.starts_with(comm)
    };
    words.iter().position(is_it).map_or_else(|| comm.to_owned(), |at| of_command(&words[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn kernels_are_programs_of_their_own() {
        let of = |line: &str| of_command(&words(line));
        assert_eq!(of("/usr/bin/xz -T0 a"), "xz");
        assert_eq!(of("./target/debug/cotenant kernel chase --size 8M"), "chase");
        assert_eq!(of("cotenant kernel --threads 2 hubench"), "hubench");
        for other in ["cotenant", "cotenant kernel", "cotenant kernel --list", "cotenant run -- chase"] {
            assert_eq!(of(other), "cotenant");
        }
        assert_eq!((of(""), of("/")), (String::new(), "/".to_owned()));
        assert_eq!(of_line("A=1 B= exec /usr/bin/cotenant kernel chase"), "chase");
        assert_eq!((of_line("./a=b/c exec d=e"), of_line(" A=1")), ("c".to_owned(), "A=1".to_owned()));
    }

    #[test]
    fn the_kernel_cuts_names_and_the_command_line_has_them_whole() {
        let of = |comm: &str, line: &str| whole(comm, &words(line));
        assert_eq!(of("a-program-of-lo", "/opt/a-program-of-long-name --serve"), "a-program-of-long-name");
        assert_eq!(
            of("a-script-with-l", "/usr/bin/python3 ./a-script-with-long-name.py"),
            "a-script-with-long-name.py"
        );
        assert_eq!(of("redis-server", "redis-server *:6379"), "redis-server");
        assert_eq!(of("cat", "cathedral"), "cat", "it is not cut");
        assert_eq!(of("renamed-by-its-", ""), "renamed-by-its-");
        assert_eq!(of("cotenant", "/usr/bin/cotenant kernel naive-4mb"), "naive-4mb");
        assert!(of_process(std::process::id()).is_some_and(|name| !name.is_empty()));
        assert_eq!(of_process(u32::MAX), None);
    }
}
