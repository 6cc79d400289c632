//! The jobs of the next quantum.

use super::round::{Job, Quantum, Round};
use cotenant_model::profile::{AppProfile, SENSITIVE, loss_at, loss_under};
use cotenant_model::{Action, CpuId, CpuSet, Evidence, PlaceKind, Reason, Signal, Unit};
use std::collections::BTreeMap;

/// Transactions per microsecond that each percent of a sensitive job's degradation adds to the need of each of its CPUs
/// (TPDS §5.3: "a fifth"; the unit is inferred).
const PENALTY_PER_PERCENT: f64 = 0.2;

/// The reason of each choice.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Per position in the queue: the best-fitting transactions per second and CPU; `None` for a job that runs in any
    /// case.
    chosen: BTreeMap<usize, Option<f64>>,
    /// The target's remainder per CPU.
    pub target: Option<f64>,
}

impl Selection {
    pub(super) fn reason(&self, round: &Round<'_>, i: usize, job: &Job, action: &Action) -> Reason {
        let fit = self.chosen.get(&i).copied().flatten();
        let place = job.cpus.first();
        let (stage, what, wanted, place) = match (action, round.policy) {
            (Action::Pause { .. }, Quantum::Fifo) => ("queue", "{app} waits for CPUs that become free", None, None),
            (Action::Pause { .. } | Action::Pages { .. }, _) => {
                ("select", "others fit the target better: {app} waits", self.target, None)
            }
            (Action::Release { .. }, Quantum::Fifo) => ("queue", "there are CPUs for {app}", None, None),
            (Action::Release { .. }, _) if fit.is_some() => {
                ("select", "{app} fits what is left of the target", fit, None)
            }
            (Action::Release { .. }, _) => ("select", "{app} is at the head of the queue, and runs", None, None),
            _ if fit.is_some() => {
                ("select", "{app} fits what is left of the target; caches are balanced from {place} on", fit, place)
            }
            _ => ("allocate", "caches are balanced: {app} from {place} on", None, place),
        };
        reason(stage, what, job, wanted, place)
    }
}

/// CPUs not yet assigned.
struct Room {
    left: usize,
    cpus: usize,
    /// Those that jobs with narrower masks will need.
    reserved: CpuSet,
}

impl Room {
    /// Assigns CPUs to a job, if enough allowed ones are left.
    fn take(&mut self, allowed: Option<&CpuSet>, width: usize) -> bool {
        if width > self.left {
            return false;
        }
        if let Some(allowed) = allowed {
            let free: CpuSet = allowed.minus(&self.reserved).iter().take(width).collect();
            if free.len() < width {
                return false;
            }
            self.reserved = self.reserved.or(&free);
        }
        self.left -= width;
        true
    }

    fn needs(&self, job: &Job) -> usize {
        job.width.clamp(1, self.cpus.max(1))
    }
}

/// Marks the running jobs: already marked ones stay; then the head of the queue, which always runs; then the job
/// nearest to the remaining target per CPU (TPDS Algorithm 1, lines 9–17), by the given target or that of the last
/// quantum's rates. `fifo` takes them in order.
pub(super) fn select(round: &Round<'_>, jobs: &mut [Job], given: Option<f64>) -> Selection {
    let cores = round.cpus.len();
    let mut room = Room { left: cores, cpus: cores, reserved: CpuSet::new() };
    let allowed: Vec<Option<CpuSet>> = jobs.iter().map(|job| round.allowed(job.app)).collect();
    let profiles: Vec<Option<&AppProfile>> = jobs.iter().map(|job| round.profile(job.app)).collect();
    let (per_cpu, penalty) = aims(round, jobs, &profiles);
    let per_cpu = given.or(per_cpu);
    let need = |i: usize, job: &Job| {
        let width = job.width.max(1) as f64;
        per_cpu.map_or(0.0, |target| job.misses.map_or(target, |misses| misses / width + penalty[i]))
    };
    let mut remain = per_cpu.unwrap_or(0.0) * cores as f64;
    let mut selection = Selection { chosen: BTreeMap::new(), target: per_cpu };
    for i in (0..jobs.len()).filter(|&i| jobs[i].runs).collect::<Vec<_>>() {
        let width = room.needs(&jobs[i]).min(room.left);
        room.take(allowed[i].as_ref(), width);
        remain -= need(i, &jobs[i]) * width as f64;
    }
    let mut waiting: Vec<usize> = (0..jobs.len()).filter(|&i| !jobs[i].runs).collect();
    let nobody = waiting.len() == jobs.len();
    if round.policy == Quantum::Fifo {
        for i in waiting {
            let width = room.needs(&jobs[i]);
            if !(room.take(allowed[i].as_ref(), width) || nobody && i == 0) {
                break; // an earlier job is not overtaken
            }
            jobs[i].runs = true;
        }
        return selection;
    }
    if nobody && !waiting.is_empty() {
        let head = waiting.remove(0);
        let width = room.needs(&jobs[head]);
        if !room.take(allowed[head].as_ref(), width) {
            room.left = room.left.saturating_sub(width);
        }
        remain -= need(head, &jobs[head]) * width as f64;
        jobs[head].runs = true;
        selection.chosen.insert(head, None);
    }
    // Ours (`progress`; otherwise 0): each quantum that a job is behind moves it closer, each that it is ahead moves it
    // away. The factor 1 + quanta has no parameter to tune.
    let distance = |wanted: f64, need: f64, job: &Job| {
        let off = (wanted - need).abs();
        if job.behind > 0.0 { off / (1.0 + job.behind) } else { off * (1.0 - job.behind) }
    };
    let plain = jobs.iter().all(|job| job.behind == 0.0);
    // By need, and on ties by place in the queue.
    let mut waiting: Vec<(f64, usize)> = waiting.into_iter().map(|i| (need(i, &jobs[i]), i)).collect();
    waiting.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    while room.left > 0 && !waiting.is_empty() {
        let wanted = remain / room.left as f64;
        let mut fits = |k: usize| {
            let i = waiting[k].1;
            let width = room.needs(&jobs[i]);
            room.take(allowed[i].as_ref(), width)
        };
        let off = |k: usize| distance(wanted, waiting[k].0, &jobs[waiting[k].1]);
        let order = |&a: &usize, &b: &usize| off(a).total_cmp(&off(b)).then(waiting[a].1.cmp(&waiting[b].1));
        let all = 0..waiting.len();
        let mut found = if plain { Some(nearest(&waiting, wanted)) } else { all.clone().min_by(order) };
        if !found.is_some_and(&mut fits) {
            let mut all: Vec<usize> = all.collect();
            all.sort_by(order);
            found = all.into_iter().find(|&k| fits(k));
        }
        let Some(k) = found else { break };
        let (need, i) = waiting.remove(k);
        remain -= need * room.needs(&jobs[i]) as f64;
        jobs[i].runs = true;
        selection.chosen.insert(i, per_cpu.map(|_| wanted));
    }
    selection
}

/// Index in this sorted list of the need nearest to the wanted one; on ties, of the first in the queue.
pub(super) fn nearest(waiting: &[(f64, usize)], wanted: f64) -> usize {
    let above = waiting.partition_point(|w| w.0 < wanted);
    let Some(&(below, _)) = above.checked_sub(1).and_then(|k| waiting.get(k)) else { return above };
    let first_below = waiting.partition_point(|w| w.0 < below);
    let key = |k: usize| ((wanted - waiting[k].0).abs(), waiting[k].1);
    if above < waiting.len() && key(above) < key(first_below) { above } else { first_below }
}

/// The target per CPU, and the penalties on the need of each job's CPUs, from the jobs' rates.
fn aims(round: &Round<'_>, jobs: &[Job], profiles: &[Option<&AppProfile>]) -> (Option<f64>, Vec<f64>) {
    let penalty = vec![0.0; jobs.len()];
    let per_cpu = target(jobs, profiles, &penalty);
    if round.policy != Quantum::Das {
        return (per_cpu, penalty);
    }
    let average = per_cpu.map(|per_cpu| per_cpu * round.cpus.len() as f64);
    let penalty_of = |job: &Job, p: &AppProfile| penalty_under_das(job, p, average, round.first_penalties);
    let of = |job: &Job, profile: Option<&AppProfile>| profile.map_or(0.0, |p| penalty_of(job, p));
    let penalty: Vec<f64> = jobs.iter().zip(profiles).map(|(job, profile)| of(job, *profile)).collect();
    (target(jobs, profiles, &penalty), penalty)
}

/// The target per CPU from the profiles' rates alone, as TPDS Algorithm 1 computes it in advance; `None` without any.
pub(super) fn once(round: &Round<'_>, jobs: &[Job]) -> Option<f64> {
    let profiles: Vec<Option<&AppProfile>> = jobs.iter().map(|job| round.profile(job.app)).collect();
    let alone = |(job, profile): (&Job, Option<&AppProfile>)| {
        let per_cpu = profile.and_then(|p| p.per_cpu_s.get(&Signal::LlcMisses));
        Job { misses: per_cpu.map(|rate| rate * job.width.max(1) as f64), ..job.clone() }
    };
    let jobs: Vec<Job> = jobs.iter().zip(profiles.iter().copied()).map(alone).collect();
    aims(round, &jobs, &profiles).0
}

/// The ideal average bandwidth per CPU: all jobs' transfers over their times alone, divided by the time in which all
/// CPUs could do them (TPDS Algorithm 1, line 1). Times alone come from profiles; without them, all count as equal.
/// Rates are those of the last quantum (ours: the paper's are measured alone). `None` if no job's rate is known.
fn target(jobs: &[Job], profiles: &[Option<&AppProfile>], penalty: &[f64]) -> Option<f64> {
    let (mut transfers, mut time) = (0.0, 0.0);
    for ((job, profile), penalty) in jobs.iter().zip(profiles).zip(penalty) {
        let Some(misses) = job.misses else { continue };
        let alone = profile.and_then(|p| p.alone_s).unwrap_or(1.0);
        let width = job.width.max(1) as f64;
        transfers += (misses + penalty * width) * alone;
        time += alone * width;
    }
    (time > 0.0).then(|| transfers / time)
}

/// Penalty under `das` on the need of each CPU of a job, transactions per second (TPDS §5.3, whose jobs have one
/// thread), given the ideal average of all jobs in transactions per second.
fn penalty_under_das(job: &Job, profile: &AppProfile, average: Option<f64>, first: bool) -> f64 {
    // Its co-runners draw the rest of the average (§4.4).
    let read_off = || {
        let (points, average, own) = (profile.degradation.get("memory")?, average?, job.misses?);
        if first { loss_under(points, (average - own).max(0.0)) } else { loss_at(points, average, own) }
    };
    let degradation = profile.average_traffic_loss.or_else(read_off).unwrap_or(0.0);
    let shared_by = if first { job.width.max(1) as f64 } else { 1.0 };
    if degradation >= SENSITIVE { degradation * 100.0 * PENALTY_PER_PERCENT * 1e6 / shared_by } else { 0.0 }
}

/// A reason with a job's rate per CPU, the best-fitting rate, and a place.
fn reason(stage: &'static str, what: &'static str, job: &Job, wanted: Option<f64>, place: Option<CpuId>) -> Reason {
    let mut reason = Reason::new(stage, what);
    reason.app = Some(job.app);
    reason.place = place.map(|cpu| (PlaceKind::Cpu, cpu.0));
    reason.evidence = job.misses.zip(wanted).map(|(misses, threshold)| Evidence {
        signal: Signal::LlcMisses,
        unit: Unit::PerSecond,
        value: misses / job.width as f64,
        threshold,
    });
    reason
}
