//! This machine as a launcher of workloads.

use super::file::Program;
use anyhow::Result;
use cotenant_linux::host::{self, AppSpec, HostOptions, LinuxHost, Until};
use cotenant_measure::live::leftovers::{children, end, end_orphans};
use cotenant_measure::workload::{self, Ended, JobRuns, Launcher, RunError, Workload};
use cotenant_model::host::HostError;
use cotenant_model::{AppId, Host, Time, Topology};
use cotenant_setup::settings::Setup;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Instant;

struct Live<'a> {
    host: LinuxHost,
    /// By job.
    programs: Vec<&'a Program>,
    running: BTreeMap<AppId, usize>,
    shown: bool,
    /// Shows progress; returns when it wants to be called again.
    look: &'a mut dyn FnMut() -> Option<Instant>,
}

impl Launcher for Live<'_> {
    fn host(&self) -> &dyn Host {
        &self.host
    }

    fn host_mut(&mut self) -> &mut dyn Host {
        &mut self.host
    }

    fn now(&self) -> Time {
        self.host.now()
    }

    fn start(&mut self, job: usize) -> Result<(), HostError> {
        let program = self.programs[job];
        let mut command = Command::new(&program.command[0]);
        command.args(&program.command[1..]).stdin(Stdio::null());
        if !self.shown {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let app = self.host.add(AppSpec::command(program.name.clone(), command)).map_err(|e| HostError {
            what: format!("starting {}", program.name),
            why: e.to_string(),
            remedy: "what was started has been ended".to_owned(),
        })?;
        self.running.insert(app, job);
        Ok(())
    }

    fn look(&mut self) -> Option<Time> {
        let wait = (self.look)()?.saturating_duration_since(Instant::now());
        Some(self.now() + wait)
    }

    fn ended(&mut self) -> Vec<Ended> {
        let ended = self.host.take_ended().into_iter();
        let told = ended.filter_map(|host::Ended { app, code, at, .. }| {
            let failure = (code != 0)
                .then(|| format!("it failed with exit code {code}; see its own messages with --show-output"));
            Some(Ended { job: self.running.remove(&app)?, at, failure })
        });
        told.collect()
    }
}

/// The outcome of a workload.
pub(super) struct Went {
    pub ran: Result<Vec<JobRuns>, RunError>,
    /// The last signal that requested a stop.
    pub signal: Option<i32>,
    pub notes: Vec<String>,
}

/// Runs a workload on this machine: left to Linux, or by a setup. Afterwards none of it is running.
pub(super) fn once(
    topology: &Topology,
    workload: &Workload,
    programs: Vec<&Program>,
    setup: Option<&Setup>,
    shown: bool,
    look: &mut dyn FnMut() -> Option<Instant>,
) -> Result<Went> {
    let options =
        setup.map_or_else(HostOptions::default, |setup| HostOptions { act: true, ..setup.host_options(false) });
    let options = HostOptions { until: Until::Asked, ..options };
    let ours = children();
    let mut live =
        Live { host: LinuxHost::new(topology, Vec::new(), options)?, programs, running: BTreeMap::new(), shown, look };
    let rules = setup.map(Setup::rules).unwrap_or_default();
    let manager = rules.first().map(|rule| (rule.policy, &rule.ctx));
    let ran = workload::run(&mut live, workload, manager, |_| ());
    let mut left = end(&mut live.host);
    let mut notes = live.host.notes();
    let finish = live.host.finish();
    notes.extend(finish.restored.notes);
    left += end_orphans(&ours);
    if left > 0 && ran.is_ok() {
        notes.push("programs left processes behind when they ended; these were ended with the workload".to_owned());
    }
    Ok(Went { ran, signal: finish.signal, notes })
}
