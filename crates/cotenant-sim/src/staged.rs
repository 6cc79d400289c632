//! The simulated machine as a launcher: programs run when they are started, as `cotenant bench` starts real ones.

use crate::host::SimHost;
use crate::kernel::{Kernel, KernelKind};
use crate::run::SimError;
use crate::scenario::{Scenario, distinguish};
use crate::world::World;
use cotenant_measure::workload::{Ended, JobRuns, Launcher, Workload, run};
use cotenant_model::Time;
use cotenant_model::host::{Host, HostError, Round};
use cotenant_model::policy::DynPolicy;

/// A simulated machine on which only started programs run. Jobs are the applications of the scenario, in its order.
pub struct Staged {
    host: SimHost,
    /// Ends of runs already reported, by application.
    told: Vec<usize>,
}

impl Staged {
    fn new(scenario: &Scenario, kernel: KernelKind, seed: u64) -> Self {
        let mut specs = scenario.apps.clone();
        for spec in &mut specs {
            (spec.arrival, spec.runs) = (Time(u64::MAX), 0);
        }
        let mut world = World::new(scenario.sim.clone(), specs, Kernel::new(kernel), seed);
        let told = vec![0; scenario.apps.len()];
        world.budget = scenario.budget;
        Self { host: SimHost::new(world, scenario.observation, seed, scenario.end), told }
    }
}

impl Launcher for Staged {
    fn host(&self) -> &dyn Host {
        &self.host
    }

    fn host_mut(&mut self) -> &mut dyn Host {
        &mut self.host
    }

    fn now(&self) -> Time {
        self.host.world.now()
    }

    fn start(&mut self, job: usize) -> Result<(), HostError> {
        self.host.world.begin(job);
        Ok(())
    }

    fn ended(&mut self) -> Vec<Ended> {
        let at = self.now();
        let mut ended = Vec::new();
        for (job, app) in self.host.world.apps.iter().enumerate() {
            for _ in self.told[job]..app.times.len() {
                ended.push(Ended { job, at, failure: None });
            }
            self.told[job] = app.times.len();
        }
        ended
    }
}

impl Scenario {
    /// This scenario with the applications that a workload's jobs name, in their order; `None` if it lacks one. An
    /// application named by several jobs gets numbers, as in a file.
    pub fn for_jobs(&self, workload: &Workload) -> Option<Self> {
        let find = |name: &str| self.apps.iter().position(|app| app.name == name);
        let at: Vec<usize> = workload.jobs.iter().map(|job| find(&job.name)).collect::<Option<_>>()?;
        let mut scenario = Self { apps: at.iter().map(|&i| self.apps[i].clone()).collect(), ..self.clone() };
        scenario.spots.apps = at.iter().filter_map(|&i| self.spots.apps.get(i).copied()).collect();
        distinguish(&mut scenario.apps);
        for (app, &i) in scenario.apps.iter().zip(&at) {
            let profile = self.profiles.get(&self.apps[i].name).cloned().unwrap_or_default();
            scenario.profiles.insert(app.name.clone(), profile);
        }
        Some(scenario)
    }

    /// Runs a workload whose jobs are this scenario's applications, in its order: the same script that starts real
    /// programs. The scenario's own arrivals and runs are ignored. Without a policy, the programs are left to the
    /// kernel and not sampled.
    ///
    /// # Errors
    /// If the policy refuses the machine, the solver does not converge, or the scenario ends before the workload.
    pub fn staged(
        &self,
        workload: &Workload,
        policy: Option<&dyn DynPolicy>,
        kernel: KernelKind,
        seed: u64,
        watch: impl FnMut(&Round<'_>),
    ) -> Result<Vec<JobRuns>, SimError> {
        policy.map_or(Ok(()), |policy| self.check(policy))?;
        let mut stage = Staged::new(self, kernel, seed);
        let ctx = self.ctx();
        let ran = run(&mut stage, workload, policy.map(|policy| (policy, &ctx)), watch);
        match stage.host.failure() {
            Some(failure) => Err(self.halted(failure.clone())),
            None => Ok(ran?),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::scenario;
    use cotenant_measure::workload::{Arrival, Job, Workload};
    use cotenant_model::pin::Pin;
    use cotenant_model::policy::{Ctx, Needs, NoSettings, Policy};
    use cotenant_model::view::TaskView;
    use cotenant_model::{Action, ActionOutcome, CpuId, CpuSet, Decision, Proposal, Reason, Time, View};

    /// `a` twice from the beginning, `b` 0.5 s later, `c` after `b`; none slows another.
    fn workload() -> Workload {
        let job = |name: &str, arrival, runs| Job { name: name.to_owned(), arrival, runs };
        let jobs = vec![
            job("a", Arrival::At(Time(0)), 2),
            job("b", Arrival::At(Time::from_millis(500)), 1),
            job("c", Arrival::After(1), 1),
        ];
        Workload { jobs, restart: false, longest: None }
    }

    const APPS: &str = "machine = 'two'\n\
        [[app]]\nname = 'a'\nprogram = 'cpu'\nwork_s = 1\n\
        [[app]]\nname = 'b'\nprogram = 'cpu'\nwork_s = 2\n\
        [[app]]\nname = 'c'\nprogram = 'cpu'\nwork_s = 0.25\n";

    /// Promise measure/workloads: A workload is carried out as it is written, and is drawn the same for the same
    /// seed.
    #[test]
    fn programs_come_when_they_are_started() {
        let scenario = scenario(APPS);
        let linux = scenario.staged(&workload(), None, scenario.kernel, 1, |_| ()).unwrap();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 0.01, "{a} is not {b}");
        for (ran, (began, time)) in linux.iter().zip([(0.0, 1.0), (0.5, 2.0), (2.5, 0.25)]) {
            near(ran.began_s[0], began);
            near(ran.time_s(), time);
        }
        assert_eq!(linux.iter().map(|r| r.times_s.len()).collect::<Vec<_>>(), [2, 1, 1]);
        let mut rounds = 0;
        let policy = cotenant_policies::standard().make("resense", &scenario.config).unwrap();
        let managed = scenario.staged(&workload(), Some(&*policy), scenario.kernel, 1, |_| rounds += 1).unwrap();
        for (linux, managed) in linux.iter().zip(&managed) {
            near(linux.time_s(), managed.time_s());
        }
        assert!(rounds > 20, "{rounds}");
    }

    #[test]
    fn jobs_choose_applications() {
        let mut workload = workload();
        workload.jobs[2].name = "a".to_owned();
        let chosen = scenario(APPS).for_jobs(&workload).unwrap();
        assert_eq!(chosen.apps.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(), ["a", "b", "a#2"]);
        assert!(chosen.profiles.contains_key("a#2"));
        workload.jobs[0].name = "d".to_owned();
        assert!(scenario(APPS).for_jobs(&workload).is_none());
    }

    /// On two nodes, a program placed at its start touches its pages there and stays near them.
    /// Promise sim/pages: Pages follow orders at a price, and accesses by node are the lines that the
    /// node delivers.
    #[test]
    fn who_is_placed_at_once_touches_his_pages_there() {
        struct Far;
        impl Policy for Far {
            const SECTION: &'static str = "far";
            /// Whether all programs have been placed.
            type State = bool;
            type Settings = NoSettings;

            fn name(&self) -> &'static str {
                "far"
            }

            fn needs(&self) -> Needs {
                Needs { task_changes: true, ..Needs::default() }
            }

            fn decide(
                &self,
                ctx: &Ctx<'_>,
                view: &View,
                _: &[ActionOutcome],
                placed: bool,
                now: Time,
            ) -> Decision<bool> {
                // The package on which the kernel did not start it.
                let to = |cpu: CpuId| CpuId((cpu.0 + 4) % 8);
                let fresh = view.interval.is_zero() && !placed;
                let place = |t: &TaskView| Proposal {
                    action: Action::Place { task: t.info.id, contexts: CpuSet::single(to(t.cpu.unwrap_or_default())) },
                    reason: Reason::new("far", ""),
                };
                let proposals = if fresh { view.tasks.iter().map(place).collect() } else { Vec::new() };
                Decision::new(proposals, true, now + ctx.config.interval, Vec::new())
            }
        }
        let mut scenario = scenario("machine = 'two'\n[[app]]\nname = 'a'\nprogram = 'mcf06'\nwork_s = 1\n");
        scenario.observation.cost_s = 0.0;
        scenario.config.pin = Pin::Cpu;
        let jobs = vec![Job { name: "a".to_owned(), arrival: Arrival::At(Time(0)), runs: 1 }];
        let workload = Workload { jobs, restart: false, longest: None };
        let linux = scenario.staged(&workload, None, scenario.kernel, 1, |_| ()).unwrap()[0].time_s();
        let mut orders = 0;
        let moved = scenario.staged(&workload, Some(&Far), scenario.kernel, 1, |r| orders += r.orders.len()).unwrap();
        assert_eq!(orders, 1);
        assert!((moved[0].time_s() / linux - 1.0).abs() < 0.001, "{} is not {linux}", moved[0].time_s());
    }

    #[test]
    fn an_early_end_is_told() {
        let scenario = scenario(&APPS.replace("machine", "end_s = 2\nmachine"));
        let error = scenario.staged(&workload(), None, scenario.kernel, 1, |_| ()).unwrap_err().to_string();
        assert_eq!(error, "stopped before the end of the workload: b, c had not ended");
    }
}
