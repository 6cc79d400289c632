//! How threads on one CPU divide its time: in equal parts, and what one does not need is the others'.

use super::World;
use crate::speed::{self, Unsettled};

/// Shares that change less than this have settled.
const CLOSE: f64 = 1e-6;
/// Rounds of handing out what is left over; programs with barriers wait for each other across CPUs, so that one round
/// may make another.
const ROUNDS: usize = 16;

impl World {
    /// Speeds of what runs. A thread that waits, for requests or at a barrier, leaves the rest of its time to the
    /// others on its CPU.
    pub(super) fn solve(&mut self) -> Result<(), Unsettled> {
        let at_s = self.now as f64 / 1e9;
        let crowded = self.crowded();
        for _ in 0..ROUNDS {
            self.speeds = speed::solve(&self.machine, &mut self.demands, &mut self.waits, at_s)?;
            if !self.hand_out(&crowded) {
                return Ok(());
            }
        }
        // Each thread's equal part is always there.
        for cpu in &crowded {
            for &i in cpu {
                let limit = self.demands[i].limit.unwrap_or(1.0);
                self.demands[i].share = (1.0 / cpu.len() as f64).min(limit);
            }
        }
        self.speeds = speed::solve(&self.machine, &mut self.demands, &mut self.waits, at_s)?;
        Ok(())
    }

    /// Indices of the demands on each CPU that has several, among them one that may wait.
    fn crowded(&self) -> Vec<Vec<usize>> {
        let mut on = vec![Vec::new(); self.places.core.of.len()];
        for (i, &thread) in self.running.iter().enumerate() {
            on[self.threads[thread].cpu.unwrap_or_default()].push(i);
        }
        on.retain(|cpu| cpu.len() > 1 && cpu.iter().any(|&i| self.waits_at(i)));
        on
    }

    fn waits_at(&self, demand: usize) -> bool {
        let d = &self.demands[demand];
        d.cap.is_some() || d.team.is_some() || d.limit.is_some()
    }

    /// Divides each crowded CPU anew by what its threads were seen to need; whether that changed anything.
    fn hand_out(&mut self, crowded: &[Vec<usize>]) -> bool {
        let mut changed = false;
        for cpu in crowded {
            let needs: Vec<f64> = cpu.iter().map(|&i| self.need(i)).collect();
            for (&i, share) in cpu.iter().zip(shares(&needs)) {
                let share = share.min(self.demands[i].limit.unwrap_or(1.0));
                changed |= (self.demands[i].share - share).abs() > CLOSE;
                self.demands[i].share = share;
            }
        }
        changed
    }

    /// Part of its CPU's time that a thread needs; infinite where it takes what it gets.
    fn need(&self, demand: usize) -> f64 {
        let d = &self.demands[demand];
        let (cost, speed) = (d.cost_s(&self.waits), self.speeds[demand]);
        let team =
            if d.team.is_some() && speed * cost < d.share * (1.0 - CLOSE) { speed * cost } else { f64::INFINITY };
        team.min(d.cap.map_or(f64::INFINITY, |cap| cap * cost)).min(d.limit.unwrap_or(f64::INFINITY))
    }
}

/// What each thread on a CPU may take of its time: equal parts, what one does not need handed on to the others
/// (max-min fairness). A thread that needs less than its part may still take what no other uses.
fn shares(needs: &[f64]) -> Vec<f64> {
    let mut sorted = needs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut left = 1.0;
    for (i, need) in sorted.iter().enumerate() {
        let part = left / (needs.len() - i) as f64;
        if *need > part {
            return vec![part; needs.len()];
        }
        left -= need;
    }
    needs.iter().map(|need| need + left).collect()
}

#[cfg(test)]
mod tests {
    use super::shares;

    /// Three threads: one needs a tenth; the others want all and get 0.45 each. Where all are content, the rest is
    /// there for each.
    #[test]
    fn what_one_does_not_need_is_the_others() {
        let all = f64::INFINITY;
        assert_eq!(shares(&[all, all]), [0.5, 0.5]);
        assert_eq!(shares(&[0.1, all, all]), [0.45; 3]);
        assert_eq!(shares(&[0.6, all]), [0.5, 0.5], "an equal part and no more");
        let content = shares(&[0.25, 0.5]);
        assert_eq!(content, [0.5, 0.75], "a quarter is idle");
    }
}
