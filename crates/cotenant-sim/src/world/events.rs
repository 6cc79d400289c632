//! Arrivals, phases and runs.

use super::faults::{NumaProcess, NumaThread, SCAN_DELAY};
use super::{Life, World};
use crate::app::Pages;
use cotenant_model::signal::Signal;
use cotenant_model::{CpuId, CpuSet};

/// Whether these remaining instructions count as none: fewer than rounding to nanoseconds leaves.
fn is_over(left: f64, of: f64) -> bool {
    left <= f64::min(8.0, 1e-6 * of)
}

impl World {
    /// Starts the due applications. At the same instant, different processes start them: their threads are created in
    /// random order among each other, each application's own in order.
    pub(super) fn begin_arrivals(&mut self) {
        let due: Vec<usize> = (0..self.apps.len())
            .filter(|&a| self.apps[a].life == Life::Before && self.apps[a].spec.arrival.0 <= self.now)
            .collect();
        if !due.is_empty() {
            self.begin_runs(&due);
        }
    }

    /// Starts a run of an application that waits for one.
    pub(crate) fn begin(&mut self, app: usize) {
        self.begin_runs(&[app]);
    }

    fn begin_runs(&mut self, apps: &[usize]) {
        let mut order: Vec<usize> = apps.iter().flat_map(|&a| vec![a; self.apps[a].threads.len()]).collect();
        self.rng.shuffle(&mut order);
        let mut next: Vec<usize> = self.apps.iter().map(|a| a.threads.start).collect();
        for app in order {
            let thread = next[app];
            next[app] += 1;
            self.begin_thread(app, thread);
        }
        for &app in apps {
            self.apps[app].life = Life::Running;
            self.apps[app].run_began = self.now;
            self.touch_pages(app);
            if self.apps[app].nap_until > self.now {
                self.doze(app);
            }
        }
        self.changed = true;
        self.kernel.disturb(self.now);
        self.disturb();
    }

    fn begin_thread(&mut self, app: usize, thread: usize) {
        let spec = &self.apps[app].spec;
        let (instructions, first) = (spec.instructions, spec.program.phases[0].instructions);
        let t = &mut self.threads[thread];
        t.phase = 0;
        t.phase_left = first.unwrap_or(f64::INFINITY);
        t.left = instructions;
        self.create(app, thread);
    }

    /// A new thread takes a slot and its remaining work.
    fn create(&mut self, app: usize, thread: usize) {
        let id = self.created;
        self.created += 1;
        let spec = &self.apps[app].spec;
        let pinned = spec.pinned.as_ref().map(|cpus| cpus[thread - self.apps[app].threads.start]);
        let anew = spec.program.threads_anew;
        self.stand(thread, None);
        let t = &mut self.threads[thread];
        t.id = id;
        (t.paused, t.napping) = (None, None);
        t.mask = pinned.map_or_else(|| t.allowed.clone(), |cpu| CpuSet::single(CpuId(cpu as u32)));
        t.anew_left = anew.unwrap_or(f64::INFINITY);
        t.held = 0.0;
        t.again = 0.0;
        t.near.fill(0.0);
        t.touches.fill(0.0);
        t.debt_s = 0.0;
        t.counts = [0.0; Signal::COUNT];
        t.exists = true;
        t.started = self.now;
        let cpu = self.idlest(thread);
        self.put(thread, cpu);
    }

    /// Ends all threads of an application and starts new ones, which the kernel places. Pages stay.
    fn create_anew(&mut self, app: usize) {
        let running = |t: &usize| self.threads[*t].cpu.is_some();
        let threads: Vec<usize> = self.apps[app].threads.clone().filter(running).collect();
        for &thread in &threads {
            self.stand(thread, None);
        }
        for thread in threads {
            self.create(app, thread);
        }
        self.changed = true;
        self.kernel.disturb(self.now);
        self.disturb();
    }

    pub(super) fn node_of(&self, thread: usize) -> usize {
        self.places.node.of[self.threads[thread].cpu.unwrap_or_default()]
    }

    /// First touch: a thread's own pages go to its node, shared pages to the nodes of the threads.
    fn touch_pages(&mut self, app: usize) {
        let program = self.apps[app].spec.program.clone();
        let nodes = self.machine.nodes();
        let threads = self.apps[app].threads.clone();
        let all_on = |node: usize| (0..nodes).map(|n| f64::from(u8::from(n == node))).collect::<Vec<f64>>();
        let touched = match &program.pages {
            Pages::FirstThread => Some(all_on(self.node_of(threads.start))),
            Pages::Interleave => Some(vec![1.0 / nodes as f64; nodes]),
            Pages::Fixed(shares) => Some(shares.clone()),
            Pages::FirstTouch => None,
        };
        for thread in threads {
            let own = touched.clone().unwrap_or_else(|| all_on(self.node_of(thread)));
            self.threads[thread].numa = NumaThread::new(own);
        }
        let common = touched.unwrap_or_else(|| self.spread(app));
        self.apps[app].numa = NumaProcess::new(self.now, common);
        self.mix_pages(app);
        self.kernel.scan = self.kernel.scan.min(self.now + SCAN_DELAY);
    }

    /// Applications that began at this instant have touched nothing yet: their pages go to the places of their threads
    /// at the end of the instant.
    pub(crate) fn touch_anew(&mut self) {
        for app in 0..self.apps.len() {
            if self.apps[app].life == Life::Running && self.apps[app].run_began == self.now {
                self.touch_pages(app);
                self.disturb();
            }
        }
    }

    /// Fraction of an application's threads on each node.
    pub(crate) fn spread(&self, app: usize) -> Vec<f64> {
        let mut spread = vec![0.0; self.machine.nodes()];
        let mut all = 0.0;
        for thread in self.apps[app].threads.clone() {
            if let Some(cpu) = self.threads[thread].cpu {
                spread[self.places.node.of[cpu]] += 1.0;
                all += 1.0;
            }
        }
        for share in &mut spread {
            *share /= f64::max(all, 1.0);
        }
        spread
    }

    /// Ends finished phases, runs and applications.
    pub(super) fn end_phases_and_runs(&mut self) {
        let (mut ended, mut anew, mut changed) = (Vec::new(), Vec::new(), false);
        for i in 0..self.running.len() {
            let thread = self.running[i];
            let t = &mut self.threads[thread];
            let app = &mut self.apps[t.app];
            let phases = &app.spec.program.phases;
            if app.spec.program.threads_anew.is_some_and(|of| is_over(t.anew_left, of)) {
                anew.push(t.app);
            }
            let of_phase = |phase: usize| phases[phase].instructions.unwrap_or(f64::INFINITY);
            if is_over(t.left, app.spec.instructions) {
                app.ends += 1;
                ended.push(t.app);
                self.stand(thread, None);
            } else if is_over(t.phase_left, of_phase(t.phase)) {
                app.ends += 1;
                t.phase = (t.phase + 1) % phases.len();
                t.phase_left = of_phase(t.phase);
                changed = true;
            }
        }
        anew.dedup();
        for app in anew {
            self.create_anew(app);
        }
        if changed {
            self.disturb();
        }
        if ended.is_empty() {
            return;
        }
        ended.sort_unstable();
        ended.dedup();
        self.disturb();
        self.changed = true;
        self.kernel.disturb(self.now);
        let mut again = Vec::new();
        for a in ended {
            let app = &mut self.apps[a];
            if self.threads[app.threads.clone()].iter().any(|t| t.cpu.or(t.paused).or(t.napping).is_some()) {
                continue;
            }
            app.times.push((self.now - app.run_began) as f64 / 1e9);
            self.threads[app.threads.clone()].iter_mut().for_each(|t| t.exists = false);
            if self.restart || app.times.len() < app.spec.runs as usize {
                again.push(a);
            } else {
                app.life = if app.spec.runs == 0 { Life::Before } else { Life::Done };
            }
        }
        if self.restart && self.apps.iter().all(|a| a.times.len() >= a.spec.runs as usize) {
            self.apps.iter_mut().for_each(|a| a.life = Life::Done);
            self.threads.iter_mut().for_each(|t| (t.cpu, t.exists) = (None, false));
            self.queues.fill(0);
            return;
        }
        again.sort_unstable();
        again.dedup();
        if !again.is_empty() {
            self.begin_runs(&again);
        }
    }
}
