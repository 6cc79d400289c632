//! Notes on a comparison.

use cotenant_cli::messages::tell;
use cotenant_measure::compare::Interval;
use cotenant_status::quantities::digits;

/// A remark on the verdict if the policy changed nothing.
pub(super) fn nothing_changed(moves: u64, policy: &str) -> Option<String> {
    (moves == 0).then(|| format!("{policy} changed nothing: any difference is chance, or what watching costs"))
}

/// Both ends of an interval, as people read it: `0.01 to 800`.
pub(super) fn range(Interval { ci95: [low, high], .. }: Interval) -> String {
    format!("{} to {}", digits(low), digits(high))
}

pub(super) fn say<'a>(notes: impl IntoIterator<Item = &'a String>) {
    notes.into_iter().for_each(|note| tell(format_args!("note: {note}")));
}
