//! The incumbent's speed and its variation.

use super::{ShapesPhase, ShapesTrialling, SpeedTrace, TrialTurn};
use crate::shapes::order::GroupCounts;
use crate::shapes::shape::Shape;
use crate::shapes::shape_board::ShapePlaces;
use crate::shapes::shapes_round::ShapesRound;
use crate::shapes::still_memory::{LONGEST, SETTLED};
use crate::shapes::trial::{Clock, Goal, TRACE, lead};
use cotenant_model::speed::Source;
use cotenant_model::{AppId, TaskId, View};
use std::time::Duration;

/// Least number of points of a trace.
const POINTS: usize = 12;
/// An application silent for this many seconds, or this many of its readings, ends the measurement.
const PATIENCE: f64 = 30.0;
const READINGS: f64 = 4.0;
/// An incumbent that cannot be put in place for this long is dropped.
const PLACED: Duration = Duration::from_secs(5);

impl SpeedTrace {
    /// Seconds of each point, and its speed over that of the first one.
    fn values(&self, goal: &Goal) -> Vec<(f64, f64)> {
        let first = self.points.first().map_or(&[][..], |(_, logs)| logs);
        self.points.iter().map(|(seconds, logs)| (*seconds, goal.worth(&lead(logs, first)))).collect()
    }

    fn is_complete(&self) -> bool {
        let seconds: f64 = self.points.iter().map(|(seconds, _)| seconds).sum();
        seconds + 1e-6 >= TRACE[usize::from(self.long)] && self.points.len() >= POINTS
    }
}

impl ShapesTrialling {
    /// A round that measures the incumbent.
    pub fn measure(
        &mut self,
        round: &ShapesRound<'_>,
        mut trace: SpeedTrace,
        members: &[(TaskId, usize)],
        stands: bool,
    ) -> TrialTurn {
        trace.asked = trace.asked.or(Some(round.now)).filter(|_| !stands);
        if trace.asked.is_some_and(|asked| round.now - asked > PLACED.max(3 * round.interval())) {
            return TrialTurn::Misplaced;
        }
        let Some(learned) = &mut self.learned else { return TrialTurn::Watch };
        if stands {
            learned.counted.add(round.view, members, learned.situation.groups.len());
        }
        let point = self.meter.add(round.view, &learned.situation.measures).filter(|_| stands);
        // Masks would prevent the kernel's own moves, whose result is the reference for everything.
        let mut settles = round.view.numa_balancing && learned.is_kernel && trace.waited < LONGEST;
        if settles {
            let own = |task| members.binary_search_by_key(&task, |member| member.0).is_ok();
            trace.waited += round.view.interval.as_secs_f64();
            let still = trace.still.add(round.view, own, SETTLED);
            settles = still < SETTLED.seconds;
            if still == 0.0 {
                trace.points.clear();
                learned.counted = GroupCounts::default();
            }
        }
        if let Some(point) = &point {
            learned.crossing.steadiness.add(point);
        }
        trace.points.extend(point.map(|point| (point.seconds, point.logs)));
        let complete = trace.is_complete() && !settles;
        let goal = learned.goal(round.settings.objective.as_ref(), round.view);
        let values = if complete { trace.values(&goal) } else { Vec::new() };
        let jumps = complete && !trace.long && Clock::jumps(&values);
        trace.long |= jumps;
        self.phase = ShapesPhase::Trace(trace);
        if complete && !jumps { TrialTurn::Traced(Clock::from_trace(&values)) } else { self.patience(round.view) }
    }

    /// Whether an application has been silent for longer than the interval of its readings explains.
    pub fn patience(&self, view: &View) -> TrialTurn {
        let waits = self.meter.waits();
        let Some(learned) = self.learned.as_ref().filter(|_| waits > PATIENCE) else { return TrialTurn::Stay };
        let measures = &learned.situation.measures;
        let reading = |(id, source): (&AppId, &Source)| source.reading(view, view.app(*id)?);
        let longest = measures.iter().filter_map(reading).map(|reading| reading.window).max();
        if waits > READINGS * longest.unwrap_or_default().as_secs_f64() {
            TrialTurn::Silent(self.meter.silent(measures), waits)
        } else {
            TrialTurn::Stay
        }
    }

    /// The incumbent's measurement is complete.
    pub fn take_clock(
        &mut self,
        round: &ShapesRound<'_>,
        clock: Clock,
        members: &[(TaskId, usize)],
        wanted: &ShapePlaces,
    ) {
        let Some(learned) = &mut self.learned else { return };
        learned.clock = clock;
        let board = learned.situation.board(round.ctx);
        if std::mem::take(&mut self.begun) {
            // The places of threads do not show which ones share cores although others are free.
            learned.begin_with(&board, learned.incumbent.clone(), wanted.clone(), ShapePlaces::new());
            learned.doubt(&board, round.view, members);
        } else {
            let groups = learned.situation.groups.len();
            let (shape, places, spots) = Shape::standing(&board, round.view, members, wanted, groups);
            let moved = learned.kernel != shape || round.drags_memory(&learned.places);
            if learned.kernel.counts.is_empty() || (learned.is_kernel && moved) {
                learned.begin_with(&board, shape, places, spots);
            }
        }
        learned.predict(&board, round.view, members);
    }
}
