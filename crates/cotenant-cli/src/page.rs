//! Lines of text as wide as the terminal, their marks in colour. Elsewhere lines stay as they are.

use crate::table::Table;
use crate::terminal::columns;
use cotenant_model::text::Clean;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

/// The layout of lines on standard output.
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

    /// Whether colours are wanted.
    pub fn is_coloured(&self) -> bool {
        self.coloured
    }

    /// A line with its end. The excess continues below, further indented than the line.
    pub fn line(&self, text: &str) -> String {
        let words = text.trim_start_matches([' ', '│', '├', '└', '─']);
        let branch = &text[..text.len() - words.len()];
        let indent = branch.chars().count();
        let below = branch.replace('├', "│").replace(['└', '─'], " ") + "  ";
        let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
        let mut column = indent + first.chars().count();
        let mut shown = match colour(first).filter(|_| self.coloured && indent > 0) {
            Some(colour) => format!("{branch}\x1b[{colour}m{first}\x1b[0m"),
            None => format!("{branch}{first}"),
        };
        for word in rest.split(' ').filter(|_| !rest.is_empty()) {
            let length = word.chars().count();
            if length > 0 && self.columns.is_some_and(|columns| column + 1 + length > columns) {
                let _ = write!(shown, "\n{below}{word}");
                column = indent + 2 + length;
            } else {
                let _ = write!(shown, " {word}");
                column += 1 + length;
            }
        }
        shown + "\n"
    }
}

/// Text for standard output: safe for terminals, wrapped, with highlighted marks and headings.
pub struct Sheet<'a> {
    page: Page,
    to: &'a mut dyn Write,
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
}

impl<'a> Sheet<'a> {
    /// As the page shows it.
    pub fn new(page: Page, to: &'a mut dyn Write) -> Self {
        Self { page, to, begun: Vec::new() }
    }

    /// Writes a table.
    ///
    /// # Errors
    /// The output is closed.
    pub fn table(&mut self, table: &Table) -> io::Result<()> {
        for (is_head, line) in table.lines(self.page.columns) {
            let [bold, plain] = if is_head && self.page.coloured { ["\x1b[1m", "\x1b[0m"] } else { [""; 2] };
            writeln!(self.to, "{bold}{line}{plain}")?;
        }
        Ok(())
    }
}

impl Write for Sheet<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(piece);
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let rest = self.begun.split_off(end + 1);
            let mut line = Clean(Vec::new());
            line.write_all(&self.begun[..end])?;
            self.begun = rest;
            self.to.write_all(self.page.line(&String::from_utf8_lossy(&line.0)).as_bytes())?;
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Clean(&mut self.to).write_all(&std::mem::take(&mut self.begun))?;
        self.to.flush()
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
    fn branches_of_a_tree_go_on_below() {
        let page = Page { columns: Some(20), coloured: false };
        assert_eq!(page.line("│  ├─ 2 × Package, Node 0"), "│  ├─ 2 × Package,\n│  │    Node 0\n");
        assert_eq!(page.line("└─ 2 × Package, Node 0"), "└─ 2 × Package, Node\n     0\n");
    }

    #[test]
    fn heads_stand_out_and_nothing_is_obeyed() {
        let mut shown = Vec::new();
        let mut sheet = Sheet::new(Page { columns: Some(20), coloured: true }, &mut shown);
        let mut table = Table::new(["name"]);
        table.row(["a\x1b[2Jb"]);
        sheet.table(&table).unwrap();
        write!(sheet, "c\x1b[2J").unwrap();
        writeln!(sheet, " and more than fits").unwrap();
        assert_eq!(
            String::from_utf8(shown).unwrap(),
            "\x1b[1mname\x1b[0m\na\\u001b[2Jb\nc\\u001b[2J and more\n  than fits\n"
        );
    }

    #[test]
    fn marks_are_coloured_and_take_no_more_room() {
        let page = Page { columns: Some(20), coloured: true };
        assert_eq!(page.line("  ✓ 1234567890123456"), "  \x1b[32m✓\x1b[0m 1234567890123456\n");
        assert_eq!(page.line("~ no mark"), "~ no mark\n");
    }
}
