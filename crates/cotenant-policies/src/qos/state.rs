//! The clock of `qos`: when a phase ends, and when to look next.

use super::actuation::step::Step;
use super::actuation::steps::{Moment, Ordered, RENEWED};
use super::actuation::{Away, Ladder, NOBODY, Named};
use super::controller;
use super::measurement::{self, Crowd, Gathered, Measurement, Pauses, QosSums, Sum, Taken, Wanted};
use super::phase::{Lasts, Phase, Waited, Why};
use super::settings::{High, QosConfig};
use cotenant_model::policy::Alone;
use cotenant_model::speed::Source;
use cotenant_model::{AppId, Reason, Time, Topology, View, number};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Sampling intervals of progress in a measuring pause: batched progress, which is counted from batch to batch, and
/// other progress.
const FINE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];

/// Sampling interval while a speed is unknown.
const KNOWN: Duration = Duration::from_millis(25);

/// After programs begin to run all the time, sample this often for this long, and query servers more often.
const TRIAL: Duration = Duration::from_secs(1);

/// What is added to a reason where low-priority programs run on beside those that are throttled.
const SPARED: &str = "; those that neither its waits nor a trial name run on";

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Weight of a new speed alone against those before.
const ALONE_WEIGHT: f64 = 0.1;

/// State of `qos`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QosState {
    /// State of the controller; `None`: nothing is protected now.
    controller: Option<controller::State>,
    /// The current phase.
    pub phase: Option<Phase>,
    /// Its start.
    pub(super) began: Time,
    /// Time of the last change in the low-priority programs' behaviour.
    #[serde(default)]
    tried: Time,
    /// Speed in this phase, by high-priority program.
    sums: Vec<Sum>,
    /// CPU time of the low-priority programs in this phase.
    #[serde(default)]
    taken: Taken,
    /// Causes of each high-priority program's waits in this phase, if observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    waited: Vec<Option<Waited>>,
    /// Which low-priority programs the waits name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) named: Named,
    /// Load of the machine by others.
    #[serde(default, skip_serializing_if = "is_default")]
    crowd: Crowd,
    #[serde(flatten)]
    ordered: Ordered,
    /// Places of programs.
    #[serde(default)]
    pub away: Away,
    /// Whether naps or limits throttle them.
    #[serde(default)]
    pub ladder: Ladder,
    /// Latencies gathered for a reading, by high-priority program.
    #[serde(default)]
    gathered: Vec<Gathered>,
    /// Time and window of each high-priority program's last reading; since the beginning without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    heard: Vec<(Time, Option<Duration>)>,
    /// Whether that is too long ago.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) silent: Vec<bool>,
    /// The speed alone from readings in pauses, likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    by_pauses: Vec<Pauses<f64>>,
    /// Time of each measurement of a speed alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    alone_at: Vec<Time>,
    /// Speed of each high-priority program in phases without the others; a moving mean.
    pub alone: Vec<Option<f64>>,
    /// Sums since the beginning.
    pub total: QosSums,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl QosState {
    /// Work that a high-priority program, by its index, would have done alone, in the unit of [`QosSums::speeds`];
    /// `None` before its speed alone is known.
    pub fn expected(&self, high: usize) -> Option<f64> {
        Some(self.total.alone(high, self.alone.get(high).copied().flatten()?))
    }

    /// The measured speed alone of a high-priority program, by its index.
    pub(super) fn measured_alone(&self, high: usize) -> Option<Alone> {
        let speed = self.alone.get(high).copied().flatten()?;
        let of = |kept: Option<Measurement>| kept.filter(|kept| kept.speed.to_bits() == speed.to_bits())?.told();
        let by_answers = self.gathered.get(high).and_then(|gathered| of(gathered.by_pauses.kept));
        let interval = by_answers.or_else(|| of(self.by_pauses.get(high)?.kept));
        Some(Alone { speed, interval, at: self.alone_at.get(high).copied().unwrap_or_default() })
    }

    /// Programs that miss their goal because of others.
    pub(super) fn slowed(&self, config: &QosConfig) -> Vec<AppId> {
        let left = self.controller.as_ref().and_then(controller::State::reference).unwrap_or_default();
        let slowed = |((high, left), alone): ((&High, Option<f64>), &Option<f64>)| {
            (left? < (*alone)? * config.goal(high)?).then_some(high.app)
        };
        config.high.iter().zip(left).zip(&self.alone).filter_map(slowed).collect()
    }

    /// Starts the next phase if this one has ended; returns whether it did.
    pub(super) fn go_on(&mut self, config: &QosConfig, view: &View, topology: &Topology, now: Time) -> bool {
        let (Some(phase), Some(_)) = (self.phase, &self.controller) else {
            self.heard = vec![(now, None); config.high.len()];
            let (phase, controller) = config.controller.start();
            self.begin(phase, controller, now, config);
            return true;
        };
        self.measure(config, view, phase);
        self.heard.resize(config.high.len(), (now, None));
        self.silent = self.heard.iter().map(|(at, window)| now - *at >= config.silence(*window)).collect();
        let cpus = topology.usable();
        self.taken.add(view, &config.low, cpus.len());
        self.crowd.add(view, &config.low, cpus.len());
        if !self.is_over(config, phase, now) {
            return false;
        }
        let Some(state) = self.controller.take() else { return false };
        if phase.why == Why::Baseline && self.sums.iter().any(|sum| !sum.read.is_empty()) {
            self.by_pauses.resize_with(self.sums.len(), Pauses::default);
            self.sums.iter_mut().zip(&mut self.by_pauses).for_each(|(sum, pauses)| sum.note_pause(pauses));
        }
        let room = config.place && self.away.knows_threads() && cpus.len() > 1;
        let mut seen = measurement::seen(&self.sums, self.taken, room);
        seen.silent.clone_from(&self.silent);
        seen.waited = std::mem::take(&mut self.waited);
        seen.no_background = !self.ladder.has_background(config);
        seen.crowded = self.is_crowded(config);
        let before = self.alone.clone();
        if phase.duty <= 0.0 && state.alone().is_none() {
            self.note_alone(&seen.speeds);
        }
        // A pause shows whether the goal is missed alone.
        let reference = if phase.duty > 0.0 { state.reference() } else { state.alone().map(<[_]>::to_vec) };
        if let Some(reference) = reference.filter(|_| phase.why != Why::Baseline) {
            config.to_one_goal(&mut seen, &reference);
        }
        let (old, (phase, controller)) = (phase, config.controller.next(state, &seen));
        let phase = phase.by(phase.held.map(|held| config.to_its_own(held)));
        let why = if phase.is_blind() && seen.is_silent() { Why::Silent } else { phase.why };
        let phase = Phase { why, ..phase };
        // A value that the controller dropped as possibly outdated stays with its age until a pause replaces it.
        if let Some(alone) = controller.alone().filter(|alone| alone.iter().any(Option::is_some)) {
            self.alone.resize(config.high.len(), None);
            self.alone.iter_mut().zip(alone).for_each(|(kept, alone)| *kept = alone.or(*kept));
        }
        self.alone_at.resize(self.alone.len(), now);
        // A pause ends when another phase begins: its last part gives the speed alone.
        let paused = old.duty <= 0.0 && phase.duty > 0.0;
        for (i, at) in self.alone_at.iter_mut().enumerate() {
            let told = seen.speeds.get(i).copied().flatten().filter(|_| paused);
            let changed = self.alone[i] != before.get(i).copied().flatten();
            if let (Some(alone), Source::Ipc | Source::Progress) = (self.alone[i], &config.high[i].metric) {
                // Neighbouring readings share disturbances: one a second is as informative.
                let another = now.0 / SECOND > at.0 / SECOND || before.get(i).copied().flatten().is_none();
                self.by_pauses.resize_with(self.by_pauses.len().max(i + 1), Pauses::default);
                self.by_pauses[i].follow(alone, told.filter(|_| another));
                if told.is_some() || changed {
                    *at = now;
                }
            } else if changed {
                *at = now;
            }
        }
        self.total.settle(&before, &self.alone);
        self.begin(phase, controller, now, config);
        true
    }

    /// Programs that have fallen silent since, and programs that report again.
    pub(super) fn silences(&self, config: &QosConfig, view: &View, before: &[bool]) -> Vec<String> {
        let before = before.iter().copied().chain(std::iter::repeat(false));
        let says = |(i, before): (usize, bool)| {
            let (high, (_, window)) = (config.high.get(i)?, self.heard.get(i)?);
            let (name, metric) = (&view.app(high.app)?.name, high.metric.label());
            let seconds = || number::significant(config.silence(*window).as_secs_f64(), 2);
            match (before, self.silent.get(i)?) {
                (false, true) => Some(format!(
                    "{name}: no reading of {metric} for {} s; nothing is throttled for it until there is one",
                    seconds()
                )),
                (true, false) => Some(format!("{name}: there are readings of {metric} again")),
                _ => None,
            }
        };
        before.enumerate().take(config.high.len()).filter_map(says).collect()
    }

    /// Ends the protection.
    pub(super) fn let_go(&mut self) -> bool {
        (self.controller, self.phase, self.named) = (None, None, Named::default());
        self.silent.clear();
        false
    }

    fn begin(&mut self, phase: Phase, controller: controller::State, now: Time, config: &QosConfig) {
        let what = |phase: &Phase| (phase.duty, phase.background, phase.aside);
        let as_before = |before: Phase| what(&before) == what(&phase);
        if !self.phase.is_some_and(as_before) {
            self.tried = now;
        }
        if self.named.begin(self.phase, &phase) {
            self.ordered.limit_again();
        }
        self.controller = Some(controller);
        self.phase = Some(phase);
        self.began = now;
        self.ordered.turn_ends = now;
        self.sums = vec![Sum::default(); config.high.len()];
        self.taken = Taken::default();
        self.waited.clear();
    }

    /// Orders due now, in a phase that begins or continues; without a phase, everything is undone.
    pub(super) fn steps(&mut self, config: &QosConfig, new: bool, now: Time) -> Vec<Step> {
        let Self { ladder, alone, phase, began, .. } = self;
        let moment = Moment { config, ladder, phase: *phase, began: *began, new, now, alone };
        self.ordered.steps(&moment, &mut self.total.naps)
    }

    /// The reason of a step, with the deciding figures.
    pub(super) fn reason(&self, config: &QosConfig, step: Step) -> Reason {
        let Some(phase) = self.phase else { return Reason::new("controller", NOBODY) };
        let duty =
            if phase.duty > 0.0 && phase.duty < 1.0 { format!(", duty {:.3}", phase.duty) } else { String::new() };
        let limits = self.ladder.reason(step).map_or_else(String::new, |why| format!("; {why}"));
        let spared = if self.named.spares(&config.low, &phase) { SPARED } else { "" };
        let what = format!("{}{}{duty}{limits}{spared}", phase.figures(), phase.why).into();
        Reason { what, app: config.beneficiary(&phase), ..Reason::new("controller", "") }
    }

    fn note_alone(&mut self, speeds: &[Option<f64>]) {
        self.alone.resize(speeds.len(), None);
        for (alone, speed) in self.alone.iter_mut().zip(speeds) {
            if let Some(speed) = speed {
                *alone = Some(alone.map_or(*speed, |mean| mean + ALONE_WEIGHT * (speed - mean)));
            }
        }
    }

    /// Adds the speeds of a view.
    fn measure(&mut self, config: &QosConfig, view: &View, phase: Phase) {
        self.total.pass(view.interval.as_secs_f64(), phase.duty, config.high.len());
        self.gathered.resize_with(config.high.len(), Gathered::default);
        // While nothing is known, such phases follow each other, and a reading may take longer than one.
        let from = if phase.is_blind() { self.tried } else { self.began } + config.settling(&phase);
        let readings = if let Lasts::Readings(n) = phase.lasts { n } else { 1 };
        // In a pause that measures the speed alone, answers are compared with themselves.
        let state = self.controller.as_ref().filter(|_| phase.why != Why::Baseline);
        let alone = state.and_then(controller::State::reference).unwrap_or_default();
        for (i, high) in config.high.iter().enumerate() {
            let Some(app) = view.app(high.app) else { continue };
            if app.waits.is_some() {
                self.waited.resize(config.high.len(), None);
                measurement::add_waits(&mut self.waited[i], &mut self.named, app, config, self.began);
            }
            let news = high.metric.term(view, app).filter(|[speed, _]| *speed > 0.0);
            let news = news.and_then(|_| high.metric.reading(view, app)).map(|reading| (reading.at, reading.window));
            // A program whose histogram does not reach its quantile still answers.
            let clipped = high.metric.clipped(view, app).map(|clipped| (clipped.at, clipped.window));
            if let (Some(heard), Some((at, window))) = (self.heard.get_mut(i), news.or(clipped)) {
                *heard = (at, Some(window));
            }
            let alone = alone.get(i).copied().flatten();
            let (goal, full, why) = (config.goal(high), phase.duty >= 1.0, phase.why);
            let wanted = Wanted { from, readings, alone, goal, full, why };
            if let (Source::Metric(_), Why::Baseline) = (&high.metric, why) {
                let clipped = high.metric.clipped(view, app);
                self.sums[i].clipped |= clipped.is_some_and(|clipped| clipped.since() >= from);
            }
            let told = measurement::speed(view, app, &high.metric, &mut self.gathered[i], &wanted);
            let Some(told) = told else { continue };
            self.total.add(i, &told);
            if told.since >= from {
                self.sums[i].add(&told, view, &high.metric, why);
            }
        }
    }

    /// Whether nothing can be measured: others fill the machine, and low-priority programs can be kept from taking from
    /// them.
    fn is_crowded(&self, config: &QosConfig) -> bool {
        self.crowd.is_full && self.ladder.has_background(config)
    }

    fn is_over(&self, config: &QosConfig, phase: Phase, now: Time) -> bool {
        match phase.lasts {
            Lasts::For(time) => now >= self.began + time,
            Lasts::UntilKnown(time) => {
                now >= self.began + time || self.sums.iter().any(|sum| sum.weight > 0.0 && sum.speed > 0.0)
            }
            Lasts::Readings(n) => {
                let known = || self.sums.iter().filter(|sum| sum.readings > 0);
                let any = known().next().is_some();
                let enough = any && known().all(|sum| sum.readings >= n);
                // After the time of one reading without a sign, the wait ends.
                let silent = !any && self.gathered.iter().all(Gathered::is_empty);
                let gone = !self.silent.is_empty() && self.silent.iter().all(|silent| *silent);
                let alarming = |sum: &Sum| sum.excess.is_some_and(|excess| excess.is_alarming());
                let alarm = phase.duty >= 1.0 && self.sums.iter().any(alarming);
                // It no longer measures anything.
                let in_vain = phase.why == Why::Baseline && self.sums.iter().any(|sum| sum.clipped);
                let in_vain = in_vain || phase.duty <= 0.0 && self.is_crowded(config);
                enough || alarm || gone || in_vain || now >= self.began + config.patience * if silent { 1 } else { n }
            }
        }
    }

    /// End of the trial at full duty; servers are queried more often until then.
    pub fn trial_ends(&self) -> Option<Time> {
        self.phase.filter(|phase| phase.duty >= 1.0).map(|_| self.tried + TRIAL)
    }

    /// Time of the next action.
    pub(super) fn next(&self, config: &QosConfig, now: Time) -> Time {
        let Some(phase) = self.phase else { return Time(u64::MAX) };
        let Ordered { napping_until, turn_ends, .. } = self.ordered;
        // Before it ends: a program that is released and stopped again has run in between.
        let renewed = Time(napping_until.0.saturating_sub(RENEWED.as_nanos() as u64)).max(now);
        let settled = self.began + config.settling(&phase);
        match phase.lasts {
            // A phase is sampled when it has settled and when it ends, so that the counts between are its own.
            Lasts::For(time) => {
                let next = if now < settled { settled } else { self.began + time };
                let napping = phase.duty <= 0.0 && napping_until < self.began + time;
                let next = if napping { next.min(renewed) } else { next };
                let told = |(high, sum): (&High, &Sum)| (high.metric == Source::Progress).then(|| sum.batches.may_be());
                let fine = config.high.iter().zip(&self.sums).filter_map(told).max();
                let fine = fine.filter(|_| phase.why == Why::Baseline).map(|batches| FINE[usize::from(!batches)]);
                fine.map_or(next, |fine| next.min(now + fine))
            }
            Lasts::UntilKnown(time) => (self.began + time).min(now + KNOWN),
            Lasts::Readings(_) if now < settled => settled,
            Lasts::Readings(_) if phase.duty <= 0.0 => renewed,
            Lasts::Readings(_) if phase.duty < 1.0 && !self.ordered.is_limited() => turn_ends.max(now),
            Lasts::Readings(_) => {
                // A harmful trial is stopped soon.
                let answers = || config.high.iter().any(|high| matches!(high.metric, Source::Latency(_)));
                let tries = self.trial_ends().is_some_and(|end| now < end) && answers();
                if tries { now + KNOWN } else { Time(u64::MAX) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::controller::Controller;
    use cotenant_model::speed::Source;

    /// Two low-priority programs, of which the waits name the first.
    #[test]
    fn who_is_not_named_by_waits_runs_on_and_the_reason_says_so() {
        let config = QosConfig {
            controller: Controller::preset("steady", 0.9).unwrap(),
            high: vec![High { app: AppId(0), metric: Source::from("latency_p99_s".to_owned()), goal: None }],
            low: vec![AppId(1), AppId(2)],
            place: false,
            limits: None,
            climb: false,
            settle: Duration::ZERO,
            patience: Duration::from_secs(5),
            silence: Duration::ZERO,
        };
        let mut state = QosState::default();
        let phase = |duty, why| Phase { lasts: Lasts::Readings(1), ..Phase::new(duty, Duration::ZERO, why) };
        let begin =
            |state: &mut QosState, phase: Phase| state.begin(phase, config.controller.start().1, Time(0), &config);
        begin(&mut state, phase(1.0, Why::Hold));
        state.named.add(AppId(1), 0.3);
        state.named.add(AppId(2), 0.01);
        begin(&mut state, phase(0.5, Why::Waits));
        let steps = state.steps(&config, true, Time(0));
        let ordered = |app| steps.iter().filter_map(|step| state.named.step(*step, AppId(app), state.phase)).count();
        assert_eq!((ordered(1), ordered(2)), (1, 0), "{steps:?}");
        let reason = state.reason(&config, steps[0]).what.to_string();
        let expected = "below the goal, it waits for a CPU behind the low-priority programs, duty 0.500; \
                        those that neither its waits nor a trial name run on";
        assert_eq!(reason, expected);
    }
}
