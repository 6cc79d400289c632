//! Waiting for conditions, and the moments at which tests kill processes.

use std::time::{Duration, Instant};

/// Time limit for a condition to become true, and for a process to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until a condition holds, and panics after five minutes.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Delays after which a test kills a process, each below `most`. There are `usual` of them, or `COTENANT_KILLS`, which
/// `cargo xtask full` sets; `COTENANT_SEED` draws others.
pub fn kills(usual: u32, most: Duration) -> impl Iterator<Item = Duration> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let mut state = number("COTENANT_SEED").unwrap_or(20_260_101_u64);
    (0..number("COTENANT_KILLS").unwrap_or(u64::from(usual))).map(move |_| {
        // xorshift
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        most.mul_f64((state >> 32) as f64 / f64::from(u32::MAX))
    })
}

/// Sleeps for the delay that a test varies. To wait for a condition, use [`eventually`].
pub fn pass(time: Duration) {
    std::thread::sleep(time);
}
