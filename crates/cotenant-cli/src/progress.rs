//! A progress line on the terminal. Silent if standard error is not a terminal.

use crate::messages;
use crate::terminal::{cut, is_drawn, room};
use cotenant_model::text::clean;
use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Shorter tasks need no such line.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two drawings.
pub const REDRAW: Duration = Duration::from_millis(500);
/// Characters of the bar.
const BAR: usize = 20;

/// The line. Dropping it erases it.
#[derive(Debug)]
pub struct Progress {
    on: bool,
    start: Instant,
    drawn: Option<Instant>,
    visible: bool,
}

impl Progress {
    /// A line, if `wanted` and if standard error is a terminal.
    pub fn new(wanted: bool) -> Self {
        Self { on: wanted && is_drawn(), start: Instant::now(), drawn: None, visible: false }
    }

    /// Whether the line is drawn at all.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Time of the next drawing.
    pub fn next(&self) -> Instant {
        self.drawn.map_or(self.start + PATIENCE, |drawn| drawn + REDRAW)
    }

    /// Draws if due: a bar for `done` (0–1), and the present activity.
    pub fn show(&mut self, done: f64, what: impl FnOnce() -> String) {
        let now = Instant::now();
        if self.on && now >= self.next() {
            self.drawn = Some(now);
            self.visible = true;
            let line = format!("{} {}", bar(done), what());
            messages::raw(&format!("\r{}\x1b[K", cut(&line, room().0)));
        }
    }

    /// Erases the line before other output.
    pub fn clear(&mut self) {
        if self.visible {
            self.visible = false;
            messages::raw("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Runs a task, and shows its progress (0–1, and the present activity) regularly, even if the task could only do so
/// rarely. A thread draws it: not for tasks that wait for signals or measure this machine.
pub fn beside<T>(how_far: impl Fn() -> (f64, String) + Sync, task: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>(); // its end hangs up, also where the task panics
        // Without a thread, nothing is drawn.
        let _ = thread::Builder::new().spawn_scoped(scope, || {
            let ended = ended;
            let mut bar = Progress::new(true);
            let wait = |bar: &Progress| bar.next().saturating_duration_since(Instant::now());
            while bar.is_on() && ended.recv_timeout(wait(&bar)) == Err(RecvTimeoutError::Timeout) {
                let (done, what) = how_far();
                bar.show(done, || what);
            }
        });
        let result = task();
        drop(end);
        result
    })
}

/// Prints a line on standard error while another thread draws one.
pub fn aside(text: &str) {
    let erased = if is_drawn() { "\r\x1b[K" } else { "" };
    messages::raw(&format!("{erased}{}\n", clean(text)));
}

/// Runs a task that reports the number of finished simulations, and shows it.
pub fn simulating<T>(task: impl FnOnce(&(dyn Fn(usize, usize) + Sync)) -> T) -> T {
    let (done, all) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let how_far = || {
        let (done, all) = (done.load(Ordering::Relaxed), all.load(Ordering::Relaxed));
        let what = if all == 0 { "preparing simulations".to_owned() } else { format!("{done} of {all} simulations") };
        (done as f64 / all.max(1) as f64, what)
    };
    beside(how_far, || {
        task(&|n, of| {
            done.store(n, Ordering::Relaxed);
            all.store(of, Ordering::Relaxed);
        })
    })
}

/// A bar for `done` (0–1), with percent.
pub fn bar(done: f64) -> String {
    let full = (done.clamp(0.0, 1.0) * BAR as f64) as usize;
    format!("[{}{}] {:3.0} %", "#".repeat(full), ".".repeat(BAR - full), done.clamp(0.0, 1.0) * 100.0)
}

/// A duration as people say it: `12 s`, `3 min`, `2.5 h`.
pub fn about(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 5_970.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

/// The age of an event from its distance in seconds: `3 min ago`.
pub fn ago(seconds: f64) -> String {
    format!("{} ago", about(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::ZERO)))
}

/// A file that shows how much of it has been read.
#[derive(Debug)]
pub struct Metered {
    file: File,
    read: u64,
    bytes: u64,
    progress: Progress,
}

impl Metered {
    /// Meters a file; shows nothing unless `wanted`.
    pub fn new(file: File, wanted: bool) -> Self {
        let bytes = file.metadata().map_or(0, |meta| meta.len());
        Self { file, read: 0, bytes, progress: Progress::new(wanted) }
    }
}

impl Read for Metered {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(to)?;
        self.read += n as u64;
        let (read, bytes) = (self.read, self.bytes);
        self.progress.show(read as f64 / bytes.max(1) as f64, || "of the recording read".to_owned());
        if n == 0 {
            self.progress.clear();
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_times() {
        assert_eq!(bar(0.5), "[##########..........]  50 %");
        assert_eq!(bar(7.0), "[####################] 100 %");
        assert_eq!([12, 180, 9_000].map(|s| about(Duration::from_secs(s))), ["12 s", "3 min", "2.5 h"]);
    }
}
