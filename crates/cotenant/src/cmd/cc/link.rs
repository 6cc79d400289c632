//! Whether and what a command line of clang links. Clang itself is queried (`-###`), because only it handles all its
//! options, configuration files and response files.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// The linker's command line from clang.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// It makes a program, not a shared library or a part.
    pub makes_program: bool,
    /// It optimises: LTO.
    pub optimises: bool,
    /// libcotenant is among its inputs.
    pub has_library: bool,
}

/// Options without linking: those of most compilations, which need no query.
const NEVER: [&str; 8] = ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--version", "-dumpversion"];

/// The link step; `None` without one.
pub fn of(clang: &Path, cxx: bool, args: &[OsString]) -> Option<Link> {
    if args.iter().any(|arg| arg.to_str().is_some_and(|word| NEVER.contains(&word))) {
        return None;
    }
    let driver = if cxx { "--driver-mode=g++" } else { "--driver-mode=gcc" };
    let asked = Command::new(clang).args([driver, "-###"]).args(args).stdin(Stdio::null()).output().ok()?;
    // clang will report the fault.
    asked.status.success().then(|| read(&String::from_utf8_lossy(&asked.stderr)))?
}

/// The linker's line is the last one.
pub fn read(jobs: &str) -> Option<Link> {
    let line = jobs.lines().rev().find(|line| line.trim_start().starts_with('"'))?;
    let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
    let linker = Path::new(words.first()?).file_name()?.to_str()?;
    let is_linker = linker == "ld" || linker.starts_with("ld.") || linker.starts_with("ld-") || linker.ends_with("-ld");
    let has = |word: &str| words.contains(&word);
    is_linker.then(|| Link {
        makes_program: !has("-shared") && !has("-r") && !has("--relocatable"),
        optimises: words.iter().any(|word| word.starts_with("-plugin-opt")),
        has_library: words.iter().any(|word| {
            *word == "-lcotenant" || word.rsplit('/').next().is_some_and(|name| name.starts_with("libcotenant."))
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_job_tells() {
        let compile = r#" (in-process)
 "/usr/lib/llvm-19/bin/clang" "-cc1" "-triple" "x86_64-pc-linux-gnu" "-emit-obj" "-o" "/tmp/a-1.o" "a.c""#;
        assert_eq!(read(compile), None);
        assert_eq!(read("Debian clang version 19.1.7\nTarget: x86_64-pc-linux-gnu\n"), None);
        let link = |words: &str| read(&format!("{compile}\n \"/usr/bin/ld\" \"-o\" \"a.out\" {words}\n")).unwrap();
        let program = Link { makes_program: true, optimises: false, has_library: false };
        assert_eq!(link(r#""-pie" "/tmp/a-1.o""#), program);
        assert_eq!(link(r#""-shared" "/tmp/a-1.o""#), Link { makes_program: false, ..program });
        assert_eq!(link(r#""-r" "/tmp/a-1.o""#), Link { makes_program: false, ..program });
        let optimises = Link { makes_program: true, optimises: true, has_library: false };
        assert_eq!(link(r#""-plugin" "LLVMgold.so" "-plugin-opt=mcpu=x86-64""#), optimises);
        for library in ["-lcotenant", "/usr/lib/libcotenant.so.0", "/opt/libcotenant.a"] {
            assert!(link(&format!("\"{library}\"")).has_library);
        }
        let lld = "\"/usr/lib/llvm-19/bin/ld.lld\" \"a.o\"";
        assert!(read(lld).is_some());
    }
}
