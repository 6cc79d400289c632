//! `cotenant reproduce --real`: studies of chapter 5 of Tang's dissertation on this machine, with real programs.

mod pairs;
mod slowed;

use super::row::Result as Found;
use crate::cmd::calibrate::contention::pair;
use crate::others::Others;
use crate::scratch::Scratch;
use crate::words::tell;
use crate::{settings, usage};
use anyhow::{Result, bail};
use cotenant_core::{CpuId, Topology};
use cotenant_linux::sys;

/// This machine, as the studies use it.
struct Here {
    topology: Topology,
    /// Two cores that share a last-level cache, where there are such.
    cpus: [CpuId; 2],
    quick: bool,
    /// For what is compiled and read.
    folder: Scratch,
}

type Study = fn(&Here) -> Result<Found>;

/// Name, figure, and the study.
const STUDIES: [(&str, &str, Study); 4] = [
    ("tang-contentiousness", "Figures 5.2–5.4, §5.2.1, on this machine", pairs::pairs),
    ("tang-model", "Equation 5.9, §5.2, §5.4, on this machine", pairs::model),
    ("tang-padding", "Figure 5.12, §5.4.3, on this machine", slowed::padding),
    ("tang-naps", "Figures 5.13–5.17, §5.4.3, on this machine", slowed::naps),
];

/// Runs them one after the other.
pub(super) fn run(names: &[String], quick: bool) -> Result<Vec<Found>> {
    if let Some(name) = names.iter().find(|name| STUDIES.iter().all(|study| study.0 != **name)) {
        let all = STUDIES.map(|study| study.0).join(", ");
        return Err(usage(format!(
            "--real: '{name}' is not made here; there are {all}; for chapter 6 see cotenant qos"
        )));
    }
    let (topology, _) = settings::live_machine(None)?;
    let [first, second] = pair(&topology, topology.usable()).iter().collect::<Vec<_>>()[..] else {
        bail!("two programs beside each other need two CPUs, and one may be used; see cotenant topo and taskset -p $$");
    };
    let here = Here { cpus: [first, second], topology, quick, folder: Scratch::new("reproduce")? };
    let wanted = STUDIES.iter().filter(|study| names.is_empty() || names.iter().any(|name| study.0 == name));
    wanted
        .map(|(name, figure, study)| {
            let before = sys::children_cpu_time();
            let mut others = Others::watch(&here.topology, here.topology.usable());
            let found = study(&here)?;
            let own = sys::children_cpu_time().saturating_sub(before);
            let busy = others.as_mut().and_then(|others| others.share_besides(own));
            let busy = busy.map_or_else(
                || "how busy others kept them is not known".to_owned(),
                |share| format!("others used {:.0} % of this machine's CPU time meanwhile", share * 100.0),
            );
            let note = format!("CPUs {first} and {second}; {busy}. {}", found.note);
            Ok(Found { experiment: name, figure, note, ..found })
        })
        .collect()
}

/// Says that a part cannot be done here.
fn left_out(what: &str, why: impl std::fmt::Display) -> String {
    let text = format!("{what} is left out: {why}.");
    tell(&text);
    text
}
