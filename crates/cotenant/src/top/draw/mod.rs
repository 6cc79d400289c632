//! A [`Picture`] as a screen: a pure function, independent of the terminal. Everything shown by colour is also shown by
//! text.

mod cells;
mod columns;
mod details;
mod help;
mod hurts;
mod machine;
mod pen;
#[cfg(test)]
mod tests;

use super::ui::{Drawn, Order, Page, Row, Ui};
use cells::misses;
use columns::Plan;
use cotenant_cli::live_view::{cut, cut_middle};
use cotenant_cli::table::wrapped;
use cotenant_model::number::scaled;
use cotenant_model::text::clean;
use cotenant_status::picture::{self, Picture};
use cotenant_status::status::ServiceStatus;
use cotenant_status::verdict::Verdict;
use pen::{Pen, WIDE, bold, dim, take};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

/// A key, in place of which the filter stands.
const FILTER: &str = "/ filter";

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
        Page::Help => {
            help::draw(&mut pen, picture, room);
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
    let order = format!("s by {}", ui.order.name());
    let keys = match (&ui.page, picture.moment) {
        (Page::All, None) => {
            vec!["q quit", "? help", "Enter details", FILTER, &order, "t tree", "space pause"]
        }
        (Page::All, Some(_)) => {
            vec!["q quit", "? help", "Enter details", FILTER, &order, "t tree", "←→ time"]
        }
        (Page::Service(_), None) => vec!["q quit", "Esc back", "↑↓ choose", "Enter thread", "space pause"],
        (Page::Service(_), Some(_)) => vec!["q quit", "Esc back", "↑↓ choose", "Enter thread", "←→ time"],
        (Page::Thread(..), None) => vec!["q quit", "Esc back", "space pause"],
        (Page::Thread(..), Some(_)) => vec!["q quit", "Esc back", "←→ time"],
        (Page::Help, _) => vec!["q quit", "Esc back"],
    };
    let mut at = 0;
    for key in keys {
        if key == FILTER && !ui.filter.is_empty() {
            at = pen.text(line, at, &format!("filter: {}", ui.filter), pen.alert()) + 2;
            continue;
        }
        let (name, does) = key.split_at(key.find(' ').unwrap_or(key.len()));
        at = pen.text(line, at, name, bold());
        at = pen.text(line, at, does, dim()) + 2;
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
    let listed_rows = pen.ui.rows(&listed).len();
    let wide = room.width >= WIDE;
    let lines = usize::from(room.height).saturating_sub(if wide { 2 } else { 3 });
    let hurts = hurts::lines(picture).min((lines / 5).max(1));
    let least = if wide { hurts.max(lines / 4) } else { hurts + (lines / 4).max(1) };
    let rows = (listed_rows.max(1)).min(lines.saturating_sub(least).max(1));
    let mut list = take(&mut room, rows as u16 + 1);
    let drawn = services(pen, picture, &listed, take(&mut list, 1), list);
    if room.width >= BESIDE.0 && room.height >= BESIDE.1 {
        let left = Rect { width: room.width / 2, ..room };
        let mut right = Rect { x: room.x + left.width + 1, width: room.width - left.width - 1, ..room };
        if let Some(service) = listed.get(pen.ui.chosen_of(&listed)) {
            details::panel(pen, service, take(&mut right, room.height * 3 / 5));
        }
        decisions(pen, picture, right);
        let mut left = left;
        let hurts = (hurts::lines(picture) as u16 + 1).min(left.height / 2);
        interference(pen, picture, take(&mut left, hurts));
        hurts::unknown(pen, picture, left);
    } else if wide {
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
    if let Some(suffers) = picture.suffers().filter(|_| judged.is_empty()) {
        pen.text(take(room, 1), 0, &clean(&suffers), bold());
    }
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
        pen.text(take(room, 1), 0, &format!("and {left} more with a goal: g lists them"), dim());
    }
}

/// The chosen service at the right of a large screen: from this many columns on, and of lines below the list.
const BESIDE: (u16, u16) = (160, 16);

/// The services in the rows of the list, of which the chosen one is seen.
fn services(pen: &mut Pen<'_>, picture: &Picture, listed: &[&ServiceStatus], head: Rect, list: Rect) -> Drawn {
    let plan = Plan::new(listed, usize::from(head.width), pen.ui.order);
    let count = if listed.len() < picture.services.len() {
        format!("SERVICE ({} of {})", listed.len(), picture.services.len())
    } else {
        format!("SERVICE ({})", listed.len())
    };
    let style = bold().add_modifier(Modifier::UNDERLINED);
    pen.text(head, 0, &" ".repeat(usize::from(head.width)), style);
    pen.text(head, 2, &cut(&plan.marked(&count, Order::Name), plan.name), style);
    plan.line(pen, head, &mut |column| (plan.marked(column.head, column.order), style));
    if plan.command > 0 {
        pen.text(head, plan.command_at(), "COMMAND", style);
    }
    if listed.is_empty() {
        let text = if picture.services.is_empty() { "no service runs now" } else { "no service matches the filter" };
        pen.text(list, 2, text, dim());
    }
    let chosen = pen.ui.chosen_of(listed);
    let rows = pen.ui.rows(listed);
    let place = rows.iter().position(|row| *row == Row::Service(chosen)).unwrap_or_default();
    let height = usize::from(list.height);
    let first = if height == 0 { 0 } else { (place + 1).saturating_sub(height) };
    let letters = machine::letters(picture);
    for (i, row) in rows.iter().enumerate().skip(first).take(height) {
        let line = Rect { y: list.y + (i - first) as u16, height: 1, ..list };
        let index = match *row {
            Row::Head(from, n) => {
                let around = &listed[from..from + n];
                let within = if around[0].within.is_empty() { "/" } else { &around[0].within };
                pen.head(line, within, &sums(around));
                continue;
            }
            Row::Service(index) => index,
        };
        let service = listed[index];
        let style = pen.class(service);
        let letter = letters.get(&*service.name).copied().unwrap_or(machine::MANY);
        pen.text(line, 0, &letter.to_string(), style);
        pen.text(line, 2, &cut_middle(&service.name, plan.name), style);
        let alert = pen.alert();
        plan.line(pen, line, &mut |column| {
            let style = if column.head == "SPEED KEPT" && misses(service) { alert } else { style };
            ((column.cell)(service), style)
        });
        if plan.command > 0 {
            let command = Rect { width: line.width.min(plan.command_at() + plan.command as u16), ..line };
            pen.text(command, plan.command_at(), service.command.as_deref().unwrap_or_default(), dim());
        }
        if index == chosen && pen.ui.keys {
            pen.text(line, 1, "▸", style);
            pen.buffer.set_style(line, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
    Drawn { list, first }
}

/// `1.20 CPUs, 0.40 waiting, 1.2 GB`
fn sums(services: &[&ServiceStatus]) -> String {
    let sum = |of: fn(&ServiceStatus) -> Option<f64>| services.iter().filter_map(|it| of(it)).reduce(|a, b| a + b);
    let cpus = sum(|it| it.cpus).map(|cpus| format!("{cpus:.2} CPUs"));
    let waiting = sum(|it| it.waiting).map(|threads| format!("{threads:.2} waiting"));
    let memory = sum(|it| it.resident_bytes.map(|bytes| bytes as f64)).map(|bytes| format!("{}B", scaled(bytes)));
    [cpus, waiting, memory].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn interference(pen: &mut Pen<'_>, picture: &Picture, mut room: Rect) {
    pen.head(take(&mut room, 1), "interference", "");
    let all = hurts::all(picture);
    for text in all.iter().take(usize::from(room.height)) {
        pen.text(take(&mut room, 1), 0, text, Style::new());
    }
    // What is least known comes first.
    let blind = picture.unknown.first().filter(|_| picture::is_blind(&picture.services));
    if let Some(it) = blind {
        pen.text(take(&mut room, 1), 0, &format!("{} would tell {}", it.remedy, it.what), dim());
    } else if all.is_empty() {
        pen.text(take(&mut room, 1), 0, "nothing is known beyond doubt so far", dim());
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
