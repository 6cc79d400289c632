//! The size of the terminal, and text shortened to it.

use cotenant_model::text::clean;
use std::io::IsTerminal;
use terminal_size::{Height, Width, terminal_size_of};

/// Characters and lines of a terminal that does not say how large it is.
const SIZE: (usize, usize) = (80, 24);

/// Whether standard error is a terminal on which lines can be drawn again.
pub(crate) fn is_drawn() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Characters and lines that can be drawn now: the terminal may have been resized. A line is the cursor's; and of
/// characters one less than there are, so that no terminal wraps a full line.
pub(crate) fn room() -> (usize, usize) {
    let (width, height) = size();
    (width.saturating_sub(1), height.saturating_sub(1))
}

/// Characters and lines of the terminal now.
pub(crate) fn size() -> (usize, usize) {
    match terminal_size_of(std::io::stderr()) {
        Some((Width(width), Height(height))) if width > 0 && height > 0 => (width.into(), height.into()),
        _ => SIZE,
    }
}

/// Lines as text, limited in number and length.
pub fn fit(mut lines: Vec<String>, (width, height): (usize, usize)) -> String {
    if lines.len() > height.max(1) {
        let more = lines.len() - height.saturating_sub(1);
        lines.truncate(height.saturating_sub(1));
        lines.push(format!("  and {more} more"));
    }
    lines.iter().fold(String::new(), |text, line| text + &cut(line, width) + "\n")
}

/// Text of limited length; an ellipsis at the end replaces the rest. Control characters are escaped.
pub fn cut(text: &str, most: usize) -> String {
    let plain: Vec<char> = clean(text).chars().collect();
    if plain.len() > most {
        plain.iter().take(most.saturating_sub(1)).chain(most.checked_sub(1).map(|_| &'…')).collect()
    } else {
        plain.into_iter().collect()
    }
}

/// As [`cut`], but cuts the middle, because similar names often differ at their end.
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

/// Characters of a line of standard output, if that is a terminal.
pub fn columns() -> Option<usize> {
    let (Width(width), _) = terminal_size_of(std::io::stdout())?;
    (width > 0).then_some(width.into())
}

/// Characters and lines of standard output, if that is a terminal.
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

    /// Holds run/terminal.
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

    /// Holds run/terminal.
    #[test]
    fn names_do_not_move_the_cursor() {
        assert_eq!([cut("a\x1b[2Jb\n", 9), cut("abc", 2), cut("abc", 0)], ["a\\u001b[…", "a…", ""]);
    }
}
