//! The pen: writes texts and heads into the screen's buffer, in a few styles.

use crate::top::ui::Ui;
use cotenant_cli::live_view::cut;
use cotenant_status::class::Class;
use cotenant_status::status::ServiceStatus;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// Columns from which interference is beside the decisions.
pub(super) const WIDE: u16 = 120;

/// Takes the first lines of the remaining area.
pub(super) fn take(room: &mut Rect, lines: u16) -> Rect {
    let lines = lines.min(room.height);
    let taken = Rect { height: lines, ..*room };
    room.y += lines;
    room.height -= lines;
    taken
}

/// Writes into the buffer, cleaning and shortening texts.
pub(super) struct Pen<'a> {
    pub buffer: &'a mut Buffer,
    pub ui: &'a Ui,
}

impl Pen<'_> {
    /// A text in the first line of an area, from a column on; returns the next column.
    pub fn text(&mut self, area: Rect, column: u16, text: &str, style: Style) -> u16 {
        if area.height == 0 || column >= area.width {
            return column;
        }
        let width = usize::from(area.width - column);
        let (end, _) = self.buffer.set_stringn(area.x + column, area.y, cut(text, width), width, style);
        end - area.x
    }

    /// The same, ending with the area.
    pub fn text_right(&mut self, area: Rect, text: &str, style: Style) {
        let width = cut(text, usize::from(area.width)).chars().count() as u16;
        self.text(area, area.width - width, text, style);
    }

    /// `─ title ───────── end ─`
    pub fn head(&mut self, line: Rect, title: &str, end: &str) {
        let width = usize::from(line.width);
        let end = cut(end, width / 2);
        let end = if end.is_empty() { end } else { format!(" {end} ") };
        let title = format!(" {} ", cut(title, width.saturating_sub(end.chars().count() + 4)));
        let between = width.saturating_sub(title.chars().count() + end.chars().count() + 2);
        let at = self.text(line, 0, "─", dim());
        let at = self.text(line, at, &title, bold());
        let at = self.text(line, at, &"─".repeat(between), dim());
        let at = self.text(line, at, &end, Style::new());
        self.text(line, at, "─", dim());
    }

    pub fn alert(&self) -> Style {
        if self.ui.colour { bold().fg(Color::Red) } else { bold() }
    }

    pub fn class(&self, service: &ServiceStatus) -> Style {
        let style = Style::new();
        // Yellow, cyan and grey cannot be read on white.
        match service.class {
            _ if service.paused => dim(),
            Class::High if self.ui.colour => style.fg(Color::Green),
            Class::Low if self.ui.colour => style.fg(Color::Magenta),
            Class::High => bold(),
            Class::Low | Class::Normal => style,
            Class::Ignore => dim(),
        }
    }
}

pub(super) fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

pub(super) fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}
