//! `cargo xtask pictures`: the pictures of the README and the book, in `docs/pictures`. Those of the README are drawn
//! from figures stored beside them; `tidy` compares both.

mod demo;
mod lines;
mod svg;
mod terminal;

use crate::commands::{cargo, target_folder};
use anyhow::{Context, Result, bail};
use cotenant_testing::browser::Browser;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = "docs/pictures";
/// The figures that `cotenant demo --json` printed.
const FIGURES: &str = "docs/pictures/demo.json";
/// Pictures drawn from stored figures of the same name.
const DRAWN: [(&str, Draw); 3] = [("demo", demo::svg), ("soak", lines::svg), ("database", lines::svg)];
type Draw = fn(&str) -> Result<String>;

/// A server with a kept goal beside a batch program, for the pictures of `top` and of a report.
const SCENARIO: &str = "machine = 'nehalem-i7-920'\npolicy = { qos = 'tracking', goal = 0.9, pin = 'cpu' }\n\
    observation = { progress_noise = 0.01 }\n\
    [[app]]\nname = 'search'\nprogram = 'webSearch'\nthreads = 2\nwork_s = 60\nlatency_sensitive = true\n\
    [[app]]\nname = 'batch'\nprogram = 'membench'\nthreads = 4\nwork_s = 20\n";

/// The moment of it that `top` shows.
const AT: &str = "60s";

/// Arguments of `cargo xtask pictures`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Run `cotenant demo` for a minute first and keep its figures; otherwise those that are kept are drawn again
    #[arg(long)]
    pub measure: bool,
    /// The `cotenant` that is shown [default: what `cargo build --release` makes]
    #[arg(long, value_name = "PROGRAM")]
    pub cotenant: Option<PathBuf>,
}

/// Draws all pictures.
///
/// # Errors
/// A missing or failing program; an unwritable file.
pub fn draw(root: &Path, args: &Args) -> Result<()> {
    let cotenant = match &args.cotenant {
        Some(program) => program.clone(),
        None => built(root)?,
    };
    fs::create_dir_all(root.join(FOLDER))?;
    if args.measure {
        let figures = said(&cotenant, &["demo", "--json"])?;
        let busy = &serde_json::from_str::<serde_json::Value>(&figures)?["verdict"]["busy"];
        if let Some(busy) = busy.as_str() {
            bail!("{busy}: the figures that are kept stay; measure again when it is quiet");
        }
        fs::write(root.join(FIGURES), figures)?;
    }
    for (name, svg) in DRAWN {
        fs::write(beside(root, name, "svg"), drawn(root, name, svg)?)?;
    }

    let work = target_folder(root).join("pictures");
    fs::create_dir_all(&work)?;
    let file = |name: &str| work.join(name).display().to_string();
    fs::write(work.join("goal.toml"), SCENARIO)?;
    let recording = file("goal.rec");
    said(
        &cotenant,
        &["sim", &file("goal.toml"), "--policy", "qos", "--seeds", "1", "--no-band", "--record", &recording],
    )?;
    fs::write(root.join(FOLDER).join("top.svg"), top(&cotenant, &recording)?)?;
    said(&cotenant, &["report", &recording, "-o", &file("report.html")])?;
    shoot(&root.join(FOLDER).join("report.png"), &file("report.html"))?;
    // A daemon that has much to show is a fixture of the tests.
    let folder = root.join(FOLDER).display().to_string();
    let test = ["test", "-p", "cotenant-daemon", "--lib", "its_picture_has_every_part"];
    cargo(root, &test, &[("COTENANT_PICTURES", &folder)])?;
    println!("the pictures are in {FOLDER}");
    Ok(())
}

/// The first picture that differs from its figures.
pub fn wrong(root: &Path) -> Option<String> {
    DRAWN.into_iter().find_map(|(name, svg)| match drawn(root, name, svg) {
        Ok(drawn) if fs::read_to_string(beside(root, name, "svg")).is_ok_and(|there| there == drawn) => None,
        Ok(_) => Some(format!("{FOLDER}/{name}.svg: is not what {name}.json gives; run `cargo xtask pictures`")),
        Err(error) => Some(format!("{FOLDER}/{name}.json: {error:#}")),
    })
}

fn drawn(root: &Path, name: &str, svg: Draw) -> Result<String> {
    svg(&fs::read_to_string(beside(root, name, "json"))?)
}

fn beside(root: &Path, name: &str, ending: &str) -> PathBuf {
    root.join(FOLDER).join(format!("{name}.{ending}"))
}

fn built(root: &Path) -> Result<PathBuf> {
    cargo(root, &["build", "--release", "--bin", "cotenant"], &[])?;
    Ok(target_folder(root).join("release/cotenant"))
}

/// `cotenant top`, of a moment of a recording, on a terminal of 120 columns.
fn top(cotenant: &Path, recording: &str) -> Result<String> {
    let of = ["top", recording, "--at", AT];
    let told: serde_json::Value = serde_json::from_str(&said(cotenant, &[&of[..], &["--json"]].concat())?)?;
    let services = told["services"].as_array().context("no services")?;
    let text = |service: &serde_json::Value, key: &str| service[key].as_str().unwrap_or_default().to_owned();
    let classes: Vec<_> = services.iter().map(|service| (text(service, "name"), text(service, "class"))).collect();
    let command = format!("stty cols 120 rows 24; exec {} {} --once 2>/dev/null", cotenant.display(), of.join(" "));
    let screen = said(Path::new("script"), &["-qec", &command, "/dev/null"])?.replace('\r', "");
    Ok(terminal::svg(&format!("cotenant top goal.rec --at {AT}"), &screen, &classes))
}

/// The standard output of a program.
fn said(program: &Path, args: &[&str]) -> Result<String> {
    let out = Command::new(program).args(args).output().with_context(|| program.display().to_string())?;
    if !out.status.success() {
        bail!("{} {} failed:\n{}", program.display(), args.join(" "), String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8(out.stdout)?)
}

/// Size of the window, and pixels of a report's height that are shown.
const WINDOW: (u32, u32) = (1_100, 900);
const HIGH: f64 = 1_800.0;

/// A picture of a report, as Chromium shows it once its plots are drawn.
fn shoot(to: &Path, report: &str) -> Result<()> {
    let mut browser = Browser::start("pictures").context("install chromium, or leave the pictures of pages out")?;
    browser.dress(WINDOW, false);
    browser.go(&format!("file://{report}"));
    browser.until("document.querySelector('figure[data-plot] canvas').width > 0");
    fs::write(to, browser.whole(HIGH)).with_context(|| to.display().to_string())
}
