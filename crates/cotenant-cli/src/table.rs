//! Tables that fit the terminal. Their cells are cleaned: a newline in a name makes no second row.

use crate::terminal::cut_middle;
use cotenant_model::text::clean;

/// Between two columns.
const GAP: usize = 2;
/// Characters that are left of names and of text, however narrow the terminal is.
const NAME: usize = 12;
const TEXT: usize = 20;

/// Columns and rows. The first column names the row; excess text in the last one continues below.
#[derive(Clone, Debug, Default)]
pub struct Table {
    heads: Vec<String>,
    /// Whether a column holds numbers, which end below each other.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these heads, of which one that begins with `>` is over numbers.
    pub fn new<'a>(heads: impl IntoIterator<Item = &'a str>) -> Self {
        let heads = heads.into_iter().map(|head| match head.strip_prefix('>') {
            Some(head) => (clean(head).into_owned(), true),
            None => (clean(head).into_owned(), false),
        });
        let (heads, right) = heads.unzip();
        Self { heads, right, rows: Vec::new() }
    }

    /// Adds a row; cells that it lacks are empty.
    pub fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| clean(cell.as_ref()).into_owned()).collect());
    }

    /// Its lines, of at most `room` characters each; whether a line is a heading. Columns that do not fit follow below,
    /// with the first one repeated.
    pub(crate) fn lines(&self, room: Option<usize>) -> Vec<(bool, String)> {
        let mut lines = Vec::new();
        for block in self.blocks(room.unwrap_or(usize::MAX)) {
            if !lines.is_empty() {
                lines.push((false, String::new()));
            }
            if self.heads.iter().any(|head| !head.is_empty()) {
                lines.extend(self.line(&block, &self.heads).map(|line| (true, line)));
            }
            lines.extend(self.rows.iter().flat_map(|row| self.line(&block, row)).map(|line| (false, line)));
        }
        lines
    }

    /// Columns with their widths, side by side as far as there is room.
    fn blocks(&self, room: usize) -> Vec<Vec<(usize, usize)>> {
        let wide = |(c, head): (usize, &String)| {
            let cells = self.rows.iter().filter_map(|row| row.get(c)).chain([head]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = self.heads.iter().enumerate().map(wide).collect();
        let Some(last) = widths.len().checked_sub(1) else { return Vec::new() };
        let mut over = (widths.iter().sum::<usize>() + GAP * last).saturating_sub(room);
        let mut narrow = widths.clone();
        for (column, least) in [(last, TEXT), (0, NAME)] {
            let less = if self.right[column] { 0 } else { narrow[column].saturating_sub(least).min(over) };
            (narrow[column], over) = (narrow[column] - less, over - less);
        }
        if over == 0 {
            return vec![narrow.into_iter().enumerate().collect()];
        }
        let first = (0, widths[0].min(NAME.max(room / 3)));
        let (mut blocks, mut used) = (vec![vec![first]], first.1);
        for (column, width) in widths.into_iter().enumerate().skip(1) {
            let width = width.min(room.saturating_sub(first.1 + GAP).max(1));
            if used + GAP + width > room && used > first.1 {
                blocks.push(vec![first]);
                used = first.1;
            }
            used += GAP + width;
            blocks.last_mut().into_iter().for_each(|block| block.push((column, width)));
        }
        blocks
    }

    /// The lines of a row.
    fn line(&self, block: &[(usize, usize)], cells: &[String]) -> impl Iterator<Item = String> {
        let (mut line, mut below) = (String::new(), Vec::new());
        for (i, &(column, width)) in block.iter().enumerate() {
            let cell = cells.get(column).map_or("", String::as_str);
            let gap = if i == 0 { 0 } else { GAP };
            let is_text = i + 1 == block.len() && i > 0 && !self.right[column];
            let mut parts = if is_text { wrapped(cell, width) } else { vec![cut_middle(cell, width)] }.into_iter();
            let at = line.chars().count() + gap;
            let cell = parts.next().unwrap_or_default();
            let fill = " ".repeat(width.saturating_sub(cell.chars().count()));
            let (before, after) = if self.right[column] { (&*fill, "") } else { ("", &*fill) };
            line.extend([&" ".repeat(gap), before, &cell, after]);
            below.extend(parts.map(|part| format!("{:at$}{part}", "")));
        }
        std::iter::once(line.trim_end().to_owned()).chain(below)
    }
}

/// A text in lines of limited length, preferably broken between words.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        let line = lines.last_mut().map_or(0, |line| line.len());
        let gap = usize::from(line > 0);
        if line > 0 && used + gap + length > width {
            lines.push(String::new());
            used = 0;
        } else if gap > 0 {
            lines.last_mut().into_iter().for_each(|line| line.push(' '));
            used += gap;
        }
        for c in word.chars() {
            if used == width {
                lines.push(String::new());
                used = 0;
            }
            lines.last_mut().into_iter().for_each(|line| line.push(c));
            used += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(table: &Table, room: Option<usize>) -> String {
        table.lines(room).iter().fold(String::new(), |text, (_, line)| text + line + "\n")
    }

    #[test]
    fn columns_are_as_wide_as_what_they_hold() {
        let mut table = Table::new(["program", ">s", "what"]);
        table.row(["a\nb", "1.5", "it runs"]);
        table.row(["longer-name", "12.25", ""]);
        let shown = "program          s  what\na\\nb           1.5  it runs\nlonger-name  12.25\n";
        assert_eq!(text(&table, None), shown);
        assert_eq!(text(&table, Some(80)), shown);
        let mut bare = Table::new(["", ""]);
        bare.row(["x", "y"]);
        assert_eq!(text(&bare, None), "x  y\n", "no heads, no line of heads");
    }

    #[test]
    fn text_goes_on_below_and_names_are_cut() {
        let mut table = Table::new(["kernel", "what it does"]);
        table.row(["a-kernel-of-some-length", "reads all of its memory again and again"]);
        let shown = "kernel          what it does\na-kernel-…ngth  reads all of its\n                memory again and\n                again\n";
        assert_eq!(text(&table, Some(36)), shown);
    }

    #[test]
    fn what_has_no_room_comes_below_with_its_name() {
        let mut table = Table::new(["", ">none", ">sam", ">optimal"]);
        table.row(["alpha", "10.0", "11.0", "12.0"]);
        table.row(["beta", "20.0", "21.0", "22.0"]);
        let shown = "       none   sam\nalpha  10.0  11.0\nbeta   20.0  21.0\n\n       optimal\nalpha     12.0\nbeta      22.0\n";
        assert_eq!(text(&table, Some(20)), shown);
    }

    proptest! {
        /// Holds run/terminal.
        #[test]
        fn no_line_is_wider_than_the_terminal(
            rows in proptest::collection::vec(proptest::collection::vec("[a-z ]{0,40}", 4), 0..6),
            room in 40usize..120,
        ) {
            let mut table = Table::new(["name", ">number", ">other", "text"]);
            for row in &rows {
                table.row(row);
            }
            for (_, line) in table.lines(Some(room)) {
                prop_assert!(line.chars().count() <= room, "{}", line);
            }
        }
    }
}
