//! The keys and columns, and what is not known.

use super::hurts;
use super::pen::{Pen, bold, dim, take};
use crate::top::ui::Order;
use cotenant_status::picture::Picture;
use ratatui::layout::Rect;
use ratatui::style::Style;

const KEYS: [[&str; 2]; 7] = [
    ["↑ ↓ k j", "choose a service; Page Up, Page Down, wheel and click, too"],
    ["Enter", "its details, then those of a thread; Esc goes back"],
    ["/", "list only services with this in their name, command, class, rule or unit"],
    ["t", "below the slices and units that they are in"],
    ["space", "keep this picture until space is pressed again"],
    ["← → [ ]", "of a recording: a moment, ten moments; Home and End: its ends"],
    ["q", "quit; Ctrl-Z puts it aside"],
];

const COLUMNS: [[&str; 2]; 7] = [
    ["CPUS", "CPU time in the last second, in CPUs"],
    ["WAITS", "threads that were ready to run and had no CPU, on average"],
    ["BEHIND", "what had most of the CPU meanwhile"],
    ["PSI", "share of the time in which a thread of its control group had no CPU"],
    ["RSS", "resident memory; pages that processes share count for each"],
    ["SPEED KEPT", "share of its speed alone in the last minute; ! where the goal is missed"],
    ["THROTTLED", "share of the last minute in which it was throttled"],
];

/// All of it, as far as there is room.
pub(super) fn draw(pen: &mut Pen<'_>, picture: &Picture, mut room: Rect) {
    let line = |pen: &mut Pen<'_>, room: &mut Rect, [name, does]: [&str; 2]| {
        let area = take(room, 1);
        pen.text(area, 0, name, bold());
        pen.text(area, 12, does, Style::new());
    };
    pen.head(take(&mut room, 1), "keys", "");
    for key in KEYS {
        line(pen, &mut room, key);
    }
    let orders: Vec<String> = Order::ALL.iter().map(|(_, key, name)| format!("{key} {name}")).collect();
    line(pen, &mut room, ["s", &format!("the next order of {}", orders.join(", "))]);
    pen.head(take(&mut room, 1), "columns; those of which nothing is known are left out", "");
    for column in COLUMNS {
        line(pen, &mut room, column);
    }
    if picture.unknown.is_empty() {
        pen.text(room, 0, "all is known that can be known here", dim());
    } else {
        hurts::unknown(pen, picture, room);
    }
}
