//! Whether other programs disturb a measurement.

use super::args::Args;
use cotenant_cli::messages::tell;
use cotenant_linux::sense::usage::{Own, Watch};
use cotenant_model::CpuSet;
use cotenant_model::usage::{Seen, Usage};
use std::path::Path;

/// Share of the CPUs' time used by other programs above which the whole calibration counts as noisy: rounds within
/// seconds do not show changes over minutes.
const QUIET: f64 = 0.05;

/// Looks what uses these CPUs before anything is measured, and warns where they are busy. What is measured begins now.
pub(super) fn look_first(cpus: &CpuSet, force: bool) -> (Watch, Seen) {
    let mut watch = Watch::new(cpus);
    let seen = Seen { before: watch.moment(&Own::default()), during: None };
    if let Some(busy) = seen.busy(cpus.len() as f64) {
        let then = if force { "by --force it is written all the same" } else { "what it disturbs replaces no profile" };
        tell(format_args!("{busy}; better calibrate when it is not: {then}"));
    }
    watch.catch_up(&Own::default());
    (watch, seen)
}

/// Whether the profile is written: a disturbed or empty one must neither replace another nor be found by later
/// commands, unless the user requests it. Prints the decision.
pub(super) fn may_write(disturbed: bool, args: &Args, path: &Path) -> bool {
    let is_new = args.output.is_some() && !path.is_file();
    let may = !disturbed || is_new || args.force;
    if !may {
        let path = path.display();
        tell(format_args!("{path}: not written; calibrate again when nothing else runs, or add --force"));
    }
    may
}

/// Whether other programs disturbed a measurement too much.
pub(super) fn is_too_noisy(usage: Option<&Usage>) -> bool {
    usage.is_some_and(|usage| usage.share() > QUIET)
}

/// The share of the CPUs' time used by other programs. Warns if they disturbed a measurement too much.
pub(super) fn remark(usage: Option<&Usage>) -> Option<f64> {
    let usage = usage?;
    let share = usage.share();
    if share > QUIET {
        tell(format_args!(
            "this machine is too noisy to be calibrated well: other programs used {:.0} % of its CPUs meanwhile ({}). \
             The next calibration may say something else, also of what is not marked noisy",
            share * 100.0,
            usage.text()
        ));
    }
    Some((share * 1e3).round() / 1e3)
}

pub(super) fn whither(written: Option<&Path>) -> String {
    written.map_or_else(|| "not written".to_owned(), |path| format!("written to {}", path.display()))
}
