//! Jobs of a queue on the machine: started, stopped for decisions, signalled and ended.

use super::queue::Program;
use super::{AppSpec, LinuxHost, StartError};
use crate::act::pause::Job;
use crate::act::throttle::Enforcer;
use crate::sys::launch::LaunchError;
use crate::sys::thread::{self, Identity, process_stat};
use crate::sys::waiter::{Event, asks_to_stop};
use crate::sys::{self, Usage};
use cotenant_model::{AppId, Wake};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Interval of checks whether jobs' remaining processes have ended after a request.
const LEFT: Duration = Duration::from_millis(20);

impl LinuxHost {
    /// Stops all for the decision at the end of a quantum.
    pub(super) fn stop_for_decision(&mut self) {
        let now = self.now();
        if let (Some(line), Some(act)) = (&mut self.line, &mut self.act)
            && std::mem::take(&mut line.due)
        {
            line.stopped = Some(Instant::now());
            act.pause_all(now, &self.observer);
        }
    }

    /// Starts jobs that may start; returns whether there was any.
    pub(super) fn start_jobs(&mut self) -> bool {
        let mut any = false;
        while let Some(Program { key, name, command }) = self.line.as_mut().and_then(|line| line.queue.next()) {
            let others = self.apps.values().any(|app| app.job.is_some());
            let throttled = Some(Enforcer::Outside);
            let ready = self.make_ready(AppSpec { throttled, ..AppSpec::command(name, command) }, Some(key));
            let started = ready.and_then(|ready| self.begin(ready));
            let Some(line) = &mut self.line else { return any };
            match started {
                Ok(_) => any = true,
                Err(StartError::Launch(why @ LaunchError::NoProcess { .. })) if others => {
                    self.notes.add(format!("jobs waited until others had ended: {why}"));
                    line.queue.put_back(key);
                    return any;
                }
                Err(why) => line.queue.not_started(key, why.to_string()),
            }
        }
        any
    }

    /// A job has ended and is no longer managed.
    pub(super) fn job_ended(&mut self, app: AppId, status: ExitStatus, usage: Usage) {
        let job = self.apps.get(&app).and_then(|app| app.job);
        self.remove(app);
        if let (Some((key, asked)), Some(line)) = (job, &mut self.line) {
            line.queue.ended(key, status, usage, asked);
        }
    }

    fn jobs(&self) -> Vec<AppId> {
        self.apps.iter().filter(|(_, app)| app.job.is_some()).map(|(id, _)| *id).collect()
    }

    /// Delivers a signal to every job.
    fn signal_jobs(&mut self, signal: i32) {
        let now = self.now();
        for id in self.jobs() {
            let Some(app) = self.apps.get_mut(&id) else { continue };
            let Some(pid) = app.pid() else { continue };
            if let Some((_, asked)) = &mut app.job {
                *asked |= process_stat(pid).is_some_and(|stat| !stat.is_dead());
            }
            if !self.act.as_mut().is_some_and(|act| act.signal(now, id, signal, &self.observer)) {
                // Not reaped yet, so that its id is valid.
                let _ = sys::signal_group(pid, signal);
                let _ = Job::of_processes().signal(signal, &self.observer.members(id)); // no group is read
            }
        }
    }

    /// Ends all jobs: first politely, then by force.
    pub(super) fn wind_up(&mut self) -> Wake {
        self.look_for_all(); // a job's first process may end before its children
        // What has ended by now did so by itself.
        let mut twice = false;
        while let Ok(event) = self.waiter.wait(Some(Instant::now())) {
            match event {
                Event::Exited(pid, status, usage) => self.child_ended(pid, status, usage),
                Event::Signal(signal) => twice |= asks_to_stop(signal),
                Event::Tick => break,
            }
        }
        let Some(line) = &mut self.line else { return Wake::Exit };
        line.queue.stop();
        let grace = line.grace;
        let members: Vec<Identity> = self.jobs().into_iter().flat_map(|job| self.observer.members(job)).collect();
        self.signal_jobs(libc::SIGTERM);
        let mut deadline = Some(Instant::now() + grace);
        if twice {
            deadline = None;
            self.signal_jobs(libc::SIGKILL);
        }
        while !self.jobs().is_empty() || deadline.is_some() && members.iter().any(|id| thread::lives(*id)) {
            // The end of remaining processes gives no event.
            let alone = self.jobs().is_empty().then(|| Instant::now() + LEFT);
            match self.waiter.wait(deadline.into_iter().chain(alone).min()) {
                Ok(Event::Exited(pid, status, usage)) => self.child_ended(pid, status, usage),
                Ok(Event::Tick) if deadline.is_some_and(|deadline| Instant::now() < deadline) => {}
                Ok(Event::Tick) => {
                    deadline = None;
                    self.notes
                        .add(format!("jobs that did not end within {} s of SIGTERM were killed", grace.as_secs_f64()));
                    self.signal_jobs(libc::SIGKILL);
                }
                // Requested twice.
                Ok(Event::Signal(signal)) if asks_to_stop(signal) => {
                    deadline = None;
                    self.signal_jobs(libc::SIGKILL);
                }
                Ok(_) => {}
                Err(e) => {
                    self.notes.add(format!("waiting failed: {e}; jobs go on by themselves"));
                    break;
                }
            }
        }
        if deadline.is_none() {
            let _ = Job::of_processes().signal(libc::SIGKILL, &members); // no group is read
        }
        Wake::Exit
    }
}
