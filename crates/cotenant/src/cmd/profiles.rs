//! `cotenant profiles`: measured profiles of applications.

use anyhow::{Context, Result, bail};
use cotenant_cli::messages::{count, tell};
use cotenant_cli::table::Table;
use cotenant_cli::{answer, machine_arg, print, print_text, usage};
use cotenant_linux::bounded;
use cotenant_model::profile::{self, AppProfile};
use cotenant_setup::files::read_profiles;
use cotenant_setup::replace::replace;
use cotenant_setup::store::{self, Entry, Store};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant profiles list                    what is stored for this machine
  cotenant profiles show redis-server       one profile, as it is in its file
  cotenant profiles export -o apps.toml   all in one file, for --profiles
  cotenant profiles import apps.toml";

/// Arguments of `cotenant profiles`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to do
    #[command(subcommand)]
    what: What,
    /// The machine, by the name of its folder, such as that of a machine file [default: this one]
    #[arg(long, value_name = "NAME", global = true)]
    machine: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum What {
    /// All profiles, when they were measured, their scores, and whether they are stale
    List,
    /// A profile as it stands in its file; several by name
    Show {
        /// Names, as in the list; without the build where there is one build
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Remove profiles
    Rm {
        /// Names, as in the list
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Write profiles into one file
    Export {
        /// Names, as in the list [default: all; of several builds of an application the latest]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// The file [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Add the profiles of a file to those that are stored
    Import {
        /// A file with [app.NAME] tables
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// An invalid name or file; errors of the folder.
pub fn run(args: &Args) -> Result<ExitCode> {
    let store = match &args.machine {
        Some(name) => Store::of_machine(name),
        None => Store::of_this_machine(&machine_arg::resolve(None)?.machine.topology),
    };
    let store = store.ok_or_else(|| usage("there is no home folder for profiles; set XDG_DATA_HOME"))?;
    match &args.what {
        What::List => list(&store, args.json),
        What::Show { names } => show(&store, names, args.json),
        What::Rm { names } => remove(&store, names),
        What::Export { names, output } => export(&store, names, output.as_deref(), args.json),
        What::Import { file } => import(&store, file),
    }
}

/// A line of the list.
#[derive(Serialize)]
struct Row<'a> {
    key: &'a str,
    app: &'a str,
    path: &'a Path,
    date: Option<&'a str>,
    /// Scores by resource, percent.
    sensitivity: BTreeMap<&'a str, f64>,
    contentiousness: Option<f64>,
    footprint_bytes: Option<u64>,
    stale: &'a [String],
}

impl<'a> From<&'a Entry> for Row<'a> {
    fn from(entry: &'a Entry) -> Self {
        let AppProfile { sensitivity, contentiousness, footprint_bytes, stamp, .. } = &entry.profile;
        Self {
            key: &entry.key,
            app: &entry.name,
            path: &entry.path,
            date: stamp.as_ref().map(|stamp| stamp.date.as_str()),
            sensitivity: sensitivity.iter().map(|(name, score)| (name.as_str(), score.score)).collect(),
            contentiousness: *contentiousness,
            footprint_bytes: *footprint_bytes,
            stale: &entry.stale,
        }
    }
}

/// All readable ones; errors are printed.
fn entries(store: &Store) -> Vec<Entry> {
    let (entries, notes) = store.entries();
    notes.iter().for_each(tell);
    entries
}

fn list(store: &Store, json: bool) -> Result<ExitCode> {
    let entries = entries(store);
    let rows: Vec<Row<'_>> = entries.iter().map(Row::from).collect();
    answer(json, &rows, |out| {
        if entries.is_empty() {
            writeln!(out, "no profiles in {}; cotenant characterize measures one", store.folder().display())?;
        }
        let mut table = Table::new([""; 3]);
        for row in &rows {
            let scores = row.sensitivity.iter().map(|(name, score)| format!("{name} {score:+.1}"));
            let stale = row.stale.first().map(|change| format!("stale: the {change}"));
            let scores = Some(scores.collect::<Vec<_>>().join(", ")).filter(|scores| !scores.is_empty());
            let rest: Vec<String> = scores.into_iter().chain(stale).collect();
            table.row([row.key, row.date.unwrap_or("by hand"), &rest.join("  ")]);
        }
        Ok(out.table(&table)?)
    })
}

/// The entry of a name: its key, or its application if it has one build.
fn find<'a>(entries: &'a [Entry], store: &Store, name: &str) -> Result<&'a Entry> {
    if let Some(entry) = entries.iter().find(|e| e.key == name) {
        return Ok(entry);
    }
    let builds: Vec<&Entry> = entries.iter().filter(|e| e.name == name).collect();
    match builds[..] {
        [one] => Ok(one),
        [] => {
            let known: Vec<&str> = entries.iter().map(|e| e.key.as_str()).collect();
            let known = if known.is_empty() { "no profiles".to_owned() } else { known.join(", ") };
            Err(usage(format!("there is no profile '{name}' in {}; there are {known}", store.folder().display())))
        }
        _ => {
            let keys: Vec<&str> = builds.iter().map(|e| e.key.as_str()).collect();
            Err(usage(format!("there are several builds of '{name}'; name one of {}", keys.join(", "))))
        }
    }
}

fn show(store: &Store, names: &[String], json: bool) -> Result<ExitCode> {
    let entries = entries(store);
    let found: Vec<&Entry> = names.iter().map(|name| find(&entries, store, name)).collect::<Result<_>>()?;
    for entry in &found {
        entry.stale.iter().for_each(|change| tell(format_args!("{} is stale: the {change}", entry.key)));
    }
    let profiles: BTreeMap<&str, &AppProfile> = found.iter().map(|e| (e.key.as_str(), &e.profile)).collect();
    if json {
        return print(|out| cotenant_cli::pretty(out, &profiles).map(|()| ExitCode::SUCCESS));
    }
    let text = |entry: &&Entry| bounded::named_text(&entry.path).with_context(|| entry.path.display().to_string());
    print_text(&found.iter().map(text).collect::<Result<String>>()?)
}

fn remove(store: &Store, names: &[String]) -> Result<ExitCode> {
    let (entries, _) = store.entries(); // damaged ones can be removed, too
    for name in names {
        let key = find(&entries, store, name).map_or_else(|_| name.clone(), |entry| entry.key.clone());
        if !store.remove(&key)? {
            find(&entries, store, name)?;
            bail!("the profile '{name}' was removed meanwhile by another program");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn export(store: &Store, names: &[String], output: Option<&Path>, json: bool) -> Result<ExitCode> {
    let mut entries = entries(store);
    let date = |e: &Entry| e.profile.stamp.as_ref().map(|stamp| stamp.date.clone());
    entries.sort_by_key(date);
    let chosen: Vec<&Entry> = match names {
        [] => entries.iter().collect(),
        names => names.iter().map(|name| find(&entries, store, name)).collect::<Result<_>>()?,
    };
    let mut apps: BTreeMap<String, AppProfile> = BTreeMap::new();
    for entry in chosen {
        if apps.insert(entry.name.clone(), entry.profile.clone()).is_some() {
            tell(format_args!("there are several builds of {}; the latest is exported", entry.name));
        }
    }
    let text = if json { format!("{}\n", serde_json::to_string_pretty(&apps)?) } else { profile::write_apps(&apps) };
    let Some(path) = output else { return print_text(&text) };
    replace(path, text.as_bytes()).map_err(|why| {
        usage(format!("{}: the profiles cannot be written: {why}; name another file with -o", path.display()))
    })?;
    tell(format_args!("{} written to {}", count(apps.len() as u64, "profile"), path.display()));
    Ok(ExitCode::SUCCESS)
}

fn import(store: &Store, file: &Path) -> Result<ExitCode> {
    let apps = read_profiles(file)?;
    if apps.is_empty() {
        return Err(usage(format!("{}: there are no profiles in it; it needs [app.NAME] tables", file.display())));
    }
    for (name, profile) in apps {
        let executable = profile.stamp.as_ref().map(|stamp| stamp.executable.clone());
        let key = store::key(None, &name, executable.as_ref());
        let path = store.merge(&key, &name, profile)?;
        tell(format_args!("{key}: in {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}
