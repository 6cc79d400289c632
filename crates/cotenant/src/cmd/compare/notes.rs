//! Notes on a comparison.

use cotenant_cli::messages::tell;

/// What a verdict is worth where the policy changed nothing.
pub(super) fn nothing_changed(moves: u64, policy: &str) -> Option<String> {
    (moves == 0).then(|| format!("{policy} changed nothing: any difference is chance, or what watching costs"))
}

pub(super) fn say<'a>(notes: impl IntoIterator<Item = &'a String>) {
    notes.into_iter().for_each(|note| tell(format_args!("note: {note}")));
}
