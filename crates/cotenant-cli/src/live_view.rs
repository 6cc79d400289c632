//! Lines on the terminal that are redrawn in place.

use crate::messages;
pub use crate::terminal::{columns, cut, cut_middle, fit, stdout_size};
use crate::terminal::{is_drawn, room, size};
use std::time::{Duration, Instant};

/// A run's state, redrawn repeatedly.
#[derive(Debug)]
pub struct LiveView {
    /// `None`: each time below the previous output.
    table: Option<LiveTable>,
    next: Instant,
    every: Duration,
    /// Whether the last drawing is left on the terminal.
    stays: bool,
}

impl LiveView {
    /// On the terminal, for the first time after `first`; `None` where standard error is none.
    pub fn on_terminal(first: Duration, every: Duration, stays: bool) -> Option<Self> {
        is_drawn().then(|| Self { table: Some(LiveTable::default()), ..Self::as_lines(first, every, stays) })
    }

    /// As plain lines, wherever standard error goes.
    pub fn as_lines(first: Duration, every: Duration, stays: bool) -> Self {
        Self { table: None, next: Instant::now() + first, every, stays }
    }

    /// Draws it if due.
    pub fn show(&mut self, text: impl FnOnce((usize, usize)) -> Option<String>) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + self.every;
        match &mut self.table {
            Some(table) => text(room()).iter().for_each(|text| table.draw(text)),
            None => text((usize::MAX, usize::MAX)).iter().for_each(|text| messages::raw(text)),
        }
    }

    /// Makes room for other output.
    pub fn aside(&mut self) {
        self.table.iter_mut().for_each(LiveTable::erase);
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        if !self.stays {
            self.aside();
        }
    }
}

/// The present lines on the terminal.
#[derive(Debug, Default)]
struct LiveTable {
    /// Characters of each line above the cursor.
    lines: Vec<usize>,
    /// Lines of the terminal when these were drawn.
    height: usize,
    /// Rows of ours that left it at the top when it became lower; it shows them again when it becomes higher.
    hidden: usize,
}

impl LiveTable {
    /// Draws lines, each with its end, over the last ones.
    fn draw(&mut self, text: &str) {
        let (width, height) = size();
        let back = self.back(width, height);
        self.lines = text.lines().map(|line| line.chars().count()).collect();
        messages::raw(&format!("{back}{}\x1b[J", text.replace('\n', "\x1b[K\r\n")));
    }

    /// Erases the drawn lines.
    fn erase(&mut self) {
        if !self.lines.is_empty() {
            let (width, height) = size();
            messages::raw(&format!("{}\x1b[J", self.back(width, height)));
            self.lines.clear();
        }
    }

    /// To the beginning of the drawn lines. On a narrowed terminal long ones have been wrapped.
    fn back(&mut self, width: usize, height: usize) -> String {
        let drawn: usize = self.lines.iter().map(|line| line.div_ceil(width.max(1)).max(1)).sum();
        let again = height.saturating_sub(self.height).min(self.hidden);
        let rows = drawn + again;
        let seen = rows.min(height.saturating_sub(1));
        (self.hidden, self.height) = (self.hidden - again + (rows - seen), height);
        if seen > 0 { format!("\x1b[{seen}A\r") } else { "\r".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(lines: &[usize], height: usize) -> LiveTable {
        LiveTable { lines: lines.to_vec(), height, hidden: 0 }
    }

    /// Holds run/terminal.
    #[test]
    fn what_was_wrapped_by_resizing_is_erased_too() {
        assert_eq!(LiveTable::default().back(80, 24), "\r");
        assert_eq!(drawn(&[79, 10, 0], 24).back(80, 24), "\x1b[3A\r");
        assert_eq!(drawn(&[79, 10, 0], 24).back(40, 24), "\x1b[4A\r", "the first takes two rows now");
    }

    /// Holds run/terminal.
    #[test]
    fn what_a_higher_terminal_shows_again_is_erased_too() {
        let mut table = drawn(&[9; 20], 24);
        assert_eq!(table.back(80, 10), "\x1b[9A\r", "11 rows have left it at the top");
        table.lines = vec![9; 9];
        assert_eq!(table.back(80, 10), "\x1b[9A\r");
        assert_eq!(table.back(80, 14), "\x1b[13A\r", "4 of them are there again");
        table.lines = vec![9; 12];
        assert_eq!(table.back(80, 40), "\x1b[19A\r", "and the other 7, but nothing of what others wrote");
        table.lines = vec![9; 20];
        assert_eq!(table.back(80, 50), "\x1b[20A\r");
    }
}
