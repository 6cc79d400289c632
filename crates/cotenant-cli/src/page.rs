//! Lines of text as wide as the terminal, their marks in colour. Elsewhere lines stay as they are.

use crate::live_view::columns;
use std::fmt::Write;
use std::io::IsTerminal;

/// How standard output shows lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page {
    columns: Option<usize>,
    coloured: bool,
}

impl Page {
    /// As its terminal is now; `NO_COLOR` is heard.
    pub fn of_stdout() -> Self {
        let dull = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { columns: columns(), coloured: std::io::stdout().is_terminal() && !dull }
    }

    /// A line with its end. What does not fit goes on below, further in than the line begins.
    pub fn line(&self, text: &str) -> String {
        let words = text.trim_start();
        let indent = text.chars().count() - words.chars().count();
        let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
        let mut column = indent + first.chars().count();
        let mut shown = match colour(first).filter(|_| self.coloured && indent > 0) {
            Some(colour) => format!("{:indent$}\x1b[{colour}m{first}\x1b[0m", ""),
            None => format!("{:indent$}{first}", ""),
        };
        for word in rest.split(' ').filter(|_| !rest.is_empty()) {
            let length = word.chars().count();
            if length > 0 && self.columns.is_some_and(|columns| column + 1 + length > columns) {
                let _ = write!(shown, "\n{:1$}{word}", "", indent + 2);
                column = indent + 2 + length;
            } else {
                let _ = write!(shown, " {word}");
                column += 1 + length;
            }
        }
        shown + "\n"
    }
}

/// The colour of a mark at the beginning of a line, as terminals number it.
fn colour(mark: &str) -> Option<u8> {
    match mark {
        "✓" => Some(32),
        "~" | "!" => Some(33),
        "✗" => Some(31),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_on_below_where_they_do_not_fit() {
        let page = Page { columns: Some(20), coloured: false };
        assert_eq!(page.line("  ✗ remote, inter: no counter here"), "  ✗ remote, inter:\n    no counter here\n");
        assert_eq!(
            page.line("      helps: a-very-long-single-word"),
            "      helps:\n        a-very-long-single-word\n"
        );
        assert_eq!(page.line("  sam        works"), "  sam        works\n", "columns of a table are kept");
        let text = "  ✓ cycles: as many words as one likes to have in a line";
        assert_eq!(Page::default().line(text), format!("{text}\n"), "no terminal");
    }

    #[test]
    fn marks_are_coloured_and_take_no_more_room() {
        let page = Page { columns: Some(20), coloured: true };
        assert_eq!(page.line("  ✓ 1234567890123456"), "  \x1b[32m✓\x1b[0m 1234567890123456\n");
        assert_eq!(page.line("~ no mark"), "~ no mark\n");
    }
}
