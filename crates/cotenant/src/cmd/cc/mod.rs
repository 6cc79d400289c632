//! `cotenant cc` and `cotenant c++`: clang, with the compiler pass.

pub(crate) mod link;
pub(crate) mod options;
mod tools;

use anyhow::Result;
use cotenant_cli::usage;
use options::{Mode, Options};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use tools::Tools;

/// The marks' entry to the nap engine. Marks refer to it weakly, which pulls nothing from an archive.
const ENGINE: &str = "cotenant_marker_1";

const OPTIONS: &str = "\
Options of our own, before or among those of clang. The environment variable
COTENANT_CC may hold some, too:
  --cotenant-mode=MODE        markers (default): nap when Cotenant orders it;
                              naps; padding; off: plain clang
  --cotenant-regions=FILE     slow down these regions only
                              (docs/reference/regions.md)
  --cotenant-min-score=X      … whose score is above X [default: 0.3]
  --cotenant-min-coverage=X   … and whose coverage is above X [default: 0.01]
  --cotenant-coverage=X       without regions: code of more than this share of
                              its function, 0 to 1 [default: 0.05]
  --cotenant-granularity=T    naps: execution between two naps, 100us to 60s
                              [default: 10ms]; padding: instructions between
                              two places [default: 5]
  --cotenant-duration=T       naps: length of a nap, up to 60s [default: 10ms]
  --cotenant-thickness=N      padding: nops at each place, 1 to 4096
                              [default: 8]
  --cotenant-clang=PATH       the clang to use, of version 19
                              [default: clang-19, else clang]
  --cotenant-plugin=PATH      the pass; libcotenant is beside it
                              [default: PREFIX/lib/cotenant, else cotenant/lib
                              in the XDG data folder; scripts/install-pass]

Examples:
  cotenant cc -O2 -c batch.c
  ./configure CC='cotenant cc' CXX='cotenant c++' && make
  cotenant cc --cotenant-mode=naps --cotenant-duration=20ms -O3 batch.c";

/// Arguments of `cotenant cc`, for the help alone: they are clang's, and are passed on as they are.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = OPTIONS)]
pub struct Args {
    /// Whatever clang takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub words: Vec<OsString>,
}

/// Which of the two a word is, if it is one: whether for C++.
pub fn language(command: &OsStr) -> Option<bool> {
    match command.to_str() {
        Some("cc") => Some(false),
        Some("c++") => Some(true),
        _ => None,
    }
}

/// Becomes clang; returns only on error.
///
/// # Errors
/// If one of our own options is wrong, or clang, the pass or libcotenant is missing.
pub fn run(cxx: bool, args: impl Iterator<Item = OsString>, definition: &clap::Command) -> Result<ExitCode> {
    let args: Vec<OsString> = args.collect();
    if args.len() == 1 && args[0] == "--help" {
        let mut program = definition.clone();
        let help = program.find_subcommand_mut(if cxx { "c++" } else { "cc" }).map(clap::Command::render_long_help);
        return cotenant_cli::print_text(&help.unwrap_or_default().to_string());
    }
    let words = Options::parse(std::env::var("COTENANT_CC").ok().as_deref(), args.into_iter())?;
    let tools = Tools::find(&words)?;
    let mut clang = Command::new(&tools.clang);
    if cxx {
        clang.arg("--driver-mode=g++");
    }
    if words.mode != Mode::Off {
        clang.env("COTENANT_PASS", words.for_pass());
        match words.regions()? {
            Some(regions) => clang.env("COTENANT_PASS_REGIONS", regions),
            None => clang.env_remove("COTENANT_PASS_REGIONS"),
        };
        // Unused where clang only preprocesses, or assembles: no reason to warn. First, so that nothing of the
        // user's, such as `-x c++` or `--`, gives it another meaning.
        clang.arg("--start-no-unused-arguments").args(ours(&words, &tools, cxx)?).arg("--end-no-unused-arguments");
    }
    clang.args(&words.clang);
    let why = clang.exec();
    Err(usage(format!("{}: {why}; name a clang 19 with --cotenant-clang=PATH", tools.clang.display())))
}

fn ours(words: &Options, tools: &Tools, cxx: bool) -> Result<Vec<OsString>> {
    let with = |before: &str, path: &OsStr| {
        let mut word = OsString::from(before);
        word.push(path);
        word
    };
    let mut all = vec![with("-fpass-plugin=", tools.plugin.as_os_str())];
    let Some(link) = link::of(&tools.clang, cxx, &words.clang) else { return Ok(all) };
    if link.optimises {
        let is_other = |word: &str| word.starts_with("-fuse-ld=") && word != "-fuse-ld=lld";
        if words.clang.iter().filter_map(|word| word.to_str()).any(is_other) {
            return Err(usage("-flto with the pass needs the linker lld; use -fuse-ld=lld (apt-get install lld-19)"));
        }
        all.push("-fuse-ld=lld".into());
        all.push(with("-Wl,--load-pass-plugin=", tools.plugin.as_os_str()));
    }
    // A shared library finds the engine in the program. A program linked with libcotenant already has it.
    if words.mode == Mode::Markers && link.makes_program && !link.has_library {
        let library = tools.library()?;
        all.push(format!("-Wl,-u,{ENGINE},--export-dynamic-symbol={ENGINE}").into());
        all.push(with("-Wl,", library.as_os_str()));
    }
    Ok(all)
}
