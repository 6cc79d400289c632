//! What tells how fast an application is, for the policies that compare speeds: `auto` and `atom`.

use cotenant_model::sample::{Direction, Reading};
use cotenant_model::view::{AppView, View};

/// What the application's speed is told by in this round, and the reading, turned so that higher is better and above 0: the first
/// metric from outside, because the user asked for it, by name; else the progress that the program reports itself. `None`: neither.
pub(super) fn told(view: &View, app: &AppView) -> Option<(Option<String>, Reading)> {
    if let Some((name, reading)) = app.metrics.iter().find(|(_, reading)| usable(reading.value)) {
        let value = match reading.direction {
            Direction::HigherIsBetter => reading.value,
            Direction::LowerIsBetter => reading.value.recip(),
        };
        return Some((Some(name.clone()), Reading { value, ..*reading }));
    }
    app.progress_per_s.filter(|value| usable(*value)).map(|value| (None, of_the_interval(view, value)))
}

/// A reading, higher is better, that summarises the view's interval.
pub(super) fn of_the_interval(view: &View, value: f64) -> Reading {
    Reading { value, direction: Direction::HigherIsBetter, window: view.interval, count: 1, at: view.at }
}

/// Whether a value can be a speed.
pub(super) fn usable(value: f64) -> bool {
    value.is_finite() && value > 0.0
}
