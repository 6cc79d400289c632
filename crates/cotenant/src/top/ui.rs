//! The user's selection, and its changes by keys and mouse. Nothing here draws or waits.

use cotenant_status::picture::Picture;
use cotenant_status::status::ServiceStatus;
use cotenant_status::verdict::Verdict;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind};
use ratatui::layout::{Position, Rect};

/// Characters of a filter.
const FILTER: usize = 40;

/// Rows and moments that a page up or down moves.
const PAGE: isize = 10;

/// The shown page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    #[default]
    All,
    /// A service, by its name.
    Service(String),
    /// One of its threads.
    Thread(String, u32),
    /// The keys and columns.
    Help,
}

/// The order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Cpus,
    Waits,
    Memory,
    Goal,
    Name,
}

impl Order {
    /// All of them, each with its key and its name.
    pub const ALL: [(Self, char, &'static str); 5] = [
        (Self::Cpus, 'c', "CPUs"),
        (Self::Waits, 'w', "waits"),
        (Self::Memory, 'm', "memory"),
        (Self::Goal, 'g', "goals"),
        (Self::Name, 'n', "name"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(order, ..)| *order == self).map_or("", |(_, _, name)| name)
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|(order, ..)| *order == self).unwrap_or_default();
        Self::ALL[(at + 1) % Self::ALL.len()].0
    }

    /// What is listed first has the lowest. Values are in steps that a look can distinguish, so that services keep
    /// their places.
    fn of(self, service: &ServiceStatus) -> i64 {
        let steps = |value: Option<f64>, step: f64| -(value.unwrap_or_default() / step).round() as i64;
        match self {
            Self::Cpus => steps(service.cpus, 0.01),
            Self::Waits => steps(service.waiting, 0.01),
            Self::Memory => steps(service.resident_bytes.map(|bytes| bytes as f64), 1e6),
            Self::Goal => match (service.goal, service.verdict) {
                (_, Some(Verdict::Missed)) => 0,
                (_, Some(Verdict::Kept | Verdict::AtGoal)) => 2,
                (Some(_), _) => 1,
                (None, _) => 3,
            },
            Self::Name => 0,
        }
    }
}

/// A row of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// What is around the services from here on, of which there are so many; they are listed from this index on.
    Head(usize, usize),
    /// A service, by its index in the list.
    Service(usize),
}

/// The user's selection.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each answers a question of its own
pub(super) struct Ui {
    /// Whether colours are wanted.
    pub colour: bool,
    /// Whether the keys are shown: not on paper.
    pub keys: bool,
    pub paused: bool,
    pub order: Order,
    /// Whether services are below what is around them.
    pub tree: bool,
    pub filter: String,
    /// Whether keys are characters of the filter.
    pub typing: bool,
    pub page: Page,
    /// The service that is chosen, and its place in the list when it was there last.
    pub chosen: Option<String>,
    pub row: usize,
    /// The place of the thread that is chosen.
    pub thread: usize,
    /// Why the shown picture is old.
    pub trouble: Option<String>,
}

/// Positions on the screen, for the mouse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drawn {
    /// The rows of the list.
    pub list: Rect,
    /// The place of the first of them.
    pub first: usize,
}

/// The action to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Nothing, and nothing has changed.
    None,
    Draw,
    /// Move by so many moments, forwards or backwards.
    Travel(isize),
    /// Stop as Ctrl-Z does elsewhere.
    Suspend,
    Quit,
}

impl Ui {
    /// The services that are listed, in their order.
    pub fn listed<'a>(&self, picture: &'a Picture) -> Vec<&'a ServiceStatus> {
        let filter = self.filter.to_lowercase();
        let is_wanted = |service: &&ServiceStatus| {
            let command = service.command.as_deref().unwrap_or_default();
            let words =
                [&*service.name, &service.rule, service.class.name(), &service.policy, &service.within, command];
            words.iter().any(|word| word.to_lowercase().contains(&filter))
        };
        let mut listed: Vec<&ServiceStatus> = picture.services.iter().filter(is_wanted).collect();
        listed.sort_by(|a, b| self.order.of(a).cmp(&self.order.of(b)).then_with(|| a.name.cmp(&b.name)));
        if self.tree {
            // What is around the first one comes first.
            let mut places: Vec<&str> = Vec::new();
            for service in &listed {
                if !places.contains(&&*service.within) {
                    places.push(&service.within);
                }
            }
            listed.sort_by_key(|service| places.iter().position(|place| *place == service.within));
        }
        listed
    }

    /// The rows of the list.
    pub fn rows(&self, listed: &[&ServiceStatus]) -> Vec<Row> {
        if !self.tree {
            return (0..listed.len()).map(Row::Service).collect();
        }
        let mut rows = Vec::new();
        let mut at = 0;
        for chunk in listed.chunk_by(|a, b| a.within == b.within) {
            rows.push(Row::Head(at, chunk.len()));
            rows.extend((at..at + chunk.len()).map(Row::Service));
            at += chunk.len();
        }
        rows
    }

    /// The index of the selected service in the list.
    pub fn chosen_of(&self, listed: &[&ServiceStatus]) -> usize {
        let at = listed.iter().position(|service| Some(&service.name) == self.chosen.as_ref());
        at.unwrap_or_else(|| self.row.min(listed.len().saturating_sub(1)))
    }

    fn choose(&mut self, listed: &[&ServiceStatus], row: usize) {
        self.row = row.min(listed.len().saturating_sub(1));
        self.chosen = listed.get(self.row).map(|service| service.name.clone());
    }

    fn step(&mut self, picture: &Picture, by: isize) {
        if let Page::Service(name) = &self.page {
            let threads = service(picture, name).map_or(0, |service| service.busiest.len());
            self.thread = self.thread.saturating_add_signed(by).min(threads.saturating_sub(1));
        } else {
            let listed = self.listed(picture);
            self.choose(&listed, self.chosen_of(&listed).saturating_add_signed(by));
        }
    }

    fn open(&mut self, picture: &Picture) {
        match &self.page {
            Page::All => {
                let listed = self.listed(picture);
                if let Some(service) = listed.get(self.chosen_of(&listed)) {
                    (self.page, self.thread) = (Page::Service(service.name.clone()), 0);
                    self.chosen = Some(service.name.clone());
                }
            }
            Page::Service(name) => {
                if let Some(thread) = service(picture, name).and_then(|service| service.busiest.get(self.thread)) {
                    self.page = Page::Thread(name.clone(), thread.tid);
                }
            }
            Page::Thread(..) | Page::Help => {}
        }
    }

    fn close(&mut self) {
        self.page = match std::mem::take(&mut self.page) {
            Page::Thread(name, _) => Page::Service(name),
            Page::Service(_) | Page::Help => Page::All,
            Page::All => {
                self.filter.clear();
                Page::All
            }
        };
    }

    /// Takes over an event from the user.
    pub fn event(&mut self, event: &Event, picture: &Picture, drawn: Drawn) -> Act {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(*key, picture),
            Event::Mouse(mouse) => {
                match mouse.kind {
                    MouseEventKind::ScrollUp => self.step(picture, -1),
                    MouseEventKind::ScrollDown => self.step(picture, 1),
                    MouseEventKind::Down(MouseButton::Left) => {
                        if !drawn.list.contains(Position { x: mouse.column, y: mouse.row }) {
                            return Act::None;
                        }
                        self.click(picture, drawn.first + usize::from(mouse.row - drawn.list.y));
                    }
                    MouseEventKind::Down(MouseButton::Right) => self.close(),
                    _ => return Act::None,
                }
                Act::Draw
            }
            Event::Resize(..) => Act::Draw,
            _ => Act::None,
        }
    }

    /// Selects a row; opens it if it was selected before.
    fn click(&mut self, picture: &Picture, row: usize) {
        if matches!(self.page, Page::Service(_)) {
            if self.thread == row {
                self.open(picture);
            } else {
                self.thread = row;
            }
            return;
        }
        let listed = self.listed(picture);
        let Some(Row::Service(row)) = self.rows(&listed).get(row).copied() else { return };
        if self.chosen.is_some() && self.chosen_of(&listed) == row {
            self.open(picture);
        } else {
            self.choose(&listed, row);
        }
    }

    fn key(&mut self, key: KeyEvent, picture: &Picture) -> Act {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Act::Quit,
                KeyCode::Char('z') => Act::Suspend,
                _ => Act::None,
            };
        }
        if key.modifiers.contains(KeyModifiers::ALT) {
            return Act::None; // or Esc directly followed by a key
        }
        if self.typing {
            match key.code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => {
                    self.typing = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(c) if self.filter.chars().count() < FILTER => self.filter.push(c),
                _ => return Act::None,
            }
            return Act::Draw;
        }
        match key.code {
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.step(picture, -1),
            KeyCode::Down | KeyCode::Char('j') => self.step(picture, 1),
            KeyCode::PageUp => self.step(picture, -PAGE),
            KeyCode::PageDown => self.step(picture, PAGE),
            KeyCode::Left | KeyCode::Char('h') => return Act::Travel(-1),
            KeyCode::Right | KeyCode::Char('l') => return Act::Travel(1),
            KeyCode::Char('[') => return Act::Travel(-PAGE),
            KeyCode::Char(']') => return Act::Travel(PAGE),
            // A live source has only one moment, so these are for the list.
            KeyCode::Home if picture.moment.is_none() => self.step(picture, isize::MIN),
            KeyCode::End if picture.moment.is_none() => self.step(picture, isize::MAX),
            KeyCode::Home => return Act::Travel(isize::MIN),
            KeyCode::End => return Act::Travel(isize::MAX),
            KeyCode::Enter => self.open(picture),
            KeyCode::Esc | KeyCode::Backspace => self.close(),
            KeyCode::Char('/') => (self.typing, self.page) = (true, Page::All),
            // A recording does not advance by itself.
            KeyCode::Char(' ') if picture.moment.is_none() => self.paused = !self.paused,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('t') => self.tree = !self.tree,
            KeyCode::Char('?') => self.page = if self.page == Page::Help { Page::All } else { Page::Help },
            KeyCode::Char(c) => match Order::ALL.into_iter().find(|(_, key, _)| *key == c) {
                Some((order, ..)) => self.order = order,
                None => return Act::None,
            },
            _ => return Act::None,
        }
        Act::Draw
    }
}

/// A service by its name.
pub(super) fn service<'a>(picture: &'a Picture, name: &str) -> Option<&'a ServiceStatus> {
    picture.services.iter().find(|service| service.name == name)
}
