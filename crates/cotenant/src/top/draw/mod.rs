//! A [`Picture`] as a screen: a pure function, independent of the terminal. Everything shown by colour is also shown by
//! text.

mod cells;
mod details;
mod machine;
mod pen;
#[cfg(test)]
mod tests;

use super::ui::{Drawn, Page, Ui};
use cells::{kept, known, measured, memory, misses, on, percent, policy, told_by, within_goal};
use cotenant_cli::live_view::{cut, cut_middle};
use cotenant_cli::table::wrapped;
use cotenant_model::text::clean;
use cotenant_status::hurts;
use cotenant_status::picture::Picture;
use cotenant_status::status::{self, ServiceStatus};
use cotenant_status::verdict::Verdict;
use pen::{Pen, bold, dim, take};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

/// Columns from which interference is beside the decisions.
const WIDE: u16 = 120;

/// Draws the selected part of a picture.
pub(super) fn draw(picture: &Picture, ui: &Ui, area: Rect, buffer: &mut Buffer) -> Drawn {
    let mut pen = Pen { buffer, ui };
    let mut room = area;
    title(&mut pen, picture, take(&mut room, 1));
    if ui.keys {
        let line = Rect { y: room.bottom().saturating_sub(1), height: room.height.min(1), ..room };
        room.height = room.height.saturating_sub(1);
        keys(&mut pen, picture, line);
    }
    if let Some(remark) = remark(picture, ui).filter(|_| room.height > 8) {
        let line = Rect { y: room.bottom().saturating_sub(1), height: 1, ..room };
        room.height -= 1;
        pen.text(line, 0, &format!("! {remark}"), pen.alert());
    }
    match &ui.page {
        Page::All => overview(&mut pen, picture, room),
        Page::Service(name) => details::service(&mut pen, picture, name, room),
        Page::Thread(name, tid) => {
            details::thread(&mut pen, picture, (name, *tid), room);
            Drawn::default()
        }
    }
}

fn title(pen: &mut Pen<'_>, picture: &Picture, line: Rect) {
    let ui = pen.ui;
    let moment =
        picture.moment.map(|moment| format!("  moment {} of {}", moment.number, moment.of)).unwrap_or_default();
    let paused = if ui.paused { "PAUSED  " } else { "" };
    let time = format!("{paused}{}{moment}", picture.time());
    let left = usize::from(line.width).saturating_sub(time.chars().count() + 2);
    pen.text(line, 0, &cut(&format!("cotenant top · {}", picture.source), left), bold());
    pen.text_right(line, &time, if ui.paused { pen.alert() } else { bold() });
}

fn keys(pen: &mut Pen<'_>, picture: &Picture, line: Rect) {
    let ui = pen.ui;
    if ui.typing {
        pen.text(line, 0, &format!("filter: {}█  Enter keeps it, Esc clears it", ui.filter), bold());
        return;
    }
    let order = if ui.by_name { "s by CPUs" } else { "s by name" };
    let keys = match (&ui.page, picture.moment) {
        (Page::All, None) => vec!["q quit", "↑↓ choose", "Enter details", "/ filter", order, "space pause"],
        (Page::All, Some(_)) => {
            vec!["q quit", "↑↓ choose", "Enter details", "/ filter", order, "←→ time", "[] ×10", "Home End"]
        }
        (Page::Service(_), None) => vec!["q quit", "Esc back", "↑↓ choose", "Enter thread", "space pause"],
        (Page::Service(_), Some(_)) => vec!["q quit", "Esc back", "↑↓ choose", "Enter thread", "←→ time"],
        (Page::Thread(..), None) => vec!["q quit", "Esc back", "space pause"],
        (Page::Thread(..), Some(_)) => vec!["q quit", "Esc back", "←→ time"],
    };
    let mut at = 0;
    for key in keys {
        let (name, does) = key.split_at(key.find(' ').unwrap_or(key.len()));
        at = pen.text(line, at, name, bold());
        at = pen.text(line, at, does, dim()) + 2;
    }
    if !ui.filter.is_empty() {
        pen.text(line, at, &format!("filter: {}", ui.filter), pen.alert());
    }
}

/// Further information for the user.
fn remark(picture: &Picture, ui: &Ui) -> Option<String> {
    if let Some(trouble) = &ui.trouble {
        return Some(trouble.clone());
    }
    let (first, more) = picture.notes.split_first()?;
    Some(if more.is_empty() { first.clone() } else { format!("{first} (and {} more notes: --json)", more.len()) })
}

fn overview(pen: &mut Pen<'_>, picture: &Picture, mut room: Rect) -> Drawn {
    verdicts(pen, picture, &mut room);
    let listed = pen.ui.listed(picture);
    let most = usize::from(room.height / 3).max(2);
    let machine = machine::Machine::new(picture, pen, usize::from(room.width), most);
    machine.draw(pen, picture, &mut room);

    // Three heads; interference and decisions get some lines, and services what they need.
    let wide = room.width >= WIDE;
    let lines = usize::from(room.height).saturating_sub(if wide { 2 } else { 3 });
    let hurts = (status::waits(&picture.services).len() + picture.interference.len()).max(1).min((lines / 5).max(1));
    let least = if wide { hurts.max(lines / 4) } else { hurts + (lines / 4).max(1) };
    let rows = (listed.len().max(1)).min(lines.saturating_sub(least).max(1));
    let mut list = take(&mut room, rows as u16 + 1);
    let drawn = services(pen, picture, &listed, take(&mut list, 1), list);
    if wide {
        let left = Rect { width: room.width * 2 / 5, ..room };
        let right = Rect { x: room.x + left.width + 1, width: room.width - left.width - 1, ..room };
        interference(pen, picture, left);
        decisions(pen, picture, right);
    } else {
        interference(pen, picture, take(&mut room, hurts as u16 + 1));
        decisions(pen, picture, room);
    }
    drawn
}

/// The verdict on each goal, missed ones first, up to some lines of the screen.
fn verdicts(pen: &mut Pen<'_>, picture: &Picture, room: &mut Rect) {
    let mut judged: Vec<&ServiceStatus> = picture.services.iter().filter(|it| it.judgement.is_some()).collect();
    judged.sort_by_key(|service| match service.verdict {
        Some(Verdict::Missed) => 0,
        Some(Verdict::Kept | Verdict::AtGoal) => 2,
        _ => 1,
    });
    let most = usize::from(room.height / 5).max(2);
    let (mut left, mut lines) = (judged.len(), 0);
    for service in judged {
        let said = service.judged().map_or_else(String::new, |(name, judgement)| format!("{name}: {judgement}"));
        let said = wrapped(&clean(&said), usize::from(room.width));
        // The last line is for how many are left.
        if lines > 0 && lines + said.len() + usize::from(left > 1) > most {
            break;
        }
        (left, lines) = (left - 1, lines + said.len());
        let style = if misses(service) { pen.alert() } else { bold() };
        for line in said {
            pen.text(take(room, 1), 0, &line, style);
        }
    }
    if left > 0 {
        pen.text(take(room, 1), 0, &format!("and {left} more that have a goal: choose one"), dim());
    }
}

/// A column of the services: its heading, width, and cells.
struct Column {
    head: &'static str,
    width: usize,
    cell: fn(&ServiceStatus) -> String,
}

/// The columns between the name and the end, as far as there is room; the second number is the width from which on a
/// column is shown.
const COLUMNS: &[(Column, u16)] = &[
    (Column { head: "CLASS", width: 6, cell: |service| service.class.name().to_owned() }, 0),
    (Column { head: "CPUS", width: 5, cell: |service| known(service.cpus, |cpus| format!("{cpus:.2}")) }, 0),
    (Column { head: "WAITS", width: 5, cell: |service| known(service.waiting, |threads| format!("{threads:.2}")) }, 66),
    (Column { head: "THREADS", width: 7, cell: |service| service.threads.to_string() }, 120),
    (Column { head: "TOLD BY", width: 13, cell: told_by }, 106),
    (Column { head: "NOW", width: 10, cell: |service| measured(service, |it| it.now) }, 60),
    (Column { head: "ALONE", width: 9, cell: |service| measured(service, |it| it.alone) }, 92),
    (Column { head: "GOAL", width: 9, cell: |service| measured(service, |it| it.goal) }, 92),
    (Column { head: "SPEED KEPT", width: 10, cell: kept }, 50),
    (Column { head: "IN GOAL", width: 7, cell: within_goal }, 90),
    (Column { head: "THROTTLED", width: 9, cell: |service| service.throttled.map_or_else(String::new, percent) }, 66),
    (Column { head: "MEMORY", width: 9, cell: memory }, 160),
    (Column { head: "POLICY", width: 10, cell: policy }, 140),
    (Column { head: "RULE", width: 14, cell: |service| service.rule.clone() }, 150),
    (Column { head: "ON CPUS", width: 20, cell: on }, 176),
];

/// The services, of which the chosen one is seen.
fn services(pen: &mut Pen<'_>, picture: &Picture, listed: &[&ServiceStatus], head: Rect, list: Rect) -> Drawn {
    let columns: Vec<&Column> =
        COLUMNS.iter().filter(|(_, from)| head.width >= *from).map(|(column, _)| column).collect();
    let taken: usize = columns.iter().map(|column| column.width + 2).sum();
    // A letter and a space before it.
    let name = usize::from(head.width).saturating_sub(taken + 2).min(60);
    pen.text(head, 0, &" ".repeat(usize::from(head.width)), bold().add_modifier(Modifier::REVERSED));
    let line = |pen: &mut Pen<'_>, area: Rect, cells: &mut dyn FnMut(&Column) -> (String, Style)| {
        let mut at = (name + 2) as u16;
        for column in &columns {
            let (text, style) = cells(column);
            let cell = Rect {
                x: area.x + at + 2,
                width: (column.width as u16).min(area.width.saturating_sub(at + 2)),
                ..area
            };
            pen.text_right(cell, &text, style);
            at += column.width as u16 + 2;
        }
    };
    let head_style = bold().add_modifier(Modifier::REVERSED);
    let count = if listed.len() < picture.services.len() {
        format!("SERVICE ({} of {})", listed.len(), picture.services.len())
    } else {
        format!("SERVICE ({})", listed.len())
    };
    pen.text(head, 2, &cut(&count, name), head_style);
    line(pen, head, &mut |column| (column.head.to_owned(), head_style));
    if listed.is_empty() {
        let text = if picture.services.is_empty() { "no service runs now" } else { "no service matches the filter" };
        pen.text(list, 2, text, dim());
    }
    let chosen = pen.ui.chosen_of(listed);
    let height = usize::from(list.height);
    let first = if height == 0 { 0 } else { (chosen + 1).saturating_sub(height) };
    let letters = machine::letters(picture);
    for (i, service) in listed.iter().enumerate().skip(first).take(height) {
        let row = Rect { y: list.y + (i - first) as u16, height: 1, ..list };
        let style = pen.class(service);
        let letter = letters.get(&*service.name).copied().unwrap_or(machine::MANY);
        pen.text(row, 0, &letter.to_string(), style);
        pen.text(row, 2, &cut_middle(&service.name, name), style);
        let alert = pen.alert();
        line(pen, row, &mut |column| {
            let style = if column.head == "SPEED KEPT" && misses(service) { alert } else { style };
            ((column.cell)(service), style)
        });
        if i == chosen && pen.ui.keys {
            pen.buffer.set_style(row, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
    Drawn { list, first }
}

fn interference(pen: &mut Pen<'_>, picture: &Picture, mut room: Rect) {
    pen.head(take(&mut room, 1), "interference", "");
    let waits = status::waits(&picture.services);
    if picture.interference.is_empty() && waits.is_empty() {
        pen.text(room, 0, "no loss proven so far", dim());
    }
    for text in waits.iter().take(usize::from(room.height)) {
        pen.text(take(&mut room, 1), 0, text, Style::new());
    }
    for row in picture.interference.iter().take(usize::from(room.height)) {
        let [loss, interval] = hurts::shares(row);
        let text = format!("{} loses {loss} ({interval}) while {} runs", row.victim, row.aggressor);
        pen.text(take(&mut room, 1), 0, &text, Style::new());
    }
}

fn decisions(pen: &mut Pen<'_>, picture: &Picture, mut room: Rect) {
    pen.head(take(&mut room, 1), "last decisions", "");
    if picture.last.is_empty() {
        pen.text(room, 0, "nothing was decided", dim());
    }
    for decision in picture.last.iter().rev().take(usize::from(room.height)) {
        let line = take(&mut room, 1);
        let at = pen.text(line, 0, &format!("{} ", picture.when(decision.at_s)), dim());
        let whole = decision.line();
        let fits = usize::from(at) + whole.chars().count() <= usize::from(line.width);
        pen.text(line, at, &if fits { whole } else { decision.short() }, Style::new());
    }
}
