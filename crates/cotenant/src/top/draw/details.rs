//! One service, or one of its threads.

use super::cells::{known, misses, on, percent, policy};
use super::pen::{Pen, dim, take};
use crate::top::ui::{self, Drawn};
use cotenant_cli::live_view::cut;
use cotenant_cli::messages::count;
use cotenant_cli::table::wrapped;
use cotenant_model::Behind;
use cotenant_model::number::scaled;
use cotenant_model::text::clean;
use cotenant_status::hurts;
use cotenant_status::picture::Picture;
use cotenant_status::status::{Decision, ServiceStatus, ThreadStatus};
use cotenant_status::values::{Fact, Value, ValueUnit};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Widget, Wrap};

/// Columns of a label.
const LABEL: u16 = 14;

/// A service: its facts, its aggressors, its threads, and decisions about it.
pub(super) fn service(pen: &mut Pen<'_>, picture: &Picture, name: &str, mut room: Rect) -> Drawn {
    let Some(service) = ui::service(picture, name) else {
        pen.head(take(&mut room, 1), name, "");
        pen.text(room, 0, "it does not run at this moment", dim());
        return Drawn::default();
    };
    pen.head(take(&mut room, 1), name, service.class.name());
    let width = usize::from(room.width.saturating_sub(LABEL));
    let said = service.judgement.iter().flat_map(|said| wrapped(&clean(said), width));
    for (i, line) in said.enumerate() {
        fact(pen, take(&mut room, 1), if i == 0 { "verdict" } else { "" }, &line, misses(service));
    }
    for (label, value) in facts(service, width) {
        fact(pen, take(&mut room, 1), label, &value, false);
    }
    let learnt = service.learnt();
    let pairs = picture.interference.iter().filter(|row| row.victim == learnt || row.aggressor == learnt);
    for row in pairs.take(3) {
        let [loss, interval] = hurts::shares(row);
        let text = format!("{} loses {loss} ({interval}) while {} runs", row.victim, row.aggressor);
        fact(pen, take(&mut room, 1), "interference", &text, false);
    }
    let rows = service.busiest.len().max(1).min(usize::from(room.height / 2).max(2));
    let title = if service.busiest.len() < service.threads { "its busiest threads" } else { "its threads" };
    pen.head(take(&mut room, 1), title, &format!("{} of {}", service.busiest.len(), service.threads));
    let list = take(&mut room, rows as u16);
    let drawn = threads(pen, &service.busiest, list);
    decided(pen, picture, room, |decision| decision.service == name);
    drawn
}

/// The same in fewer lines, beside the list.
pub(super) fn panel(pen: &mut Pen<'_>, service: &ServiceStatus, mut room: Rect) {
    pen.head(take(&mut room, 1), &service.name, service.class.name());
    let width = usize::from(room.width.saturating_sub(LABEL));
    for (label, value) in facts(service, width) {
        fact(pen, take(&mut room, 1), label, &value, false);
    }
    let shown = service.busiest.len().min(usize::from(room.height));
    for thread in &service.busiest[..shown] {
        pen.text(take(&mut room, 1), 0, &of_thread(thread), Style::new());
    }
}

/// Facts about a service, by label, in lines of that width.
fn facts(service: &ServiceStatus, width: usize) -> Vec<(&'static str, String)> {
    let cpus = known(service.cpus, |cpus| format!("{cpus:.2}"));
    let (threads, processes) = (count(service.threads as u64, "thread"), count(service.processes as u64, "process"));
    let mut facts = vec![("uses", format!("{cpus} CPUs with {threads} of {processes}, on CPUs {}", on(service)))];
    if let Some(command) = &service.command {
        let lines = wrapped(&clean(command), width.max(1));
        let labels = std::iter::once("command").chain(std::iter::repeat(""));
        facts.extend(labels.zip(lines).take(3));
    }
    if let Some(bytes) = service.resident_bytes {
        let pid = service.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
        let within = if service.within.is_empty() { String::new() } else { format!(" in {}", service.within) };
        facts.push(("memory", format!("{}B resident{pid}{within}", scaled(bytes as f64))));
    }
    let rule = if service.rule.is_empty() { String::new() } else { format!("rule {}, ", service.rule) };
    if !service.policy.is_empty() || service.paused {
        facts.push(("managed", format!("{rule}policy {}", policy(service))));
    }
    let now = match &service.measured {
        Some(measured) => format!("{} {} in the last 10 s", measured.what, measured.text(measured.now)),
        None => "not known".to_owned(),
    };
    facts.push(("does", now));
    if let Some(measured) = service.measured.as_ref().filter(|measured| measured.alone.is_some()) {
        facts.push(("alone", measured.alone_text()));
        facts.push(("at the goal", measured.text(measured.goal)));
    }
    facts.extend((!service.behind.is_empty()).then(|| ("behind", Behind::text(&service.behind))));
    facts.extend(service.metric_error.clone().map(|why| ("unknown", why)));
    facts.extend(Value::ALL.into_iter().filter_map(|value| of_value(value, service)));
    facts.extend(service.within_goal.map(|within| ("in goal", within.text())));
    if !service.latencies.is_empty() {
        let quantile = |latency: &cotenant_status::status::Quantile| {
            format!("p{:.0} {}s", latency.quantile * 100.0, scaled(latency.seconds))
        };
        facts.push(("latency", service.latencies.iter().map(quantile).collect::<Vec<_>>().join(", ")));
    }
    facts
}

/// The fact of a value, if it has one.
fn of_value(value: Value, service: &ServiceStatus) -> Option<(&'static str, String)> {
    let (Fact { label, around: [before, behind], .. }, number) = (value.fact()?, value.of(service)?);
    let text = match value.unit() {
        ValueUnit::Share => percent(number),
        ValueUnit::BytesPerS => format!("{}B/s", scaled(number)),
        ValueUnit::Seconds => format!("{}s", scaled(number)),
        ValueUnit::Cpus => format!("{number:.2} CPUs"),
        ValueUnit::Threads => format!("{number:.2} threads"),
        ValueUnit::Count => scaled(number),
    };
    Some((label, format!("{before}{text}{behind}")))
}

fn fact(pen: &mut Pen<'_>, line: Rect, label: &str, value: &str, alert: bool) {
    pen.text(line, 0, label, dim());
    pen.text(line, LABEL, value, if alert { pen.alert() } else { Style::new() });
}

fn threads(pen: &mut Pen<'_>, all: &[ThreadStatus], list: Rect) -> Drawn {
    if all.is_empty() {
        pen.text(list, 0, "no thread ran in the last second", dim());
    }
    let height = usize::from(list.height);
    let chosen = pen.ui.thread.min(all.len().saturating_sub(1));
    let first = (chosen + 1).saturating_sub(height);
    for (i, thread) in all.iter().enumerate().skip(first).take(height) {
        let row = Rect { y: list.y + (i - first) as u16, height: 1, ..list };
        pen.text(row, 0, &of_thread(thread), Style::new());
        if i == chosen && pen.ui.keys {
            pen.text(row, 0, "▸", Style::new());
            pen.buffer.set_style(row, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
    Drawn { list, first }
}

fn of_thread(thread: &ThreadStatus) -> String {
    let cpu = thread.cpu.map_or_else(|| "?".to_owned(), |cpu| cpu.to_string());
    let (name, ThreadStatus { tid, cpus, allowed, .. }) = (cut(&thread.name, 16), thread);
    format!("{tid:>8}  {name:<16}  CPU {cpu:<4}  {cpus:>5.2} CPUs  may use {allowed}")
}

/// A thread of a service.
pub(super) fn thread(pen: &mut Pen<'_>, picture: &Picture, (name, tid): (&str, u32), mut room: Rect) {
    pen.head(take(&mut room, 1), &format!("thread {tid} of {name}"), "");
    let found = ui::service(picture, name).and_then(|service| service.busiest.iter().find(|thread| thread.tid == tid));
    match found {
        None => {
            pen.text(take(&mut room, 1), 0, "it is not among the busiest threads at this moment", dim());
        }
        Some(thread) => {
            let cpu = thread.cpu.map_or_else(|| "?".to_owned(), |cpu| cpu.to_string());
            let facts = [
                ("name", thread.name.clone()),
                ("uses", format!("{:.2} CPUs", thread.cpus)),
                ("on", format!("CPU {cpu}")),
                ("may use", format!("CPUs {}", thread.allowed)),
            ];
            for (label, value) in facts {
                fact(pen, take(&mut room, 1), label, &value, false);
            }
        }
    }
    // As moves write it.
    let mark = format!("tid {tid})");
    decided(pen, picture, room, |decision| decision.what.contains(&mark));
}

/// Decisions about it, in full, the latest first.
fn decided(pen: &mut Pen<'_>, picture: &Picture, mut room: Rect, about: impl Fn(&Decision) -> bool) {
    pen.head(take(&mut room, 1), "decisions about it", "");
    let line = |it: &Decision| clean(&format!("{}  {}", picture.when(it.at_s), it.line())).into_owned();
    let found = picture.last.iter().rev().filter(|decision| about(decision));
    let lines: Vec<Line<'_>> = found.map(|decision| Line::raw(line(decision))).collect();
    if lines.is_empty() {
        pen.text(room, 0, "none lately", dim());
    } else {
        Paragraph::new(Text::from(lines)).wrap(Wrap { trim: false }).render(room, pen.buffer);
    }
}
