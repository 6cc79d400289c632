//! The machine: a cell for each CPU if all fit, otherwise a letter for each.

use super::cells::percent;
use super::pen::{Pen, WIDE, dim, take};
use crate::top::ui::service;
use cotenant_cli::live_view::cut;
use cotenant_status::picture::{Context, Domain, Package, Picture, Whose};
use ratatui::layout::Rect;
use ratatui::style::Style;
use std::collections::BTreeMap;

/// Marks instead of a letter: idle; not a service; a service without a letter.
const IDLE: char = '·';
const OTHERS: char = '*';
pub(super) const MANY: char = '#';
/// It is not known how busy the CPU is.
const UNKNOWN: char = '?';

/// Characters of a cell without its number and the name: the border, the bar, spaces.
const CELL: usize = 7;
const BAR: usize = 4;
/// The least and the greatest length of a name.
const NAMES: [usize; 2] = [8, 24];

type Line = Vec<(String, Style)>;

/// The lines of a machine.
pub(super) struct Machine {
    lines: Vec<Line>,
    lettered: bool,
}

impl Machine {
    /// In this number of columns and, if possible, lines.
    pub fn new(picture: &Picture, pen: &Pen<'_>, width: usize, most: usize) -> Self {
        let cells = cells(picture, pen, width);
        if cells.len() <= most {
            return Self { lines: cells, lettered: false };
        }
        let apart = letters_of(picture, pen, width, true);
        let mut lines = if apart.len() <= most { apart } else { letters_of(picture, pen, width, false) };
        if lines.len() > most {
            let more = lines.len() + 1 - most;
            lines.truncate(most - 1);
            lines.push(vec![(format!("and {more} more lines of CPUs: the terminal is too low"), dim())]);
        }
        Self { lines, lettered: true }
    }

    /// With a head, in the first lines.
    pub fn draw(self, pen: &mut Pen<'_>, picture: &Picture, room: &mut Rect) {
        let busy = picture.busy().map(|busy| format!("{} busy", percent(busy)));
        let end: Vec<String> = short(picture, room.width >= WIDE).into_iter().chain(busy).collect();
        let is_drawn = |letter: char| self.lines.iter().flatten().any(|(text, _)| text.contains(letter));
        let more = [(MANY, "services without a letter"), (UNKNOWN, "not known")];
        let more =
            more.into_iter().filter(|(letter, _)| is_drawn(*letter)).map(|(letter, of)| format!(", {letter} {of}"));
        let legend = format!(" ({OTHERS} others, {IDLE} idle{})", more.collect::<String>());
        let legend = if self.lettered { legend } else { String::new() };
        pen.head(take(room, 1), &format!("{}{legend}", picture.machine()), &end.join(", "));
        for line in self.lines {
            let area = take(room, 1);
            let mut at = 0;
            for (text, style) in line {
                at = pen.text(area, at, &text, style);
            }
        }
    }
}

/// A shortage from which on it is told where there is little room.
const MUCH: f64 = 0.05;

/// `PSI cpu 96 %`: what the machine was short of; all of it where there is room.
fn short(picture: &Picture, wide: bool) -> Option<String> {
    let pressure = picture.pressure?;
    let parts = [("cpu", pressure.cpu), ("io", pressure.io), ("memory", pressure.memory)];
    let parts = parts.into_iter().filter_map(|(of, share)| Some((of, share?)));
    let told = parts.filter(|(of, share)| wide || *of == "cpu" || *share >= MUCH);
    let told: Vec<String> = told.map(|(of, share)| format!("{of} {}", percent(share))).collect();
    (!told.is_empty()).then(|| format!("PSI {}", told.join(", ")))
}

/// Cores shown together, with their name. If each core has its own last-level cache, domains are irrelevant.
fn groups(package: &Package) -> Vec<Vec<&Domain>> {
    if package.domains.iter().all(|domain| domain.cores.len() <= 1) {
        return vec![package.domains.iter().collect()];
    }
    package.domains.iter().map(|domain| vec![domain]).collect()
}

/// `package 0, cache domain 1`
fn cells(picture: &Picture, pen: &Pen<'_>, width: usize) -> Vec<Line> {
    let digits = picture.cpus().map(|cpu| cpu.cpu.to_string().len()).max().unwrap_or(1);
    let mut lines = Vec::new();
    let several = picture.packages.iter().map(|package| groups(package).len()).sum::<usize>() > 1;
    for (p, package) in picture.packages.iter().enumerate() {
        let groups = groups(package);
        for (g, group) in groups.iter().enumerate() {
            if several {
                let domain = if groups.len() > 1 { format!(", cache domain {g}") } else { String::new() };
                lines.push(vec![(format!("package {p}{domain}"), dim())]);
            }
            let cpus: Vec<(bool, &Context)> = group
                .iter()
                .flat_map(|domain| &domain.cores)
                .flat_map(|core| core.cpus.iter().enumerate().map(|(i, cpu)| (i == 0, cpu)))
                .collect();
            let fit = (width / (CELL + digits + NAMES[0])).max(1).min(cpus.len().max(1));
            // Contexts of one core stay together.
            let contexts = group.iter().flat_map(|domain| &domain.cores).map(|core| core.cpus.len()).max();
            let contexts = contexts.unwrap_or(1).clamp(1, fit);
            let fit = fit - fit % contexts;
            let cell = (width / fit).min(CELL + digits + NAMES[1]);
            for row in cpus.chunks(fit) {
                lines.push(row.iter().flat_map(|(first, cpu)| one(picture, pen, cpu, *first, digits, cell)).collect());
            }
        }
    }
    lines
}

/// `│ 3 ██▌  redis      `: `╎` before a further context of the same core.
fn one(picture: &Picture, pen: &Pen<'_>, cpu: &Context, first: bool, digits: usize, cell: usize) -> Line {
    let border = if first { '│' } else { '╎' };
    let bar = cpu.busy.map_or_else(|| "?".to_owned(), bar);
    let (name, style) = who(picture, pen, cpu);
    let room = cell.saturating_sub(CELL + digits);
    vec![
        (format!("{border}{:>digits$} ", cpu.cpu), dim()),
        (format!("{bar:<BAR$} "), style),
        (format!("{:<room$}", cut(&name, room)), style),
    ]
}

/// Eighths of a character.
fn bar(busy: f64) -> String {
    let eighths = (busy.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + rest
}

fn who(picture: &Picture, pen: &Pen<'_>, cpu: &Context) -> (String, Style) {
    match cpu.whose() {
        Whose::Nobody => ("idle".to_owned(), dim()),
        Whose::Unknown => ("?".to_owned(), dim()),
        Whose::Others => ("(others)".to_owned(), Style::new()),
        Whose::Service(name, more) => {
            let more = if more > 0 { format!("+{more} ") } else { String::new() };
            (format!("{more}{name}"), style_of(picture, pen, name))
        }
    }
}

fn style_of(picture: &Picture, pen: &Pen<'_>, name: &str) -> Style {
    service(picture, name).map_or_else(Style::new, |service| pen.class(service))
}

/// `0/1 ab a· ··  43 %`: package and domain, a letter for each CPU.
fn letters_of(picture: &Picture, pen: &Pen<'_>, width: usize, apart: bool) -> Vec<Line> {
    let letters = letters(picture);
    let mut blocks: Vec<(Line, usize)> = Vec::new();
    for (p, package) in picture.packages.iter().enumerate() {
        for (g, group) in groups(package).iter().enumerate() {
            let mut block = vec![(format!("{p}/{g:<2} "), dim())];
            for core in group.iter().flat_map(|domain| &domain.cores) {
                for cpu in &core.cpus {
                    let (letter, style) = match cpu.whose() {
                        Whose::Nobody => (IDLE, dim()),
                        Whose::Unknown => (UNKNOWN, dim()),
                        Whose::Others => (OTHERS, Style::new()),
                        Whose::Service(name, _) => {
                            (letters.get(name).copied().unwrap_or(MANY), style_of(picture, pen, name))
                        }
                    };
                    block.push((letter.to_string(), style));
                }
                if apart {
                    block.push((" ".to_owned(), Style::new()));
                }
            }
            let busy = group.iter().filter_map(|domain| domain.busy()).fold((0.0, 0.0), |(s, n), b| (s + b, n + 1.0));
            let busy = if busy.1 > 0.0 { percent(busy.0 / busy.1) } else { String::new() };
            block.push((format!(" {busy:>5}  "), dim()));
            let length = block.iter().map(|(text, _)| text.chars().count()).sum();
            blocks.push((block, length));
        }
    }
    let wide = blocks.iter().map(|(_, length)| *length).max().unwrap_or(1);
    let beside = (width / wide).max(1);
    let mut lines = Vec::new();
    for row in blocks.chunks(beside) {
        let fill = |(block, length): &(Line, usize)| {
            block.iter().cloned().chain([(" ".repeat(wide - length), Style::new())]).collect::<Line>()
        };
        lines.push(row.iter().flat_map(fill).collect());
    }
    lines
}

/// A letter for each service, as far as available: preferably one of its name, so that letters stay while services
/// start and end. Running ones come first.
pub(super) fn letters(picture: &Picture) -> BTreeMap<&str, char> {
    let mut services: Vec<_> = picture.services.iter().collect();
    services.sort_by_key(|service| (service.cpus.unwrap_or_default() < 0.05, &service.name));
    let all = || ('a'..='z').chain('A'..='Z').chain('0'..='9');
    let mut free: Vec<char> = all().collect();
    let mut letters = BTreeMap::new();
    for service in services {
        let of_name = service.name.chars().flat_map(|c| [c.to_ascii_lowercase(), c.to_ascii_uppercase()]);
        let Some(letter) = of_name.chain(all()).find(|c| free.contains(c)) else { break };
        free.retain(|c| *c != letter);
        letters.insert(&*service.name, letter);
    }
    letters
}
