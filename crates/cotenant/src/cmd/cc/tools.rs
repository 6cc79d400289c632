//! The places of clang, the pass and libcotenant.

use super::options::{Mode, Options};
use anyhow::Result;
use cotenant_cli::usage;
use cotenant_setup::calibrated;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version of LLVM that the pass is built for.
const LLVM: u32 = 19;

#[derive(Debug)]
pub struct Tools {
    pub clang: PathBuf,
    /// Empty in the mode `off`.
    pub plugin: PathBuf,
}

impl Tools {
    pub fn find(words: &Options) -> Result<Self> {
        let clang = match &words.clang_path {
            Some(path) => path.clone(),
            None => clang().ok_or_else(|| {
                usage(format!("there is no clang {LLVM}; apt-get install clang-{LLVM} lld-{LLVM}, or name one with --cotenant-clang=PATH"))
            })?,
        };
        let plugin = match &words.plugin {
            _ if words.mode == Mode::Off => PathBuf::new(),
            Some(path) if path.is_file() => std::path::absolute(path)?,
            Some(path) => {
                let path = path.display();
                return Err(usage(format!("{path}: there is no such plugin; build it with scripts/install-pass")));
            }
            None => plugin(&folders())?,
        };
        Ok(Self { clang, plugin })
    }

    /// libcotenant's archive, installed next to the pass.
    pub fn library(&self) -> Result<PathBuf> {
        let path = self.plugin.with_file_name("libcotenant.a");
        if path.is_file() {
            Ok(path)
        } else {
            Err(usage(format!("{}: there is no such library; install it with scripts/install-pass", path.display())))
        }
    }
}

/// `clang-19` of the path, else `clang` if it is that version.
fn clang() -> Option<PathBuf> {
    let named = PathBuf::from(format!("clang-{LLVM}"));
    [named, PathBuf::from("clang")].into_iter().find(|clang| is_version(clang))
}

fn is_version(clang: &Path) -> bool {
    let output = Command::new(clang).arg("-dumpversion").stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.stdout.starts_with(format!("{LLVM}.").as_bytes()))
}

/// Beside the command (`PREFIX/lib/cotenant`), or in the user's data folder.
fn folders() -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("lib/cotenant")));
    beside.into_iter().chain(calibrated::data_folder().map(|data| data.join("lib"))).collect()
}

fn plugin(folders: &[PathBuf]) -> Result<PathBuf> {
    let name = format!("cotenant-pass-{LLVM}.so");
    folders.iter().map(|folder| folder.join(&name)).find(|path| path.is_file()).ok_or_else(|| {
        let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let places = places.join(" nor in ");
        usage(format!("{name} is not in {places}; build it with scripts/install-pass in a clone of Cotenant"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_is_not_there_is_said_with_the_places() {
        let error = plugin(&["/proc/nonexistent/a".into(), "/proc/nonexistent/b".into()]).unwrap_err().to_string();
        let expected = "cotenant-pass-19.so is not in /proc/nonexistent/a nor in /proc/nonexistent/b; \
            build it with scripts/install-pass in a clone of Cotenant";
        assert_eq!(error, expected);
    }
}
