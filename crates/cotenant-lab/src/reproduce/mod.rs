//! `cotenant-lab reproduce`: the papers' experiments on the simulated machine, paper and measured side by side.

mod assumption;
mod assumptions;
pub(crate) mod cases;
mod contentiousness;
mod evaluation;
mod feliu;
mod joint;
mod lab;
mod niceness;
mod real;
mod resense;
mod row;
mod sensitivity;
mod spread;
mod tang;
mod thresholds;
mod tumanov;
mod why;

use cotenant_cli::page::Sheet;
use cotenant_cli::progress::beside;
use cotenant_cli::table::Table;
use cotenant_cli::{answer, print_page, usage};
use cotenant_model::number::short;
use lab::{Effort, Lab, MACHINES};
use row::{Found, Outcome};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

const EXAMPLES: &str = "\
Examples:
  cotenant-lab reproduce --list
  cotenant-lab reproduce sam-fig7
  cotenant-lab reproduce --quick
  cotenant-lab reproduce --real tang-naps                on this machine, with real programs
  cotenant-lab reproduce --json > sam.json && cotenant report sam.json -o sam.html";

/// Arguments of `cotenant-lab reproduce`.
#[allow(clippy::struct_excessive_bools)] // switches of a command line
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Experiments, as --list names them [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Print the experiments and what each is about
    #[arg(long, conflicts_with_all = ["names", "quick", "seeds"])]
    pub list: bool,
    /// A part of the cases, shorter runs and fewer seeds: whether it works, not what it says
    #[arg(long)]
    pub quick: bool,
    /// How many seeds: where Linux starts threads is drawn anew with each [default: 10; with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub seeds: Option<u64>,
    /// Folder with NAME.toml for machines that are to be others than the shipped ones; the notes say so
    #[arg(long, value_name = "DIR")]
    pub machines: Option<PathBuf>,
    /// On this machine, with real programs: tang-contentiousness, tang-model, tang-padding, tang-naps,
    /// tang-qos-compile, tang-rn-simple, tang-rn-targeted, tang-rn-overhead [default: all eight]
    #[arg(long, conflicts_with_all = ["list", "seeds", "machines"])]
    pub real: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

type Experiment = fn(&mut Lab) -> anyhow::Result<Found>;

/// Name, figure, description, and the experiment.
const EXPERIMENTS: [(&str, &str, &str, Experiment); 45] = [
    ("sam-fig1", "Figure 1, §2.1", "two threads that share data, together and apart", thresholds::coherence),
    ("sam-fig2", "Figure 2, §2.2", "memory bandwidth of a socket with more and more tasks", thresholds::bandwidth),
    ("sam-fig5", "Figure 5 and Table 1, §4.2", "applications alone: speed and moves", evaluation::fig5),
    ("sam-fig6", "Figure 6, §4.2", "applications alone: IPC, coherence, LLC misses", evaluation::fig6),
    ("sam-fig7", "Figure 7 and Table 2, §4.3", "mixes of applications: speed and fairness", evaluation::fig7),
    ("sam-fig8", "Figure 8, §4.3", "mixes of applications: IPC, coherence, LLC misses", evaluation::fig8),
    ("sam-sensitivity", "§4.5", "SAM with other thresholds", sensitivity::thresholds),
    ("sam-overhead", "§4.4", "what watching costs", sensitivity::overhead),
    ("sam-assumptions", "Figures 1, 2, 5 and 7", "which assumption moves which figure", assumptions::all),
    ("feliu-characterization", "Figures 2–4, §4.1", "programs alone: IPC and rates of misses", feliu::characterization),
    ("feliu-memory", "Figures 5 and 7, §4.2", "programs beside memory traffic", feliu::memory),
    ("feliu-l2", "Figure 8, §4.3", "programs beside L2 traffic", feliu::l2),
    ("feliu-degradation", "Figure 9, §4.4", "programs at the traffic that schedulers aim at", feliu::degradation),
    ("feliu-speedup", "Figure 10, §6.2", "ten mixes under mas, cas and das", feliu::speedup),
    ("feliu-balance", "Figure 11, §6.2", "how evenly the L2 caches are used", feliu::balance),
    ("feliu-timeline", "Figures 12 and 13, §6.2", "the same over time", feliu::timeline),
    ("feliu-fairness", "Figure 14, §6.2", "programs that das makes faster than cas", feliu::fairness),
    ("feliu-chiplets", "beyond the paper", "mas, cas and das under 16 caches and 8 memory nodes", feliu::chiplets),
    ("resense-sensitivity", "Tables IV and V, §3.1", "how programs react to sharing", resense::sensitivity),
    ("resense-small", "Figure 7, Table VI, §3.2", "workloads of three programs", resense::small),
    ("resense-medium", "Figure 8, Table VI, §3.3", "workloads of four programs", resense::medium),
    ("resense-large", "Figure 9, Table VI, §3.4", "workloads of eight programs", resense::large),
    ("resense-fixed-signs", "Table VII, §3.5", "all scores positive, all negative, and as they are", resense::signs),
    ("resense-optimal", "Figures 10 and 11, §3.6", "ReSense against the best mapping", resense::optimal),
    ("tang-solo", "Figures 3.4–3.9, §3.2", "services alone in three mappings", tang::solo),
    ("tang-corun", "Figures 3.10–3.15, Table 3.4", "services beside batch programs", tang::corun),
    ("tang-threads", "Figures 3.17–3.21, §3.3.3", "the same with 2 and 6 threads, and on Westmere", tang::threads),
    ("tang-characteristics", "Figures 4.1 and 4.2, §4.1", "what a thread asks of bus and cache", tang::characteristics),
    ("tang-heuristic", "Table 4.1, §4.1", "the heuristic's mappings", tang::heuristic),
    ("tang-atom", "Figures 4.4 and 4.5, §4.2", "AToM against best, average and worst mapping", tang::atom),
    ("tang-contentiousness", "Figures 5.2–5.4, §5.2.1", "what programs cost each other", contentiousness::pairs),
    ("tang-model", "Equation 5.9, §5.2, §5.4", "what makes a program costly to others", contentiousness::model),
    ("tang-padding", "Figure 5.12, §5.4.3", "nops in a contentious program", niceness::padding),
    ("tang-naps", "Figures 5.13–5.17, §5.4.3", "naps that a compiler inserted", niceness::naps),
    (
        "tang-qos-compile",
        "Figures 5.18–5.20, 5.22, 5.23, §5.4.4",
        "such naps beside SPEC and a service",
        niceness::compiled,
    ),
    (
        "tang-phases",
        "Figures 5.9–5.11 and 5.21, §5.4",
        "a program's phases, their score, and naps in them",
        niceness::naps_over_a_run,
    ),
    ("tang-rn-simple", "Figures 6.5–6.10, §6.4.2", "naps by thresholds of the IPC", niceness::simple),
    (
        "tang-rn-targeted",
        "Figures 6.11–6.16, 6.24–6.26, §6.4",
        "naps by the difference that they make",
        niceness::targeted,
    ),
    ("tang-rn-phases", "Figures 6.17–6.21, §6.4.4", "naps over a run of sphinx", niceness::reaction_over_a_run),
    ("tang-rn-overhead", "Figure 6.22, §6.4.5", "what monitoring costs", niceness::overhead),
    ("tumanov-heatmap", "Figure 2, §3.2", "a kernel on each tile of a mesh", tumanov::heatmap),
    ("tumanov-distance", "Figure 3, §3.2", "a compiler's time over its distance from memory", tumanov::distance),
    ("tumanov-stream", "Figure 4, §4.3", "STREAM, watched and placed near its memory", tumanov::stream),
    ("tumanov-bench2", "Figure 5, §4.3", "a striding kernel, likewise", tumanov::bench2),
    ("tumanov-spread", "Figures 4 and 5", "both with their memory behind several controllers", tumanov::several),
];

/// Runs the subcommand.
///
/// # Errors
/// If a name is unknown, or the solver does not converge.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list {
        return print_page(|out| {
            let mut table = Table::new([""; 3]);
            for (name, figure, about, _) in EXPERIMENTS {
                table.row([name, figure, about]);
            }
            out.table(&table)?;
            Ok(ExitCode::SUCCESS)
        });
    }
    let known = |name: &String| EXPERIMENTS.iter().any(|e| e.0 == name);
    if let Some(name) = args.names.iter().find(|name| !known(name)) {
        let all = EXPERIMENTS.map(|e| e.0).join(", ");
        return Err(usage(format!("there is no experiment '{name}'; known: {all}")));
    }
    if args.real {
        let results = real::run(&args.names, args.quick)?;
        return show(&results, args.json);
    }
    let others = match &args.machines {
        Some(folder) if !folder.is_dir() => {
            return Err(usage(format!("--machines {}: there is no such folder", folder.display())));
        }
        Some(folder) => {
            let folder = MACHINES.get_or_init(|| folder.clone()).display();
            format!(" Machine files of {folder} come before the shipped ones.")
        }
        None => String::new(),
    };
    let effort = if args.quick { Effort::QUICK } else { Effort::WHOLE };
    let far = Arc::new(Mutex::new((0.0, "preparing simulations".to_owned())));
    let mut lab = Lab::new(Effort { seeds: args.seeds.unwrap_or(effort.seeds), ..effort }, Arc::clone(&far));
    let wanted = EXPERIMENTS.iter().filter(|e| args.names.is_empty() || args.names.iter().any(|name| e.0 == name));
    let how_far = || far.lock().map_or_else(|_| (0.0, String::new()), |far| far.clone());
    let results = beside(how_far, || {
        let results = wanted.map(|(experiment, figure, _, make)| {
            lab.show(0.0, (*experiment).to_owned());
            let found = make(&mut lab)?;
            let mut found = found.because(why::of(experiment, args.quick));
            found.note += &others;
            Ok(Outcome { experiment, figure, found })
        });
        results.collect::<anyhow::Result<Vec<Outcome>>>()
    });
    show(&results?, args.json)
}

fn show(results: &[Outcome], json: bool) -> anyhow::Result<ExitCode> {
    answer(json, results, |out| {
        for (i, result) in results.iter().enumerate() {
            if i > 0 {
                writeln!(out)?;
            }
            table(out, result)?;
        }
        Ok(())
    })
}

fn table(out: &mut Sheet<'_>, Outcome { experiment, figure, found }: &Outcome) -> io::Result<()> {
    writeln!(out, "{experiment}: {figure}")?;
    let mut table = Table::new(["", ">paper", ">ours", ""]);
    for row in &found.rows {
        let paper = row.paper.map_or("–".to_owned(), short);
        let words = if row.speaks() { format!("; {}", row.verdict) } else { String::new() };
        let spread = row.spread.as_ref().map_or(String::new(), |s| {
            let [low, q1, q3, high] = [s.low, s.q1, s.q3, s.high].map(short);
            let beyond = if s.outliers.is_empty() { String::new() } else { format!(", {} beyond", s.outliers.len()) };
            format!(" (quartiles {q1} to {q3}, whiskers {low} to {high}{beyond})")
        });
        let ends =
            row.interval.map_or(String::new(), |[least, most]| format!(" ({} to {})", short(least), short(most)));
        let rest = format!("{}{ends}{spread}{words}", row.unit);
        table.row([&row.label, &paper, &short(row.measured), &rest]);
    }
    out.table(&table)?;
    writeln!(out, "verdict: {}", found.verdict)?;
    writeln!(out, "note: {}", found.note)
}
