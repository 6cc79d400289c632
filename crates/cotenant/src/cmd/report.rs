//! `cotenant report`: one page with tables and figures from recordings and results.

use crate::report::page::{Block, Section, html};
use crate::report::{recording, regions, result};
use anyhow::{Context, Result};
use cotenant_cli::progress::Metered;
use cotenant_cli::{messages, usage};
use cotenant_linux::bounded::{self, Limit};
use cotenant_record::{MAGIC, Recording, Tail};
use cotenant_setup::replace::replace;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant report a.rec                                 a recording, as report.html
  cotenant report sim.json reproduce.json -o all.html   several on one page
  cotenant report compare.json                          what --json of compare, bench, schedule or qos wrote
  cotenant report regions.toml                          contentious code, its source coloured by score
  cotenant report a.rec -o - | less                     on standard output";

/// Arguments of `cotenant report`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Recordings (of `cotenant record` or `--record`), what --json of `cotenant sim`, `qos`, `schedule`, `compare`,
    /// `bench` and `cotenant-lab reproduce` wrote, and region files (of `cotenant regions`), told apart by what they
    /// hold
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// The page to write; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Write each figure as an SVG file into this folder, too, which is made where it is missing
    #[arg(long, value_name = "DIR")]
    pub svg_dir: Option<PathBuf>,
    /// Title of the page [default: Cotenant report, with the names of the files]
    #[arg(long)]
    pub title: Option<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// An unknown kind of file; an unwritable page. Nothing is written unless all files are understood.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut sections = Vec::new();
    for path in &args.files {
        sections.extend(read(path)?);
    }
    let names: Vec<String> = args.files.iter().map(|path| name_of(path)).collect();
    let title = args.title.clone().unwrap_or_else(|| format!("Cotenant report: {}", names.join(", ")));
    if let Some(folder) = &args.svg_dir {
        write_figures(folder, &sections)?;
    }
    let page = html(&title, &sections);
    if args.output == Path::new("-") {
        return cotenant_cli::print_text(&page);
    }
    replace(&args.output, page.as_bytes())
        .with_context(|| format!("{}: cannot be written; choose another place with -o", args.output.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The sections of a file, by its content.
fn read(path: &Path) -> Result<Vec<Section>> {
    let name = path.display();
    let remedy = "give a recording, or what --json of a command wrote";
    let wrong = |e: io::Error| usage(format!("{name}: {e}; {remedy}"));
    let mut file = BufReader::new(Metered::new(bounded::given(path).map_err(wrong)?, true));
    let start = file.fill_buf().map_err(wrong)?;
    if start.is_empty() {
        return Err(usage(format!("{name}: the file is empty; {remedy}")));
    }
    if start.starts_with(&MAGIC) {
        let mut read = Recording::read(file).map_err(|e| usage(format!("{name}: {}", messages::chain(&e.into()))))?;
        let header = read.header().clone();
        let (section, tail) = recording::section(name_of(path), &header, &mut read)?;
        if tail != Tail::Complete {
            messages::tell(format!("{name}: the recording is {tail}"));
        }
        return Ok(vec![section]);
    }
    let text = bounded::rest(&mut file, Limit::Named).map_err(wrong)?;
    let text = String::from_utf8(text)
        .map_err(|_| usage(format!("{name}: this is neither a recording nor text; {remedy}")))?;
    if regions::is_regions(&text) {
        let found = regions::parse(&text).map_err(|why| usage(format!("{name}:{why}")))?;
        let (section, shown) = regions::section(name_of(path), &found, path.parent().unwrap_or(Path::new("")));
        if !shown.is_empty() {
            let remark = "look at them before you share the page";
            messages::tell(format!("{name}: the page shows lines of {}; {remark}", regions::listed(&shown)));
        }
        return Ok(vec![section]);
    }
    result::sections(&name_of(path), &text).map_err(|why| usage(format!("{name}: {}", messages::chain(&why))))
}

fn write_figures(folder: &Path, sections: &[Section]) -> Result<()> {
    let cannot = |path: &Path| format!("{}: cannot be written; choose another folder with --svg-dir", path.display());
    fs::create_dir_all(folder).with_context(|| cannot(folder))?;
    let mut taken = BTreeSet::new();
    let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "-");
    for section in sections {
        for figure in section.blocks.iter().flat_map(Block::figures) {
            let stem = format!("{}-{}", plain(&section.title).trim_start_matches('.'), plain(&figure.name));
            let file = (1..).map(|n| if n == 1 { format!("{stem}.svg") } else { format!("{stem}-{n}.svg") });
            let Some(file) = file.into_iter().find(|file| taken.insert(file.clone())) else { continue };
            let path = folder.join(file);
            replace(&path, figure.file().as_bytes()).with_context(|| cannot(&path))?;
        }
    }
    Ok(())
}
