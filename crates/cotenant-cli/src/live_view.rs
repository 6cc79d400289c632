//! Lines on the terminal that are drawn again and again in the same place.

use crate::messages;
use crate::progress::is_drawn;
use cotenant_model::text::clean;
use std::time::{Duration, Instant};
use terminal_size::{Height, Width, terminal_size_of};

/// Characters and lines of a terminal that does not tell.
const SIZE: (usize, usize) = (80, 24);

/// How a run stands, drawn again and again.
#[derive(Debug)]
pub struct LiveView {
    /// `None`: each time below what was written before.
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

    /// Draws it where it is time.
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

    /// Makes room for something else that is to be said.
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

/// What is on the terminal.
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
    /// Draws lines, each with its end, over those that were drawn last.
    fn draw(&mut self, text: &str) {
        let (width, height) = size();
        let back = self.back(width, height);
        self.lines = text.lines().map(|line| line.chars().count()).collect();
        messages::raw(&format!("{back}{}\x1b[J", text.replace('\n', "\x1b[K\r\n")));
    }

    /// Erases what was drawn.
    fn erase(&mut self) {
        if !self.lines.is_empty() {
            let (width, height) = size();
            messages::raw(&format!("{}\x1b[J", self.back(width, height)));
            self.lines.clear();
        }
    }

    /// To the beginning of what was drawn. Lines that are longer than the terminal is wide by now have been wrapped.
    fn back(&mut self, width: usize, height: usize) -> String {
        let drawn: usize = self.lines.iter().map(|line| line.div_ceil(width.max(1)).max(1)).sum();
        let again = height.saturating_sub(self.height).min(self.hidden);
        let rows = drawn + again;
        let seen = rows.min(height.saturating_sub(1));
        (self.hidden, self.height) = (self.hidden - again + (rows - seen), height);
        if seen > 0 { format!("\x1b[{seen}A\r") } else { "\r".to_owned() }
    }
}

/// Characters and lines that can be drawn now: the terminal may have been resized. A line is the cursor's; and of
/// characters one less than there are, so that no terminal wraps a full line.
pub(crate) fn room() -> (usize, usize) {
    let (width, height) = size();
    (width.saturating_sub(1), height.saturating_sub(1))
}

/// Characters and lines of the terminal now.
fn size() -> (usize, usize) {
    match terminal_size_of(std::io::stderr()) {
        Some((Width(width), Height(height))) if width > 0 && height > 0 => (width.into(), height.into()),
        _ => SIZE,
    }
}

/// Lines as text: at most so many, and of so many characters each.
pub fn fit(mut lines: Vec<String>, (width, height): (usize, usize)) -> String {
    if lines.len() > height.max(1) {
        let more = lines.len() - height.saturating_sub(1);
        lines.truncate(height.saturating_sub(1));
        lines.push(format!("  and {more} more"));
    }
    lines.iter().fold(String::new(), |text, line| text + &cut(line, width) + "\n")
}

/// At most so many characters, the last one an ellipsis where some are left out. What moves the cursor is escaped.
pub fn cut(text: &str, most: usize) -> String {
    let plain: Vec<char> = clean(text).chars().collect();
    if plain.len() > most {
        plain.iter().take(most.saturating_sub(1)).chain(most.checked_sub(1).map(|_| &'…')).collect()
    } else {
        plain.into_iter().collect()
    }
}

/// As [`cut`], but what is left out stands in the middle: what tells similar names apart is often their end.
pub fn cut_middle(text: &str, most: usize) -> String {
    let text = &clean(text);
    let all = text.chars().count();
    if all <= most || most < 3 {
        return cut(text, most);
    }
    let head = cut(text, most * 2 / 3 + 1);
    let tail: String = text.chars().skip(all + head.chars().count() - most).collect();
    head + &cut(&tail, most)
}

/// Characters of a line of standard output, where that is a terminal.
pub fn columns() -> Option<usize> {
    let (Width(width), _) = terminal_size_of(std::io::stdout())?;
    (width > 0).then_some(width.into())
}

/// Characters and lines of standard output, where that is a terminal.
pub fn stdout_size() -> Option<(usize, usize)> {
    let (Width(width), Height(height)) = terminal_size_of(std::io::stdout())?;
    (width > 0 && height > 0).then_some((width.into(), height.into()))
}

/// The same of standard error.
pub(crate) fn stderr_columns() -> Option<usize> {
    let (Width(width), _) = terminal_size_of(std::io::stderr())?;
    (width > 0).then_some(width.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(lines: &[usize], height: usize) -> LiveTable {
        LiveTable { lines: lines.to_vec(), height, hidden: 0 }
    }

    #[test]
    fn what_was_wrapped_by_resizing_is_erased_too() {
        assert_eq!(LiveTable::default().back(80, 24), "\r");
        assert_eq!(drawn(&[79, 10, 0], 24).back(80, 24), "\x1b[3A\r");
        assert_eq!(drawn(&[79, 10, 0], 24).back(40, 24), "\x1b[4A\r", "the first takes two rows now");
    }

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

    #[test]
    fn lines_fit_the_room() {
        let lines = || (1..=5).map(|i| format!("line {i}")).collect::<Vec<_>>();
        assert_eq!(fit(lines(), (6, 5)), "line 1\nline 2\nline 3\nline 4\nline 5\n");
        assert_eq!(fit(lines(), (5, 3)), "line…\nline…\n  an…\n");
        assert_eq!(fit(lines(), (40, 3)), "line 1\nline 2\n  and 3 more\n");
        assert_eq!(fit(lines(), (40, 0)), "  and 5 more\n");
    }

    #[test]
    fn both_ends_of_a_long_name_are_kept() {
        let names = ["simulate --input x --seed 11", "simulate --input x --seed 12"];
        assert_eq!(names.map(|name| cut_middle(name, 18)), ["simulate --i…ed 11", "simulate --i…ed 12"]);
        assert_eq!([cut_middle("abc", 3), cut_middle("abcd", 3)], ["abc", "ab…"]);
        assert!((0..9).all(|most| cut_middle("abcdefgh\n", most).chars().count() <= most));
    }

    #[test]
    fn names_do_not_move_the_cursor() {
        assert_eq!([cut("a\x1b[2Jb\n", 9), cut("abc", 2), cut("abc", 0)], ["a\\u001b[…", "a…", ""]);
    }
}
