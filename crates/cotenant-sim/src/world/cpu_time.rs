//! How threads on one CPU share its time: in equal parts, and unused time goes to the others.

use super::World;
use crate::speed::{self, Unsettled};

/// Change of shares below which they count as settled.
const CLOSE: f64 = 1e-6;
/// Rounds of handing out unused time; barriers link CPUs, so that one round may require another.
const ROUNDS: usize = 16;

impl World {
    /// Speeds of the running threads. A thread that waits for requests or at a barrier leaves its remaining time to the
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
        // Each thread can always have its equal part.
        for cpu in &crowded {
            for &i in cpu {
                let limit = self.demands[i].limit.unwrap_or(1.0);
                self.demands[i].share = (1.0 / cpu.len() as f64).min(limit);
            }
        }
        self.speeds = speed::solve(&self.machine, &mut self.demands, &mut self.waits, at_s)?;
        Ok(())
    }

    /// Indices of the demands on each crowded CPU with a thread that may wait.
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

    /// Divides each crowded CPU by what its threads were seen to need; returns whether that changed anything.
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

    /// Fraction of its CPU's time that a thread needs; infinite if it uses all it gets.
    fn need(&self, demand: usize) -> f64 {
        let d = &self.demands[demand];
        let (cost, speed) = (d.cost_s(&self.waits), self.speeds[demand]);
        let team =
            if d.team.is_some() && speed * cost < d.share * (1.0 - CLOSE) { speed * cost } else { f64::INFINITY };
        team.min(d.cap.map_or(f64::INFINITY, |cap| cap * cost)).min(d.limit.unwrap_or(f64::INFINITY))
    }
}

/// Time that each thread on a CPU may take: equal parts, with unused time handed on (max-min fairness). A thread below
/// its part may still take unused time.
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
