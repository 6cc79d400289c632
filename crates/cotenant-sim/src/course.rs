//! A scenario over a fixed time: the speed of each application on the way, and the settled placement.

use crate::host::SimHost;
use crate::kernel::{Kernel, KernelKind};
use crate::optimum::{self, Best, Limits, Worth};
use crate::run::{SimError, pin, places};
use crate::scenario::Scenario;
use crate::world::World;
use cotenant_model::action::{Action, Order, Outcome};
use cotenant_model::host::{Host, HostError, Mode, Round, Wake, drive};
use cotenant_model::policy::DynPolicy;
use cotenant_model::topology::symmetry::Slot;
use cotenant_model::{CpuId, Sample, Time, Topology};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// When to look at a course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// The interval between records of executed instructions.
    pub every: Duration,
    /// From this time on, the placement that lasts longest counts as settled, and late speeds are measured.
    pub rest_from: Time,
}

/// The result of a scenario that ran for a fixed time.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// Instructions that each application has executed by the end of each look, cumulative.
    pub work: Vec<Vec<f64>>,
    /// Instructions per second of each thread, application by application, over the settled part.
    pub late: Vec<Vec<f64>>,
    /// The CPU of each thread in the settled placement, application by application; empty if they never all ran.
    pub places: Vec<usize>,
    /// Fraction of each thread's memory accesses per node at the end.
    pub pages: Vec<Vec<f64>>,
    /// Threads that changed CPUs after their first.
    pub migrations: u64,
    /// Steps and samples that the simulation took.
    pub steps: u64,
}

/// Known facts about a settled machine.
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    /// Fraction of each thread's accesses per node; `None`: the nodes where it first touches its memory.
    pub pages: Option<&'a [Vec<f64>]>,
    /// The time from which the machine counts as settled.
    pub after: Time,
    /// The end of the measurement of speeds.
    pub until: Time,
}

/// A simulated machine observed on the way. Pages move only if the user allows it.
struct Looked {
    host: SimHost,
    looks: Looks,
    next: Time,
    moves_pages: bool,
    /// Whether the current placement is only a trial of the policy.
    tries: Rc<Cell<bool>>,
    work: Vec<Vec<f64>>,
    /// Instructions of each thread until the machine counts as settled.
    early: Vec<Vec<f64>>,
}

impl Looked {
    /// The next time at which something is recorded, independent of the loop's wake-ups.
    fn stop(&self, until: Time) -> Time {
        let now = self.host.world.now();
        let rest = Some(self.looks.rest_from).filter(|from| *from > now);
        until.min(self.next).min(rest.unwrap_or(Time::NEVER))
    }

    fn note(&mut self) {
        let world = &mut self.host.world;
        if world.now() == self.looks.rest_from {
            world.forget_places();
            self.early = world.instructions_of_threads();
        }
        if world.now() >= self.next {
            self.work.push(world.instructions());
            self.next = self.next + self.looks.every;
        }
    }
}

impl Host for Looked {
    fn topology(&self) -> &Topology {
        self.host.topology()
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        self.host.sample()
    }

    fn watch(&mut self, until: Time) {
        self.host.watch(until);
    }

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        if self.moves_pages {
            return self.host.apply(orders);
        }
        let denied = |order: &&Order| matches!(order.action, Action::Pages { .. });
        let others: Vec<Order> = orders.iter().filter(|order| !denied(order)).cloned().collect();
        let mut outcomes = self.host.apply(&others).into_iter();
        let one = |order| if denied(&order) { Outcome::Denied } else { outcomes.next().unwrap_or(Outcome::Gone) };
        orders.iter().map(one).collect()
    }

    fn wait(&mut self, until: Time) -> Wake {
        loop {
            let stop = self.stop(until);
            self.host.world.try_places(self.tries.get());
            let wake = self.host.wait(stop);
            self.note();
            if wake != Wake::Tick || self.host.world.now() >= until {
                return wake;
            }
        }
    }
}

impl Scenario {
    /// Whether the kernel moves memory between nodes.
    pub fn moves_memory(&self) -> bool {
        self.kernel.moves_memory(self.sim.nodes())
    }

    /// Runs the scenario under a policy to its end; programs need not finish. `watch` sees every round and returns
    /// whether the placement from then on is only a trial: trials never count as settled.
    ///
    /// # Errors
    /// If the policy refuses the machine, or the solver does not converge.
    pub fn course(
        &self,
        policy: &dyn DynPolicy,
        kernel: KernelKind,
        seed: u64,
        looks: Looks,
        mut watch: impl FnMut(&Round<'_>) -> bool,
    ) -> Result<Course, SimError> {
        self.check(policy)?;
        let mut world = World::new(self.sim.clone(), self.apps.clone(), Kernel::new(kernel), seed);
        (world.restart, world.budget) = (self.restart, self.budget);
        let host = SimHost::new(world, self.observation, seed, self.end);
        let next = Time(0) + looks.every;
        let tries = Rc::new(Cell::new(false));
        let moves_pages = self.config.move_pages;
        let (work, early) = (Vec::new(), Vec::new());
        let mut looked = Looked { host, looks, next, moves_pages, tries: tries.clone(), work, early };
        // Linux alone is not observed.
        if policy.name() != "none" {
            drive(&mut looked, policy, &self.ctx(), Mode::Enforce, |round| tries.set(watch(round)))?;
        }
        // A policy may have no further decision to make.
        while looked.wait(self.end) != Wake::Exit {}
        if let Some(failure) = looked.host.failure() {
            return Err(self.halted(failure.clone()));
        }
        let world = looked.host.world;
        let seconds = (self.end - looks.rest_from).as_secs_f64();
        let of_app = |(all, early): (Vec<f64>, &Vec<f64>)| -> Vec<f64> {
            all.iter().zip(early).map(|(all, early)| (all - early) / seconds).collect()
        };
        let late = world.instructions_of_threads().into_iter().zip(&looked.early).map(of_app).collect();
        let pages = world.threads.iter().map(|t| t.pages.clone()).collect();
        let (places, migrations, steps) = (world.lasting_places(), world.migrations, world.steps());
        Ok(Course { work: looked.work, late, places, pages, migrations, steps })
    }

    /// Instructions per second of each application with each thread fixed to the CPU in `places`, and seconds per
    /// instruction as if no thread waited for another.
    ///
    /// # Errors
    /// If the solver does not converge.
    ///
    /// # Panics
    /// `places` has not one CPU for each thread.
    pub fn at_rest(&self, places: &[usize], rest: Rest<'_>) -> Result<(Vec<f64>, Vec<f64>), SimError> {
        let mut specs = self.apps.clone();
        pin(&mut specs, places);
        let mut world = World::new(self.sim.clone(), specs, Kernel::new(KernelKind::EEVDF), 1);
        world.budget = self.budget;
        let advance = |world: &mut World, until| world.advance(until, false).map_err(|why| self.halted(why));
        if let Some(pages) = rest.pages {
            advance(&mut world, Time(1))?;
            world.threads.iter_mut().zip(pages).for_each(|(t, pages)| t.pages.clone_from(pages));
            world.disturb();
        }
        advance(&mut world, rest.after)?;
        let before = world.instructions();
        advance(&mut world, rest.until)?;
        let seconds = (rest.until - rest.after).as_secs_f64();
        let speeds = world.instructions().iter().zip(before).map(|(now, before)| (now - before) / seconds).collect();
        Ok((speeds, world.report().iter().map(|app| app.cost_s).collect()))
    }

    /// The static mapping with the highest `value` of the settled instructions per second, with the CPU of each thread;
    /// otherwise as [`Scenario::optimal`]. Where memory has a fixed place, threads stand near their own as far as the
    /// mapping allows.
    ///
    /// # Errors
    /// Those of [`Scenario::optimal`].
    pub fn best_at_rest(
        &self,
        value: &dyn Fn(&[f64]) -> f64,
        rest: Rest<'_>,
        limits: Limits,
        starts: &[Vec<usize>],
        seed: u64,
    ) -> Result<(Best, Vec<usize>), SimError> {
        let enumeration = self.mappings();
        let mut evaluate = |mapping: &[Slot]| -> Result<Worth, SimError> {
            let (speeds, costs) = self.at_rest(&self.near(places(&enumeration, mapping), rest), rest)?;
            Ok(Worth { value: value(&speeds), guide: -costs.iter().map(|cost| cost.ln()).sum::<f64>() })
        };
        let starts: Vec<Vec<Slot>> = starts.iter().filter_map(|places| self.mapping(&enumeration, places)).collect();
        let best = optimum::best(&enumeration, limits, &starts, seed, &mut evaluate)?;
        let best = best.ok_or_else(|| self.too_many(&enumeration))?;
        let places = self.near(places(&enumeration, &best.mapping), rest);
        Ok((best, places))
    }

    /// The same CPUs for each application, exchanged among its threads so that each is as near as possible to its
    /// memory.
    pub fn near(&self, mut places: Vec<usize>, rest: Rest<'_>) -> Vec<usize> {
        let Some(pages) = rest.pages else { return places };
        let node_of = |cpu: usize| self.sim.topology.node_of(CpuId(cpu as u32)).unwrap_or_default();
        let mut first = 0;
        for app in &self.apps {
            let own = first..first + app.threads;
            first = own.end;
            let mut free: Vec<Vec<usize>> = vec![Vec::new(); self.sim.nodes()];
            places[own.clone()].iter().rev().for_each(|&cpu| free[node_of(cpu)].push(cpu));
            let mut wishes: Vec<(usize, usize)> =
                own.clone().flat_map(|thread| (0..free.len()).map(move |node| (thread, node))).collect();
            wishes.sort_by(|a, b| pages[b.0][b.1].total_cmp(&pages[a.0][a.1]).then(a.cmp(b)));
            let mut stands = vec![false; app.threads];
            for (thread, node) in wishes {
                let stands = &mut stands[thread - own.start];
                if !*stands && let Some(cpu) = free[node].pop() {
                    (places[thread], *stands) = (cpu, true);
                }
            }
        }
        places
    }
}

/// The geometric mean of speeds over the speeds in `unit`.
pub fn mean_share(speeds: &[f64], unit: &[f64]) -> f64 {
    let logs: f64 = speeds.iter().zip(unit).map(|(speed, unit)| (speed / unit).ln()).sum();
    (logs / unit.len().max(1) as f64).exp()
}

/// The least of speeds over the speeds in `unit`.
pub fn least_share(speeds: &[f64], unit: &[f64]) -> f64 {
    speeds.iter().zip(unit).map(|(speed, unit)| speed / unit).fold(f64::INFINITY, f64::min)
}
