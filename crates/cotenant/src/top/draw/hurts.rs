//! Interference: waits with their causes, and certain losses.

use super::pen::{Pen, dim, take};
use cotenant_status::hurts;
use cotenant_status::picture::{self, Picture};
use cotenant_status::status;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// A line for each, waits first.
pub(super) fn all(picture: &Picture) -> Vec<String> {
    let loses = picture.interference.iter().map(|row| {
        let [loss, interval] = hurts::shares(row);
        format!("{} loses {loss} ({interval}) while {} runs", row.victim, row.aggressor)
    });
    status::waits(&picture.services).into_iter().chain(loses).collect()
}

/// How many lines tell all that is known.
pub(super) fn lines(picture: &Picture) -> usize {
    (all(picture).len() + usize::from(picture::is_blind(&picture.services))).max(1)
}

/// What is not known, and what would tell it.
pub(super) fn unknown(pen: &mut Pen<'_>, picture: &Picture, mut room: Rect) {
    if picture.unknown.is_empty() {
        return;
    }
    pen.head(take(&mut room, 1), "not known here, and what would tell it", "");
    for it in &picture.unknown {
        let line = take(&mut room, 1);
        let at = pen.text(line, 0, &format!("{}: ", it.what), Style::new());
        pen.text(line, at, it.remedy, dim());
    }
}
