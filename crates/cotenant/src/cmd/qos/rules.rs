//! Programs that run already, by the rules of the daemon's configuration.

use super::cast::{Cast, unnamed_metric};
use anyhow::Result;
use cotenant_cli::messages::tell;
use cotenant_cli::usage;
use cotenant_daemon::rules::{Program, named_now};
use cotenant_linux::host::{AppSpec, What};
use cotenant_linux::sys;
use cotenant_setup::args::MetricArg;
use cotenant_status::class::Class;
use std::path::Path;

/// Those that the rules match now. Where the speed of a program is read stands in its rule, else in the one `--metric`,
/// else it is [`unnamed_metric`].
pub(super) fn cast(config: Option<&Path>, metrics: &[MetricArg], all_users: bool, bpf: bool) -> Result<Cast> {
    let named = named_now(config)?;
    named.warnings.iter().for_each(|warning| tell(format_args!("warning: {warning}")));
    if metrics.len() > 1 {
        return Err(usage(
            "--metric is given several times, and programs are named by rules; write metric = … in each rule",
        ));
    }
    let mut cast = Cast { notes: named.notes, ..Cast::default() };
    for Program { name, class, goal, metric, target, uid } in named.programs {
        if !all_users && uid != sys::euid() {
            cast.notes.push(format!("{name} belongs to another user and is left alone; add --all-users"));
            continue;
        }
        let program = AppSpec::new(name, What::Running(target));
        if class == Class::Low {
            cast.low.push(program);
            continue;
        }
        let named = metric.or_else(|| metrics.first().cloned());
        cast.metrics.push(named.unwrap_or_else(|| unnamed_metric(&program, bpf, &mut cast.notes)));
        cast.high.push(program);
        cast.goals.push(goal);
    }
    let missing = match (cast.high.is_empty(), cast.low.is_empty()) {
        (true, _) => "high",
        (_, true) => "low",
        _ => return Ok(cast),
    };
    let roots = missing == "high" && sys::euid() == 0;
    let hint = if roots { " (for root, a rule by command alone takes only programs that belong to root)" } else { "" };
    Err(usage(format!(
        "{}: no running process matches a rule with class = \"{missing}\"{hint}; start it first, or use --high and --low",
        named.path.display()
    )))
}
