//! `cotenant sim FILE`: a scenario under several policies.

use super::args::Args;
use super::assumed::{self, Assumed};
use crate::run::recorder::Recorder;
use anyhow::Context as _;
use cotenant_cli::machine_arg::resolve_beside;
use cotenant_cli::messages::tell;
use cotenant_cli::page::Sheet;
use cotenant_cli::progress::{beside, simulating};
use cotenant_cli::table::Table;
use cotenant_cli::usage;
use cotenant_linux::given;
use cotenant_model::Mode;
use cotenant_model::number::scaled;
use cotenant_policies::Static;
use cotenant_record::{DEFAULTS, Header, HostDescription};
use cotenant_setup::{registry::registry, settings, units};
use cotenant_sim::band::ends;
use cotenant_sim::batch::{self, Batch, OPTIMAL, Plan, Series, map_text};
use cotenant_sim::flat_machine;
use cotenant_sim::optimum::{Best, Label, Limits};
use cotenant_sim::run::SimError;
use cotenant_sim::scenario::Scenario;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Limit of a recording, bytes.
const LIMIT: u64 = 1 << 30;

pub(super) fn run(args: &Args, file: &Path) -> anyhow::Result<ExitCode> {
    let path = file.display();
    let text = given::text(file).map_err(|e| usage(format!("{path}: {e}; give a scenario's TOML file")))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut scenario = Scenario::parse(&text, |name| resolve_beside(name, folder, flat_machine::of))
        .map_err(|e| usage(format!("{path}:{e}")))?;
    if let Some(spot) = scenario.spots.after {
        return Err(usage(format!("{path}:{spot}: after is for cotenant bench; give an arrival_s here")));
    }
    args.set.apply(&mut scenario.config.settings, args.policy.iter().map(String::as_str))?;
    let mut wants_profiles = false;
    for name in args.policy.iter().filter(|name| *name != OPTIMAL) {
        wants_profiles |= registry()
            .make(name, &scenario.config)
            .map_err(|e| usage(format!("--policy: {e}, optimal")))?
            .needs()
            .profiles;
    }
    if args.policy.iter().any(|name| name == "static") && scenario.config.settings.of::<Static>()?.map.is_none() {
        let how = "map = 'X*X*..' in its [policy], one character per CPU in the order of `cotenant topo`";
        return Err(usage(format!("{path}: policy static needs a map; give {how}")));
    }
    scenario.kernel = args.kernel.unwrap_or(scenario.kernel);
    let known = settings::simulated_profiles(args.profiles.as_deref(), wants_profiles, &scenario.machine.name)?;
    scenario.know(&known);
    let limit = usize::try_from(args.evaluations)?;
    let plan = Plan {
        policies: args.policy.clone(),
        seeds: args.seeds,
        limits: Limits { classes: limit, evaluations: limit },
    };
    let spots = scenario.spots.clone();
    let explain = |e: SimError| {
        let of_map = || matches!(&e, SimError::Refused(r) if r.policy == "static").then_some(spots.map).flatten();
        let at = e.spot().or_else(of_map).map_or_else(|| format!("{path}"), |spot| format!("{path}:{spot}"));
        match e {
            SimError::Refused(_) | SimError::TooManyThreads { .. } | SimError::Endless { .. } => {
                usage(format!("{at}: {e}"))
            }
            other => anyhow::Error::new(other).context(at),
        }
    };
    let batch = simulating(|progress| {
        if plan.policies.iter().any(|name| name == "heuristic") {
            scenario.characterize(scenario.kernel)?;
        }
        batch::run(&scenario, &plan, registry(), progress)
    });
    let batch = batch.map_err(&explain)?;
    if let Some(path) = &args.record {
        beside(
            || (0.0, "recording one simulation".to_owned()),
            || record(&scenario, &plan, (path, args.record_seed), explain),
        )?;
    }
    let drawn = if args.no_band || args.csv {
        Vec::new()
    } else {
        simulating(|progress| batch::drawn(&scenario, &plan, registry(), progress))
    };
    // Not among the results: the same scenario and seeds give the same bytes.
    for (best, seconds) in batch.series.iter().filter_map(|s| Some((s.best.as_ref()?, s.search_s))) {
        let (label, n) = (label(best), best.evaluations);
        eprintln!("{label}: {n} mappings evaluated in {seconds:.1} s, {:.0} a second", n as f64 / seconds);
    }
    if args.csv {
        return cotenant_cli::print(|out| Ok(csv(out, &scenario, &batch).map(|()| ExitCode::SUCCESS)?)).context("sim");
    }
    let text = |out: &mut Sheet<'_>| Ok(table(out, &scenario, &plan, &batch, &drawn)?);
    cotenant_cli::answer(args.json, &report(&scenario, &plan, &batch, &drawn), text).context("sim")
}

/// Records one of the simulations, which is run once more for that.
fn record(
    scenario: &Scenario,
    plan: &Plan,
    (path, seed): (&Path, u64),
    explain: impl FnOnce(SimError) -> anyhow::Error,
) -> anyhow::Result<()> {
    // Neither Linux nor the search for the optimum makes decisions in a run.
    let decides = |name: &&String| *name != OPTIMAL && *name != "none";
    let name = plan
        .policies
        .iter()
        .find(decides)
        .ok_or_else(|| usage("--record is for a policy that decides; name one with --policy, such as sam"))?;
    let policy = registry().make(name, &scenario.config).map_err(usage)?;
    let ctx = scenario.ctx();
    let header = Header {
        cotenant: env!("CARGO_PKG_VERSION").to_owned(),
        topology: ctx.topology.clone(),
        machine: ctx.machine.clone(),
        apps: ctx.apps.clone(),
        config: ctx.config.clone(),
        defaults: DEFAULTS,
        policy: name.clone(),
        rules: Vec::new(),
        mode: Mode::Enforce,
        seeds: vec![seed],
        host: HostDescription { kernel: scenario.kernel.to_string(), tier: "simulated".to_owned() },
        command: Vec::new(),
        started_unix_s: None,
        redacted: false,
    };
    let mut recorder = Recorder::create(path, &header, LIMIT)?;
    let run = scenario.run(&*policy, scenario.kernel, seed, |round| recorder.round(round).iter().for_each(tell));
    recorder.finish().iter().for_each(tell);
    run.map(drop).map_err(explain)
}

fn label(best: &Best) -> &'static str {
    match best.label {
        Label::Optimal => "optimal",
        Label::BestFound => "best found",
    }
}

/// Figures of a policy that need several outcomes.
struct Figures {
    times: Vec<f64>,
    makespan_s: f64,
    throughput: f64,
    migrations: f64,
    /// Accesses to memory × distance.
    access_distance: Option<f64>,
}

fn figures(batch: &Batch, series: &Series) -> Figures {
    let n = series.outcomes.len().max(1) as f64;
    let mean = |of: &dyn Fn(&cotenant_sim::run::Outcome) -> f64| series.outcomes.iter().map(of).sum::<f64>() / n;
    Figures {
        times: batch.times(series),
        makespan_s: mean(&|o| o.makespan_s),
        throughput: mean(&|o| o.apps.iter().map(|a| a.runs as f64).sum::<f64>() / o.makespan_s),
        migrations: mean(&|o| o.migrations as f64),
        access_distance: Some(mean(&|o| o.access_distance.unwrap_or(f64::NAN))).filter(|way| way.is_finite()),
    }
}

/// Results of one policy over the draws of guesses.
struct Band {
    /// Least and most of the mean speed-up over Linux.
    over_linux: (f64, f64),
    /// In how many of the draws the policy is faster than Linux by more than 0.1 %, and slower.
    faster: usize,
    slower: usize,
    /// Per application, least and most.
    slowdowns: Vec<(f64, f64)>,
}

impl Band {
    fn of(drawn: &[Batch], name: &str) -> Option<Self> {
        let find = |batch: &Batch| batch.series.iter().position(|series| series.name == name);
        let of: Vec<(&Batch, &Series)> = drawn.iter().filter_map(|b| Some((b, &b.series[find(b)?]))).collect();
        let gains: Vec<f64> = of.iter().map(|(batch, series)| batch.gain(series)).collect();
        let slowdown = |a: usize| ends(of.iter().map(|(batch, series)| batch.times(series)[a] / batch.alone_s[a]));
        Some(Self {
            over_linux: ends(gains.iter().copied())?,
            faster: gains.iter().filter(|gain| **gain > 0.001).count(),
            slower: gains.iter().filter(|gain| **gain < -0.001).count(),
            slowdowns: (0..drawn[0].alone_s.len()).filter_map(slowdown).collect(),
        })
    }
}

/// Of its applications, counting copies as one.
fn of_programs(scenario: &Scenario) -> Assumed<'_> {
    let named = |name: &'_ str| name.find('#').unwrap_or(name.len());
    assumed::of(scenario.apps.iter().map(|app| (&app.name[..named(&app.name)], &*app.program)))
}

fn report(scenario: &Scenario, plan: &Plan, batch: &Batch, drawn: &[Batch]) -> Value {
    let policy = |series: &Series| {
        let mut report = policy_report(scenario, batch, series);
        if let Some(band) = Band::of(drawn, &series.name) {
            let (least, most) = band.over_linux;
            report["over_linux_band"] = json!({ "least": least, "most": most, "draws": drawn.len(),
                "faster": band.faster, "slower": band.slower });
            for (a, (least, most)) in band.slowdowns.iter().enumerate() {
                report["apps"][a]["slowdown_band"] = json!([least, most]);
            }
        }
        report
    };
    let policies: Vec<Value> = batch.series.iter().map(policy).collect();
    let alone = scenario.apps.iter().zip(&batch.alone_s);
    let alone = alone.map(|(app, time)| json!({ "name": app.name, "threads": app.threads, "time_s": time }));
    let alone: Vec<Value> = alone.collect();
    let mut report = json!({ "machine": scenario.machine.name, "guesses": scenario.sim.guesses, "guessed": scenario.sim.guessed(), "assumed": of_programs(scenario), "alone": alone, "policies": policies });
    if plan.policies.iter().any(|name| name == "heuristic") {
        report["characteristics"] = json!({ "high": scenario.machine.profile.heuristic, "apps": scenario.profiles });
    }
    report
}

fn policy_report(scenario: &Scenario, batch: &Batch, series: &Series) -> Value {
    let f = figures(batch, series);
    let progress: Vec<f64> = batch.alone_s.iter().zip(&f.times).map(|(alone, time)| alone / time).collect();
    let app = |(a, progress): (usize, &f64)| {
        let (min, max) = units::ends(series.outcomes.iter().map(|o| o.apps[a].time_s / batch.alone_s[a]));
        let mut app = json!({ "name": series.outcomes[0].apps[a].name, "time_s": f.times[a],
            "slowdown": 1.0 / progress, "progress": progress, "slowdown_min": min, "slowdown_max": max });
        let latency = Batch::latency(series, a);
        if let Some(p50) = latency.quantile(0.5) {
            let (min, max) = units::ends(series.outcomes.iter().filter_map(|o| o.apps[a].latency.quantile(0.99)));
            app["latency_s"] = json!({ "p50": p50, "p95": latency.quantile(0.95), "p99": latency.quantile(0.99),
                "p99_min": min, "p99_max": max });
            app["backlog"] = json!(latency.backlog());
        }
        app
    };
    let apps: Vec<Value> = progress.iter().enumerate().map(app).collect();
    let (least, most) = units::ends(progress.iter().copied());
    let mut report = json!({
        "name": series.name, "kernel": scenario.kernel.to_string(), "seeds": series.outcomes.len(),
        "makespan_s": f.makespan_s, "apps": apps,
        "weighted_speedup": progress.iter().sum::<f64>(),
        "art_s": f.times.iter().sum::<f64>() / f.times.len() as f64,
        "throughput": f.throughput,
        "fairness": { "min": least, "max": most },
        "migrations": f.migrations,
        "access_distance": f.access_distance,
        "over_linux": batch.over_linux(series).map(|e| json!({ "mean": e.value, "ci95": e.half_width })),
        "over_linux_best": batch.over_linux_best(series),
    });
    if let Some(best) = &series.best {
        let classes = best.classes.map(|c| c.to_string());
        report["search"] = json!({ "label": best.label, "classes": classes, "evaluations": best.evaluations,
            "map": map_text(&best.mapping) });
    }
    report
}

fn csv(out: &mut dyn Write, scenario: &Scenario, batch: &Batch) -> io::Result<()> {
    writeln!(out, "policy,kernel,seed,app,time_s,alone_s,slowdown,migrations")?;
    for series in &batch.series {
        for (seed, outcome) in (1..).zip(&series.outcomes) {
            for (app, alone) in outcome.apps.iter().zip(&batch.alone_s) {
                let (name, kernel, moves) = (&series.name, scenario.kernel, outcome.migrations);
                let (time, slow) = (app.time_s, app.time_s / alone);
                let app = app.name.replace(['"', ',', '\n'], "_");
                writeln!(out, "{name},{kernel},{seed},{app},{time},{alone},{slow},{moves}")?;
            }
        }
    }
    Ok(())
}

fn table(out: &mut Sheet<'_>, scenario: &Scenario, plan: &Plan, batch: &Batch, drawn: &[Batch]) -> io::Result<()> {
    let (machine, kernel, seeds) = (&scenario.machine.name, scenario.kernel, plan.seeds);
    writeln!(out, "{machine}, kernel {kernel}, {seeds} seeds; seconds of a run, and how much slower than alone")?;
    let names: Vec<String> = batch.series.iter().map(|series| format!(">{}", series.name)).collect();
    let mut table = Table::new(["", ">alone"].into_iter().chain(names.iter().map(String::as_str)));
    let all: Vec<Figures> = batch.series.iter().map(|s| figures(batch, s)).collect();
    for (a, app) in scenario.apps.iter().enumerate() {
        let alone = batch.alone_s[a];
        let cell = |f: &Figures| format!("{:.3} ×{:.3}", f.times[a], f.times[a] / alone);
        table.row([app.name.clone(), format!("{alone:.3}")].into_iter().chain(all.iter().map(cell)));
    }
    let mut row = |label: &str, cell: &dyn Fn(usize) -> String| {
        table.row([label.to_owned(), String::new()].into_iter().chain((0..all.len()).map(cell)));
    };
    row("makespan", &|i| format!("{:.3} s", all[i].makespan_s));
    row("migrations", &|i| format!("{:.1}", all[i].migrations));
    if all.iter().all(|f| f.access_distance.is_some()) {
        row("Σ accesses × distance", &|i| scaled(all[i].access_distance.unwrap_or_default()));
    }
    row("over Linux", &|i| {
        let gain = batch.over_linux(&batch.series[i]);
        gain.map_or("one seed".to_owned(), |e| format!("{:+.1} ± {:.1} %", e.value * 100.0, e.half_width * 100.0))
    });
    row("over its best", &|i| format!("{:+.1} %", batch.over_linux_best(&batch.series[i]) * 100.0));
    let bands: Vec<Option<Band>> = batch.series.iter().map(|series| Band::of(drawn, &series.name)).collect();
    if bands.iter().any(Option::is_some) {
        row("with other guesses", &|i| {
            bands[i].as_ref().map_or_else(String::new, |band| {
                format!("{:+.1} to {:+.1} %", band.over_linux.0 * 100.0, band.over_linux.1 * 100.0)
            })
        });
        row("faster, slower", &|i| {
            let counts = |band: &Band| format!("{}, {} of {}", band.faster, band.slower, drawn.len());
            bands[i].as_ref().map_or_else(String::new, counts)
        });
    }
    for (a, app) in scenario.apps.iter().enumerate().filter(|(_, app)| app.load.is_some()) {
        let cell = |i: usize| {
            let latency = Batch::latency(&batch.series[i], a);
            let p99 = latency.quantile(0.99).map_or("none".to_owned(), |s| format!("{:.3} ms", s * 1e3));
            if latency.backlog() > 1.0 { format!("{p99}, overload") } else { p99 }
        };
        row(&format!("{} p99", app.name), &cell);
    }
    out.table(&table)?;
    for best in batch.series.iter().filter_map(|series| series.best.as_ref()) {
        let classes = best.classes.map_or("unknown".to_owned(), |c| c.to_string());
        let (label, n, map) = (label(best), best.evaluations, map_text(&best.mapping));
        writeln!(out, "{label}: {map} ({n} mappings evaluated of {classes} classes)")?;
    }
    let sim = &scenario.sim;
    let own = sim.assumed.iter().map(|key| format!("{key}, as its file says"));
    let guesses: Vec<String> = sim.guesses.iter().cloned().chain(own).collect();
    if !guesses.is_empty() {
        writeln!(out, "guessed for this machine: {}", guesses.join("; "))?;
    }
    assumed::say(out, &of_programs(scenario))?;
    if !drawn.is_empty() {
        writeln!(out, "with other guesses: over Linux, least and most of {} draws of these figures", drawn.len())?;
    }
    Ok(())
}
