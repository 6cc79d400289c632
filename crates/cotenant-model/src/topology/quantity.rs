//! Quantities for people: three significant digits and a unit.

/// A size in bytes with three significant digits, `16 GiB`.
pub(super) fn size(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

pub(super) fn per_second(bytes: u64) -> String {
    scaled(bytes as f64, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

pub(super) fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut at = 0;
    // A value that rounds to a whole step uses the next unit.
    while value >= step - 0.5 && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {}", units[at])
}
