//! `cargo xtask pictures`: the pictures of the README and the book, in `docs/pictures`. What the README shows is drawn
//! from figures that are kept beside it; `tidy` holds the drawing to them.

#[path = "../../../crates/cotenant/src/browser.rs"]
#[allow(dead_code)] // what tests need of it
mod browser;
mod demo;
mod lines;
mod terminal;

use crate::target_folder;
use anyhow::{Context, Result, bail};
use browser::Browser;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = "docs/pictures";
/// The figures that `cotenant demo --json` printed.
const FIGURES: &str = "docs/pictures/demo.json";
/// What is drawn from figures of the same name that are kept beside it.
const DRAWN: [(&str, Draw); 2] = [("demo", demo::svg), ("soak", lines::svg)];
type Draw = fn(&str) -> Result<String>;

/// A machine with two sockets, for the pictures of `top` and of a report.
const SCENARIO: &str = "machine = 'ivy-bridge-2s'\nrestart = true\npolicy = { sam = 'recommended' }\n\
    observation = { progress_noise = 0.01 }\n\
    [[app]]\nprogram = 'sgd'\nthreads = 10\nwork_s = 5\n[[app]]\nprogram = 'bsgd'\nthreads = 10\nwork_s = 5\n";

/// Arguments of `cargo xtask pictures`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Run `cotenant demo` for a minute first and keep its figures; otherwise those that are kept are drawn again
    #[arg(long)]
    pub measure: bool,
    /// Take pictures of this page, too, on a desk and on a phone, light and dark: NAME=FILE, or NAME=ADDRESS such as
    /// that of the daemon; repeat it for several
    #[arg(long, value_name = "NAME=PAGE", value_parser = page)]
    pub page: Vec<(String, String)>,
    /// The `cotenant` that is shown [default: what `cargo build --release` makes]
    #[arg(long, value_name = "PROGRAM")]
    pub cotenant: Option<PathBuf>,
}

/// Draws all pictures.
///
/// # Errors
/// Where a program is missing or fails, or a file cannot be written.
pub fn draw(root: &Path, args: &Args) -> Result<()> {
    let cotenant = match &args.cotenant {
        Some(program) => program.clone(),
        None => built(root)?,
    };
    fs::create_dir_all(root.join(FOLDER))?;
    if args.measure {
        fs::write(root.join(FIGURES), said(&cotenant, &["demo", "--json"])?)?;
    }
    for (name, svg) in DRAWN {
        fs::write(beside(root, name, "svg"), drawn(root, name, svg)?)?;
    }

    let work = target_folder(root).join("pictures");
    fs::create_dir_all(&work)?;
    let file = |name: &str| work.join(name).display().to_string();
    fs::write(work.join("pair.toml"), SCENARIO)?;
    let recording = file("pair.rec");
    said(
        &cotenant,
        &["sim", &file("pair.toml"), "--policy", "sam", "--seeds", "1", "--no-band", "--record", &recording],
    )?;
    let screen = said(&cotenant, &["top", &recording, "--at", "2s", "--once"])?;
    fs::write(root.join(FOLDER).join("top.svg"), terminal::svg("cotenant top pair.rec --at 2s", &screen))?;
    said(&cotenant, &["report", &recording, "-o", &file("report.html")])?;
    shoot(root, "report", &file("report.html"), &[ON_A_DESK])?;
    for (name, place) in &args.page {
        shoot(root, name, place, &EVERYWHERE)?;
    }
    println!("the pictures are in {FOLDER}");
    Ok(())
}

fn page(text: &str) -> Result<(String, String), &'static str> {
    let (name, place) = text.split_once('=').ok_or("write NAME=FILE or NAME=ADDRESS")?;
    Ok((name.to_owned(), place.to_owned()))
}

/// The first picture that is not what its figures give.
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
    crate::cargo(root, &["build", "--release", "--bin", "cotenant"], &[])?;
    Ok(target_folder(root).join("release/cotenant"))
}

/// What a program prints on standard output.
fn said(program: &Path, args: &[&str]) -> Result<String> {
    let out = Command::new(program).args(args).output().with_context(|| program.display().to_string())?;
    if !out.status.success() {
        bail!("{} {} failed:\n{}", program.display(), args.join(" "), String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8(out.stdout)?)
}

/// How a page is seen: what its picture's name ends with, size, and whether it is dark.
type Seen = (&'static str, (u32, u32), bool);

const ON_A_DESK: Seen = ("", (1_100, 1_180), false);
const EVERYWHERE: [Seen; 4] =
    [ON_A_DESK, ("-dark", ON_A_DESK.1, true), ("-phone", (390, 844), false), ("-phone-dark", (390, 844), true)];

/// Pictures of a page, as Chromium shows it once its plots are drawn.
fn shoot(root: &Path, name: &str, page: &str, seen: &[Seen]) -> Result<()> {
    let page = if page.contains("://") { page.to_owned() } else { format!("file://{page}") };
    let mut browser = Browser::start("pictures").context("install chromium, or leave the pictures of pages out")?;
    for (end, size, dark) in seen {
        browser.dress(*size, *dark);
        browser.go(&page);
        browser.until("document.querySelector('figure[data-plot] canvas').width > 0");
        let to = root.join(FOLDER).join(format!("{name}{end}.png"));
        fs::write(&to, browser.png(&json!({}))).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

/// The beginning of a drawing that `</svg>` ends, on light paper or dark.
fn paper(width: f64, height: f64, label: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n\
         <style>\n\
         .paper {{ fill: #ffffff }} text {{ fill: #1b1f24; font: 15px system-ui, 'DejaVu Sans', sans-serif }}\n\
         .head {{ font-weight: 600 }} .soft {{ fill: #57606a; font-size: 13px }} .good {{ fill: #1f7a5c }} .bad {{ fill: #c4570c }}\n\
         .batch {{ fill: #8a93a0 }} .grid {{ stroke: #8a93a0; stroke-width: 0.5 }} polyline {{ fill: none; stroke-width: 1.5 }}\n\
         text.one, text.two, text.three {{ font-size: 13px }} text.one {{ fill: #1f7a5c }} text.two {{ fill: #c4570c }} text.three {{ fill: #57606a }}\n\
         polyline.one {{ stroke: #1f7a5c }} polyline.two {{ stroke: #c4570c }} polyline.three {{ stroke: #57606a }}\n\
         @media (prefers-color-scheme: dark) {{ .paper {{ fill: #14171b }} text {{ fill: #e6e9ed }} .soft, text.three {{ fill: #9aa4af }}\n\
         .good, text.one {{ fill: #3fbf95 }} .bad, text.two {{ fill: #f08a3c }} .batch {{ fill: #6b7480 }}\n\
         polyline.one {{ stroke: #3fbf95 }} polyline.two {{ stroke: #f08a3c }} polyline.three {{ stroke: #9aa4af }} }}\n\
         </style>\n<rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n",
        escaped(label),
    )
}

/// Text that is safe in SVG.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
