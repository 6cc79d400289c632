//! Who hurts whom: waits with their causes, and certain losses.

use cotenant_status::hurts;
use cotenant_status::picture::{self, Picture};
use cotenant_status::status;

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
