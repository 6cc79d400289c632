//! Structure of the repository: circles among source files, upward imports, test binaries, words of pages, comments and
//! messages, and the time of `scripts/test`. `cargo xtask tidy` compares the circles with the list in ARCHITECTURE.md,
//! and the pages of the book with their budget.

mod graph;
mod imports;
mod lexer;
pub mod words;

use crate::commands::{cargo_program, target_folder};
use anyhow::{Context, Result};
use graph::Graph;
use imports::Import;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Tests that are printed.
const SLOWEST: usize = 30;

/// What `house` takes.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print only where the last scripts/test spent its time, and its slowest tests
    #[arg(long, conflicts_with = "why")]
    times: bool,
    /// Print only the words of the book, changelog and specification, and the dialect in comments, messages and pages
    #[arg(long, conflicts_with_all = ["why", "times"])]
    words: bool,
    /// Print what the files of this crate's circles import from each other, as crates/cotenant
    #[arg(long, value_name = "CRATE")]
    why: Option<String>,
}

/// All that is counted.
#[derive(Serialize)]
struct House {
    crates: Vec<Crate>,
    words: words::Words,
    test_binaries: Vec<TestBinaries>,
    /// Of the last run of `scripts/test`, if any.
    steps: Vec<Step>,
    /// Tests that took longest in it, in seconds, by their names.
    slowest: Vec<(f64, String)>,
}

#[derive(Serialize)]
struct Crate {
    name: String,
    /// That import one another.
    files: usize,
    /// Top-level modules, each of which is a file or a folder.
    rooms: usize,
    /// Between rooms.
    arrows: usize,
    /// The fewest that run up, however the rooms are put on floors.
    arrows_up: Vec<(String, String)>,
    circles: Vec<BTreeSet<String>>,
}

#[derive(Serialize)]
struct TestBinaries {
    package: String,
    count: usize,
}

#[derive(Serialize)]
struct Step {
    seconds: f64,
    /// Of all CPUs together, if known.
    cpu_seconds: f64,
    name: String,
}

/// Prints the house.
pub fn print(root: &Path, args: &Args) -> Result<()> {
    if let Some(name) = &args.why {
        return explain(root, name);
    }
    if args.times {
        print_times(&steps(root), &slowest(root));
        return Ok(());
    }
    let words = words::count(root)?;
    if args.words {
        if args.json {
            println!("{}", serde_json::to_string_pretty(&words)?);
        } else {
            words.print();
        }
        return Ok(());
    }
    let names = crates(root)?;
    let crates = names.iter().map(|name| look(root, name)).collect::<Result<_>>()?;
    let test_binaries = test_binaries(root)?;
    let house = House { crates, words, test_binaries, steps: steps(root), slowest: slowest(root) };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&house)?);
    } else {
        print_table(&house);
    }
    Ok(())
}

/// Files of each crate that import each other.
///
/// # Errors
/// A crate cannot be read.
pub fn circles(root: &Path) -> Result<Vec<BTreeSet<String>>> {
    let all = crates(root)?.into_iter().map(|name| Ok(graph::circles(&graph_of(&imports_of(root, &name)?))));
    Ok(all.collect::<Result<Vec<_>>>()?.concat())
}

fn print_table(house: &House) {
    println!("{:<20} {:>5} {:>5} {:>6} {:>3}  circles (files)", "crate", "files", "rooms", "arrows", "up");
    for one in &house.crates {
        let sizes: Vec<String> = one.circles.iter().map(|circle| circle.len().to_string()).collect();
        let up = one.arrows_up.len();
        println!("{:<20} {:>5} {:>5} {:>6} {up:>3}  {}", one.name, one.files, one.rooms, one.arrows, sizes.join(" "));
    }
    println!("\narrows up, between the rooms of a crate");
    for one in &house.crates {
        for (from, to) in &one.arrows_up {
            println!("  {}: {from} -> {to}", one.name);
        }
    }
    println!("\ncircles");
    for circle in house.crates.iter().flat_map(|one| &one.circles) {
        println!("  {}: {}", circle.len(), circle.iter().cloned().collect::<Vec<_>>().join(" "));
    }
    let count: usize = house.test_binaries.iter().map(|one| one.count).sum();
    println!("\ntest binaries: {count}");
    for one in &house.test_binaries {
        println!("  {:>3} {}", one.count, one.package);
    }
    println!();
    house.words.print();
    println!();
    print_times(&house.steps, &house.slowest);
}

fn print_times(steps: &[Step], slowest: &[(f64, String)]) {
    println!("the last scripts/test: seconds, seconds of CPUs, step");
    for step in steps {
        println!("  {:>6.0} {:>6.0}  {}", step.seconds, step.cpu_seconds, step.name);
    }
    println!("its slowest tests: seconds, package, test");
    for (seconds, name) in slowest {
        println!("  {seconds:>6.1}  {name}");
    }
}

/// The folders of all crates of the workspace, by their paths.
fn crates(root: &Path) -> Result<Vec<String>> {
    let folders = fs::read_dir(root.join("crates"))?.collect::<Result<Vec<_>, _>>()?;
    let names = folders.iter().map(|folder| format!("crates/{}", folder.file_name().to_string_lossy()));
    let mut names: Vec<String> = names.filter(|name| root.join(name).join("Cargo.toml").exists()).collect();
    names.push("xtask".to_owned());
    names.sort();
    Ok(names)
}

/// Prints the imports among the files of each circle.
fn explain(root: &Path, name: &str) -> Result<()> {
    let imports = imports_of(root, name)?;
    for circle in graph::circles(&graph_of(&imports)) {
        println!("{} files", circle.len());
        let within = |file: &Path| circle.contains(&*file.to_string_lossy());
        let mut arrows: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for Import { from, to, path } in imports.iter().filter(|one| within(&one.from) && within(&one.to)) {
            // A name is imported once and used many times.
            let names = path.rsplit_once("::").map(|(_, name)| name);
            arrows.entry((from, to)).or_default().extend(names);
        }
        for ((from, to), names) in arrows {
            println!("  {} -> {}: {}", from.display(), to.display(), Vec::from_iter(names).join(" "));
        }
    }
    Ok(())
}

/// The imports of a crate's files, which are named from the root of the repository.
fn imports_of(root: &Path, name: &str) -> Result<BTreeSet<Import>> {
    let mut all = BTreeSet::new();
    for file in ["lib.rs", "main.rs"] {
        let file = Path::new(name).join("src").join(file);
        if root.join(&file).exists() {
            all.append(&mut imports::imports(&file, &|file| fs::read_to_string(root.join(file)).ok())?);
        }
    }
    Ok(all)
}

fn graph_of(imports: &BTreeSet<Import>) -> Graph {
    let mut graph = Graph::new();
    for Import { from, to, .. } in imports {
        let name = |file: &Path| file.to_string_lossy().into_owned();
        graph.entry(name(to)).or_default();
        graph.entry(name(from)).or_default().insert(name(to));
    }
    graph
}

fn look(root: &Path, name: &str) -> Result<Crate> {
    let files = graph_of(&imports_of(root, name)?);
    let source = format!("{name}/src/");
    let room_of = |file: &str| -> String {
        let inside = file.strip_prefix(&source).unwrap_or(file);
        inside.split(['/', '.']).next().unwrap_or_default().to_owned()
    };
    let mut rooms = Graph::new();
    for (from, to) in &files {
        let to = to.iter().map(|file| room_of(file)).filter(|to| *to != room_of(from));
        rooms.entry(room_of(from)).or_default().extend(to);
    }
    Ok(Crate {
        name: name.to_owned(),
        files: files.len(),
        rooms: rooms.len(),
        arrows: arrows(&rooms).count(),
        arrows_up: graph::arrows_up(&rooms),
        circles: graph::circles(&files),
    })
}

fn arrows(graph: &Graph) -> impl Iterator<Item = (&String, &String)> {
    graph.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)))
}

/// Number of programs that `cargo test` makes of each package, without tests in documentation.
fn test_binaries(root: &Path) -> Result<Vec<TestBinaries>> {
    let metadata = Command::new(cargo_program())
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists packages")?;
    let count = |package: &serde_json::Value| {
        let targets = package["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
        targets.iter().filter(|target| target["test"] == true).count()
    };
    let name = |package: &serde_json::Value| package["name"].as_str().unwrap_or_default().to_owned();
    Ok(packages.iter().map(|one| TestBinaries { package: name(one), count: count(one) }).collect())
}

/// The log of `scripts/test`: a line of seconds, CPU seconds and name, separated by tabs, for each step.
fn steps(root: &Path) -> Vec<Step> {
    let text = fs::read_to_string(target_folder(root).join("test-steps")).unwrap_or_default();
    let step = |line: &str| {
        let mut fields = line.splitn(3, '\t');
        let mut number = || fields.next()?.parse().ok();
        Some(Step { seconds: number()?, cpu_seconds: number()?, name: fields.next()?.to_owned() })
    };
    text.lines().filter_map(step).collect()
}

/// The first lines of the log of `cargo xtask tests`.
fn slowest(root: &Path) -> Vec<(f64, String)> {
    let text = fs::read_to_string(target_folder(root).join("test-times")).unwrap_or_default();
    let time = |line: &str| {
        let (seconds, name) = line.split_once('\t')?;
        Some((seconds.parse().ok()?, name.to_owned()))
    };
    text.lines().filter_map(time).take(SLOWEST).collect()
}
