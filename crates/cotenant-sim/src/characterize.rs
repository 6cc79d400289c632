//! What a policy may know of programs in advance, measured as on a real machine: by running them alone.

use crate::app::embedded;
use crate::kernel::{Kernel, KernelKind};
use crate::run::SimError;
use crate::scenario::{Scenario, alone_per_s};
use crate::world::{AppSpec, World};
use cotenant_model::Time;
use cotenant_model::policy::{Policy as _, Refusal};
use cotenant_model::profile::{AppProfile, High};
use cotenant_model::signal::Signal;
use cotenant_policies::Heuristic;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Mappings whose times differ by less than this count as equally good; Tang's limit for an optimal prediction (§4.1).
const MARGIN: f64 = 0.01;
/// Seconds of work per thread and calibration run: long enough for caches to fill.
const WORK_S: f64 = 0.5;

/// Counts of a program that ran alone.
#[derive(Clone, Copy, Debug)]
struct Counted {
    time_s: f64,
    sharing: f64,
    /// Per millisecond and thread.
    bus_per_ms: f64,
    misses_per_ms: f64,
}

impl Counted {
    fn footprint_per_ms(&self) -> f64 {
        self.misses_per_ms * (1.0 - self.sharing)
    }
}

impl Scenario {
    /// Adds profiles made beforehand, by name; the profile of `mcf06` also serves `mcf06#2`.
    pub fn know(&mut self, profiles: &BTreeMap<String, AppProfile>) {
        for (name, profile) in &mut self.profiles {
            let base = name.split_once('#').map_or(name.as_str(), |(base, _)| base);
            if let Some(known) = profiles.get(name).or_else(|| profiles.get(base)) {
                let latency_sensitive = profile.latency_sensitive || known.latency_sensitive;
                *profile = AppProfile { latency_sensitive, ..known.clone() };
            }
        }
    }

    /// Measures the profiles that `heuristic` needs (Tang §4.1, equation 4.1), each from a run alone under `kernel`
    /// where it is unknown. Unless the machine's file gives its thresholds, they are found from two threads of each
    /// program of `workloads/`, once on one last-level cache and once on two. Sharing counts as high from where one
    /// cache is better; a footprint, at low sharing, from where two are.
    ///
    /// # Errors
    /// On a machine with one last-level cache and no `[heuristic]`, without a latency-sensitive application, and where
    /// the solver does not converge.
    pub fn characterize(&mut self, kernel: KernelKind) -> Result<(), SimError> {
        let refuse = |why: &str, remedy: &str| {
            Refusal { policy: Heuristic.name(), why: why.to_owned(), remedy: remedy.to_owned() }.into()
        };
        if !self.profiles.values().any(|p| p.latency_sensitive) {
            let remedy = "add latency_sensitive = true to its [[app]], or give it a load";
            return Err(refuse("no application is marked as the latency-sensitive one", remedy));
        }
        if self.machine.profile.heuristic.is_none() {
            let why = "with one last-level cache there is nothing to calibrate what counts as high";
            let remedy = "take a machine with several, or add [heuristic] to its file";
            self.machine.profile.heuristic = Some(self.high()?.ok_or_else(|| refuse(why, remedy))?);
        }
        for app in &self.apps {
            let known = |p: &AppProfile| p.bus_per_ms.and(p.sharing).and(p.footprint_per_ms).is_some();
            if self.profiles.get(&app.name).is_some_and(known) {
                continue;
            }
            let spec = AppSpec { arrival: Time(0), runs: 1, ..app.clone() };
            let counted = self.count(spec, kernel)?;
            let profile = self.profiles.entry(app.name.clone()).or_default();
            *profile = AppProfile {
                bus_per_ms: profile.bus_per_ms.or(Some(counted.bus_per_ms)),
                sharing: profile.sharing.or(Some(counted.sharing)),
                footprint_per_ms: profile.footprint_per_ms.or(Some(counted.footprint_per_ms())),
                ..std::mem::take(profile)
            };
        }
        Ok(())
    }

    fn count(&self, spec: AppSpec, kernel: KernelKind) -> Result<Counted, SimError> {
        let threads = spec.threads as f64;
        let mut world = World::new(self.sim.clone(), vec![spec], Kernel::new(kernel), 1);
        world.budget = self.budget;
        world.advance(self.end, false).map_err(|why| self.halted(why))?;
        let sum = |signal: Signal| world.threads.iter().map(|t| t.counts[signal as usize]).sum::<f64>();
        let time_s = world.report()[0].times_s.first().copied().unwrap_or(world.now().as_secs_f64());
        let (requests, shared) = (sum(Signal::PrivateMisses), sum(Signal::SharedRequests));
        let per_ms = |events: f64| events / threads / (time_s * 1e3);
        Ok(Counted {
            time_s,
            sharing: if requests > 0.0 { shared / requests } else { 0.0 },
            bus_per_ms: per_ms(sum(Signal::BusTransactions)),
            misses_per_ms: per_ms(sum(Signal::LlcMisses)),
        })
    }

    /// Thresholds for "high" on this machine; `None` where all cores share one last-level cache, or no two do.
    fn high(&self) -> Result<Option<High>, SimError> {
        let Some((together, apart)) = self.pairs() else { return Ok(None) };
        // What two threads gain on one cache compared with two, as a fraction.
        let mut seen: Vec<(Counted, f64)> = Vec::new();
        for program in embedded().values() {
            let spec = AppSpec::new("", Arc::new(program.clone()), 2, WORK_S * alone_per_s(program, &self.sim));
            let on = |cpus: [usize; 2]| {
                self.count(AppSpec { pinned: Some(cpus.to_vec()), ..spec.clone() }, KernelKind::EEVDF)
            };
            let (near, far) = (on(together)?, on(apart)?);
            let gain = far.time_s / near.time_s - 1.0;
            seen.push((far, if gain.abs() < MARGIN { 0.0 } else { gain }));
        }
        let sharing = cut(seen.iter().map(|(c, gain)| (c.sharing, *gain)));
        let low = seen.iter().filter(|(c, _)| c.sharing < sharing);
        let footprint_per_ms = cut(low.map(|(c, gain)| (c.footprint_per_ms(), -gain)));
        Ok(Some(High { sharing: sharing.min(1.0), footprint_per_ms }))
    }

    /// Two CPUs on two cores of one last-level cache, and two with a cache each. All are on one memory path (Tang: bus)
    /// if the machine has such, otherwise on one node or package, so that only the cache differs.
    fn pairs(&self) -> Option<([usize; 2], [usize; 2])> {
        let p = crate::places::Places::new(&self.sim);
        let (first, rest) = p.cpus.split_first()?;
        let near = |cpu: &&usize| p.llc.of[**cpu] == p.llc.of[*first] && p.core.of[**cpu] != p.core.of[*first];
        let far = |cpu: &&usize| p.llc.of[**cpu] != p.llc.of[*first];
        let levels = |cpu: usize| {
            let bus = self.sim.bus_of[cpu] != self.sim.bus_of[*first];
            (bus, p.node.of[cpu] != p.node.of[*first], p.package.of[cpu] != p.package.of[*first])
        };
        let near = rest.iter().find(near)?;
        let far = rest.iter().filter(far).min_by_key(|cpu| levels(**cpu))?;
        Some(([*first, *near], [*first, *far]))
    }
}

/// The threshold that loses least when the choice is made at and above it; the highest of equals. `gain` is what the
/// choice brings at a value. Above all values if the choice never pays.
fn cut(seen: impl Iterator<Item = (f64, f64)>) -> f64 {
    let mut seen: Vec<(f64, f64)> = seen.collect();
    seen.sort_by(|a, b| a.0.total_cmp(&b.0));
    // If it is never made, the loss is what it would have gained.
    let mut lost: f64 = seen.iter().map(|s| s.1.max(0.0)).sum();
    let (mut best, mut least) = (f64::MAX, lost);
    for i in (0..seen.len()).rev() {
        let (value, gain) = seen[i];
        lost -= gain;
        let complete = i == 0 || seen[i - 1].0 < value;
        if complete && lost < least - 1e-12 {
            (best, least) = (value, lost);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::cut;
    use crate::tests::scenario;
    use cotenant_model::profile::AppProfile;

    #[test]
    fn profiles_are_taken_over_by_name() {
        let mut s = scenario(
            "machine = 'two'\n[[app]]\nprogram = 'mcf06'\n[[app]]\nprogram = 'mcf06'\n[[app]]\nprogram = 'cpu'\nlatency_sensitive = true\n[[app]]\nprogram = 'lbm06'",
        );
        let profile = |bus| AppProfile { bus_per_ms: Some(bus), ..AppProfile::default() };
        s.know(&[("mcf06".to_owned(), profile(1.0)), ("cpu".to_owned(), profile(2.0))].into());
        let known = |name: &str| (s.profiles[name].bus_per_ms, s.profiles[name].latency_sensitive);
        assert_eq!(
            ["mcf06", "mcf06#2", "cpu", "lbm06"].map(known),
            [(Some(1.0), false), (Some(1.0), false), (Some(2.0), true), (None, false)]
        );
    }

    #[test]
    fn a_cut_loses_least() {
        assert_eq!(cut([(1.0, -0.3), (2.0, 0.0), (3.0, 0.2), (4.0, 0.1)].into_iter()), 3.0);
        assert_eq!(cut([(1.0, -0.3), (2.0, 0.4), (3.0, -0.2), (4.0, 0.1)].into_iter()), 2.0, "0.2 is lost, not 0.4");
        assert_eq!(cut([(1.0, -0.3), (2.0, 0.0)].into_iter()), f64::MAX, "never");
        assert_eq!(cut([(1.0, 0.3), (1.0, -0.2), (2.0, 0.1)].into_iter()), 1.0, "equal values stand together");
    }
}
