//! The columns of the list of services: those that say something, as far as there is room.

use super::cells::{behind, kept, known, measured, memory, on, percent, policy, told_by, within_goal};
use super::pen::Pen;
use crate::top::ui::Order;
use cotenant_model::number::scaled;
use cotenant_status::status::ServiceStatus;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// The least and greatest width of names, and the least of a command line.
const NAME: [usize; 2] = [16, 44];
const COMMAND: usize = 20;

/// Columns of lower ranks are shown even if names are cut for them.
const ESSENTIAL: u8 = 8;

/// A column: its heading, width, cells, and the order that it shows.
pub(super) struct Column {
    pub head: &'static str,
    width: usize,
    pub cell: fn(&ServiceStatus) -> String,
    pub order: Option<Order>,
    /// Those with lower ranks come first where there is little room.
    rank: u8,
}

const fn column(head: &'static str, width: usize, rank: u8, cell: fn(&ServiceStatus) -> String) -> Column {
    Column { head, width, cell, order: None, rank }
}

impl Column {
    const fn by(self, order: Order) -> Self {
        Self { order: Some(order), ..self }
    }
}

/// The columns between the name and the command line.
const COLUMNS: &[Column] = &[
    column("CLASS", 6, 6, |service| service.class.name().to_owned()),
    column("CPUS", 5, 0, |service| known(service.cpus, |cpus| format!("{cpus:.2}"))).by(Order::Cpus),
    column("WAITS", 6, 2, |service| known(service.waiting, |threads| format!("{threads:.2}"))).by(Order::Waits),
    column("BEHIND", 18, 5, behind),
    column("PSI", 5, 8, |service| service.pressure.map_or_else(String::new, percent)),
    column("RSS", 8, 7, |it| it.resident_bytes.map_or_else(String::new, |bytes| format!("{}B", scaled(bytes as f64))))
        .by(Order::Memory),
    column("THREADS", 7, 12, |service| service.threads.to_string()),
    column("TOLD BY", 13, 13, told_by),
    column("NOW", 10, 3, |service| measured(service, |it| it.now)),
    column("ALONE", 9, 11, |service| measured(service, |it| it.alone)),
    column("GOAL", 9, 10, |service| measured(service, |it| it.goal)),
    column("SPEED KEPT", 10, 1, kept).by(Order::Goal),
    column("IN GOAL", 7, 9, within_goal),
    column("THROTTLED", 9, 4, |service| service.throttled.map_or_else(String::new, percent)),
    column("MEMORY", 9, 16, memory),
    column("POLICY", 10, 14, policy),
    column("RULE", 14, 15, |service| service.rule.clone()),
    column("ON CPUS", 16, 17, on),
];

/// Which columns there are, and how wide the others.
pub(super) struct Plan {
    columns: Vec<&'static Column>,
    order: Order,
    pub name: usize,
    pub command: usize,
}

impl Plan {
    /// For these services, on a screen of that width.
    pub fn new(listed: &[&ServiceStatus], width: usize, order: Order) -> Self {
        // Where nothing is known of any service, a column tells nothing; where all are of one kind, neither.
        let says = |column: &Column| {
            let nothing: &[&str] = if column.head == "CLASS" { &["normal"] } else { &["", "?"] };
            column.rank == 0 || listed.iter().any(|service| !nothing.contains(&&*(column.cell)(service)))
        };
        let mut by_rank: Vec<&Column> = COLUMNS.iter().filter(|column| says(column)).collect();
        by_rank.sort_by_key(|column| column.rank);
        let longest = listed.iter().map(|service| service.name.chars().count()).max().unwrap_or_default();
        let name = longest.clamp(NAME[0], NAME[1]);
        let has_commands = listed.iter().any(|service| service.command.is_some());
        let (mut taken, mut ranks) = (0, Vec::new());
        for column in by_rank {
            // Whole names and command lines tell more than the rest.
            let kept = match column.rank {
                0..ESSENTIAL => NAME[0],
                _ if has_commands => name + 2 + COMMAND,
                _ => name,
            };
            // A letter and a space are before the name.
            if taken + column.width + 2 + kept + 2 <= width {
                taken += column.width + 2;
                ranks.push(column.rank);
            }
        }
        let columns = COLUMNS.iter().filter(|column| ranks.contains(&column.rank)).collect();
        let left = width.saturating_sub(taken + 2);
        let command = left.saturating_sub(name + 2);
        let command = if has_commands && command >= COMMAND { command } else { 0 };
        let name = if command > 0 { name } else { left.min(60) };
        Self { columns, order, name, command }
    }

    /// The beginning of the command line.
    pub fn command_at(&self) -> u16 {
        let taken: usize = self.columns.iter().map(|column| column.width + 2).sum();
        (2 + self.name + taken + 2) as u16
    }

    /// A heading, marked if the list is in its order.
    pub fn marked(&self, head: &str, order: impl Into<Option<Order>>) -> String {
        if order.into() == Some(self.order) { format!("{head}▾") } else { head.to_owned() }
    }

    /// Writes the cells of a line.
    pub fn line(&self, pen: &mut Pen<'_>, area: Rect, cells: &mut dyn FnMut(&Column) -> (String, Style)) {
        let mut at = (self.name + 2) as u16;
        for column in &self.columns {
            let (text, style) = cells(column);
            let width = (column.width as u16).min(area.width.saturating_sub(at + 2));
            pen.text_right(Rect { x: area.x + at + 2, width, ..area }, &text, style);
            at += column.width as u16 + 2;
        }
    }
}
