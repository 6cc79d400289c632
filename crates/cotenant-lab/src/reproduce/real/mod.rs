//! `cotenant-lab reproduce --real`: studies of chapters 5 and 6 of Tang's dissertation on this machine, with real
//! programs.

mod here;
mod niceness;
mod pairs;
mod slowed;

use super::row::{Found, Outcome};
use anyhow::{Context, Result, bail};
use cotenant_cli::scratch::Scratch;
use cotenant_cli::{machine_arg, usage};
use cotenant_linux::sense::executable;
use cotenant_linux::sense::usage::{Own, Watch};
use cotenant_measure::characterize::Stop;
use cotenant_measure::live::kernel::pair;
use here::{Here, left_out};
use std::path::PathBuf;

type Study = fn(&Here) -> Result<Found>;

/// Name, figure, and the study.
const STUDIES: [(&str, &str, Study); 8] = [
    ("tang-contentiousness", "Figures 5.2–5.4, §5.2.1, on this machine", pairs::pairs),
    ("tang-model", "Equation 5.9, §5.2, §5.4, on this machine", pairs::model),
    ("tang-padding", "Figure 5.12, §5.4.3, on this machine", slowed::padding),
    ("tang-naps", "Figures 5.13–5.17, §5.4.3, on this machine", slowed::naps),
    ("tang-qos-compile", "Figures 5.18–5.20, §5.4.4, on this machine", slowed::compiled_for_qos),
    ("tang-rn-simple", "Figures 6.5–6.10, §6.4.2, on this machine", niceness::simple),
    ("tang-rn-targeted", "Figures 6.11–6.16, §6.4.3, on this machine", niceness::targeted),
    ("tang-rn-overhead", "Figures 6.22 and 6.23, §6.4.5, on this machine", niceness::overhead),
];

/// Runs them one after the other.
pub(super) fn run(names: &[String], quick: bool) -> Result<Vec<Outcome>> {
    if let Some(name) = names.iter().find(|name| STUDIES.iter().all(|study| study.0 != **name)) {
        let all = STUDIES.map(|study| study.0).join(", ");
        return Err(usage(format!("--real: '{name}' is not made here; there are {all}")));
    }
    let topology = machine_arg::resolve(None)?.machine.topology;
    let [first, second] = pair(&topology, topology.usable()).iter().collect::<Vec<_>>()[..] else {
        bail!("two programs beside each other need two CPUs, and one may be used; see cotenant topo and taskset -p $$");
    };
    let here =
        Here { cpus: [first, second], topology, quick, folder: Scratch::new("reproduce")?, cotenant: cotenant()? };
    let wanted = STUDIES.iter().filter(|study| names.is_empty() || names.iter().any(|name| study.0 == name));
    wanted
        .map(|&(experiment, figure, study)| {
            let mut others = Watch::new(here.topology.usable());
            others.catch_up(&Own::default());
            let found = match study(&here) {
                // With all studies selected, a failed one does not stop the others.
                Err(why) if names.is_empty() && matches!(why.downcast_ref(), Some(Stop::Missing(_))) => {
                    Found::new(Vec::new(), "not measured", left_out(experiment, why))
                }
                found => found?,
            };
            let busy = others.catch_up(&Own::default()).map_or_else(
                || "how busy others kept them is not known".to_owned(),
                |usage| format!("others used {:.0} % of this machine's CPU time meanwhile", usage.share() * 100.0),
            );
            let note = format!("CPUs {first} and {second}; {busy}. {}", found.note);
            Ok(Outcome { experiment, figure, found: Found { note, ..found } })
        })
        .collect()
}

/// The users' binary: the one beside this executable, otherwise from `PATH`.
fn cotenant() -> Result<PathBuf> {
    let beside = std::env::current_exe().context("this program's own file is not known")?.with_file_name("cotenant");
    let found = Some(beside).filter(|path| path.is_file()).or_else(|| executable::find("cotenant".as_ref()));
    found.context("--real runs cotenant, which is neither beside cotenant-lab nor in PATH; build or install it, too")
}
