//! Pages that follow their threads to other nodes, and the cost.

use super::World;
use super::parts::{Moving, STEP};
use crate::app::LINE;
use crate::machine::PAGE;
use crate::speed::{Demand, Use};

impl World {
    /// Queues the pages of a thread to follow it to these nodes.
    pub(crate) fn bring_pages(&mut self, thread: usize, nodes: Vec<usize>) {
        let id = self.threads[thread].id;
        self.moving.retain(|m| (m.thread, m.id) != (thread, id));
        self.moving.push_back(Moving { thread, id, nodes });
        self.step = self.step.min(STEP);
    }

    /// Drops finished moves and those of ended threads; returns the first remaining one, the target of each part of its
    /// accesses, and its bytes.
    fn first_moving(&mut self) -> Option<(usize, Vec<f64>, f64)> {
        while let Some(m) = self.moving.front() {
            let t = &self.threads[m.thread];
            if t.exists && t.id == m.id {
                let app = &self.apps[t.app];
                let shared = app.spec.program.shared;
                let common = self.spread(t.app);
                let own = |node: usize| f64::from(u8::from(m.nodes.contains(&node))) / m.nodes.len() as f64;
                let wanted: Vec<f64> =
                    (0..t.pages.len()).map(|n| shared * common[n] + (1.0 - shared) * own(n)).collect();
                let bytes = self.bytes_of(m.thread);
                if away(&wanted, &t.pages) * bytes >= PAGE {
                    return Some((m.thread, wanted, bytes));
                }
            }
            self.moving.pop_front();
        }
        None
    }

    /// The demand of copying pages: bytes instead of instructions, read on one node and written on another by one CPU.
    pub(super) fn copying(&mut self) -> Option<Demand> {
        if self.moving.is_empty() {
            return None;
        }
        let (thread, wanted, _) = self.first_moving()?;
        let (m, pages) = (&self.machine, &self.threads[thread].pages);
        let (change, away) = (|n: usize| wanted[n] - pages[n], away(&wanted, pages));
        let mut uses = Vec::new();
        let mut through = |station: usize, bytes: f64| {
            uses.push(Use::new(station, bytes, bytes / LINE / m.lines_in_flight));
        };
        for from in (0..pages.len()).filter(|&n| change(n) < 0.0) {
            through(from, -change(from) / away);
            for to in (0..pages.len()).filter(|&n| change(n) > 0.0) {
                through(m.link(from, to), change(from) * -change(to) / (away * away));
            }
        }
        for to in (0..pages.len()).filter(|&n| change(n) > 0.0) {
            through(to, change(to) / away);
        }
        let base_s = 1.0 / m.page_move_bytes_per_s;
        Some(Demand { share: 1.0, base_s, uses, ..Demand::default() })
    }

    /// Moves pages for `dt` seconds at the speed found. The copy uses an idle CPU, or takes that of a task.
    pub(super) fn move_pages(&mut self, dt: f64) {
        let Some(speed) = self.speeds.get(self.running.len()).copied() else { return };
        let mut left = speed * dt;
        while left > 0.0 {
            let Some((thread, wanted, bytes)) = self.first_moving() else { break };
            let pages = &mut self.threads[thread].pages;
            let under_way = away(&wanted, pages) * bytes;
            let part = (left / under_way).min(1.0);
            for ((share, wanted), moved) in pages.iter_mut().zip(&wanted).zip(&mut self.node_bytes) {
                let change = part * (wanted - *share);
                *share += change;
                *moved += change.abs() * bytes;
            }
            self.unmix_pages(thread);
            // A small remainder after the step is a rounding error.
            left = if part < 1.0 { 0.0 } else { left - under_way };
        }
        self.pay(dt - left.max(0.0) / speed);
    }

    /// Charges CPU time for work beside the tasks: to the task on the highest CPU, unless a CPU is idle.
    pub(crate) fn pay(&mut self, seconds: f64) {
        if self.places.cpus.iter().any(|&cpu| self.queues[cpu] == 0) {
            return;
        }
        if let Some(t) = self.threads.iter_mut().filter(|t| t.cpu.is_some()).max_by_key(|t| (t.cpu, t.id)) {
            t.debt_s += seconds;
        }
    }
}

/// Fraction of the accesses that is not on its target node.
fn away(wanted: &[f64], pages: &[f64]) -> f64 {
    wanted.iter().zip(pages).map(|(wanted, share)| (wanted - share).max(0.0)).sum()
}
