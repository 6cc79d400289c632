//! The places of a task over time, for the bars of a report.

/// That a task stood somewhere, and how much of the time it ran, in steps of a sixteenth: finer ones are not seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub from: f64,
    pub to: f64,
    pub place: usize,
    pub steps: u8,
}

/// Steps of all of the time.
pub(super) const ALL: u8 = 16;

impl Stay {
    /// A fraction of time as steps; at least one for any run time.
    pub fn steps(share: f64) -> u8 {
        if share > 0.0 { (share * f64::from(ALL)).round().clamp(1.0, f64::from(ALL)) as u8 } else { 0 }
    }

    /// Makes one of each two that follow each other in the same place.
    pub fn coarsen(all: &mut Vec<Self>) {
        let mut coarse: Vec<Self> = Vec::with_capacity(all.len() / 2 + 1);
        let mut whole = true;
        for stay in all.drain(..) {
            let last =
                coarse.last_mut().filter(|last| !whole && last.place == stay.place && last.to >= stay.from - 1e-9);
            if let Some(last) = last {
                let [before, now] = [last.to - last.from, stay.to - stay.from];
                let ran = before * f64::from(last.steps) + now * f64::from(stay.steps);
                last.steps = Self::steps(ran / (before + now).max(f64::MIN_POSITIVE) / f64::from(ALL));
                (last.to, whole) = (stay.to, true);
            } else {
                coarse.push(stay);
                whole = false;
            }
        }
        *all = coarse;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_about_as_high_as_the_share_and_seen_at_all() {
        for (share, steps) in [(0.0, 0), (0.001, 1), (0.01, 1), (0.3, 5), (0.5, 8), (1.0, 16), (1.7, 16)] {
            assert_eq!(Stay::steps(share), steps, "{share}");
        }
        let stay = |from: f64, steps| Stay { from, to: from + 1.0, place: 0, steps };
        let mut all = vec![stay(0.0, 16), stay(1.0, 4), stay(2.0, 0), stay(3.0, 1)];
        Stay::coarsen(&mut all);
        let coarse: Vec<(f64, f64, u8)> = all.iter().map(|stay| (stay.from, stay.to, stay.steps)).collect();
        assert_eq!(coarse, [(0.0, 2.0, 10), (2.0, 4.0, 1)], "the means of both");
    }
}
