//! `cotenant top`: sources fill a [`Picture`], drawn by a pure function; keys change the selection.

mod draw;
mod screen;
mod sources;
mod ui;

use crate::open::in_time;
use anyhow::{Result, anyhow};
use cotenant_cli::live_view;
use cotenant_cli::page::Page;
use cotenant_linux::sys;
use cotenant_linux::sys::waiter::{Event as Came, Waiter};
use cotenant_model::Time;
use cotenant_status::picture::Picture;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event;
use ratatui::layout::Rect;
use ratatui::text::Span;
use screen::Screen;
pub(crate) use sources::Source;
use sources::{News, Recorded};
use std::io::stdout;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
use ui::{Act, Drawn, Ui};

/// Greatest delay of signals and pictures.
const TICK: Duration = Duration::from_millis(200);

/// Columns and lines of a printed screen without a terminal.
const PAPER: (u16, u16) = (80, 24);

/// The subject to show.
pub(crate) struct What<'a> {
    /// A recording.
    pub file: Option<&'a Path>,
    /// From which moment of it on.
    pub at: Option<Time>,
    /// The daemon's socket.
    pub socket: Option<&'a Path>,
    /// Not the daemon, whether one answers or not.
    pub own: bool,
}

impl What<'_> {
    /// Its source.
    ///
    /// # Errors
    /// It cannot be read, or has no such moment.
    pub fn source(&self) -> Result<Source> {
        let source = Source::of(self.file, self.socket, self.own)?;
        if let (Source::Recording(recorded), Some(at)) = (&source, self.at) {
            in_time("--at", at, recorded.ends())?;
        }
        Ok(source)
    }

    /// One picture.
    ///
    /// # Errors
    /// There is none.
    pub fn picture(&self, source: Source) -> Result<Picture> {
        match source {
            Source::Recording(recorded) => Ok(recorded.picture(begin(&recorded, self.at)).clone()),
            Source::Live(live) => match live.begin(true)?.recv() {
                Ok(News::Picture(picture)) => Ok(*picture),
                Ok(News::Trouble(why)) => Err(anyhow!("{why}")),
                Ok(News::Signal(_)) | Err(_) => Err(anyhow!("stopped before anything was seen")),
            },
        }
    }

    /// Shows it until the user quits, or a signal requests a stop.
    ///
    /// # Errors
    /// There is nothing to show, or the terminal is gone.
    pub fn show(&self, source: Source) -> Result<ExitCode> {
        // From here on signals wait until the terminal has been given back; threads that begin now inherit that.
        let mut waiter = Waiter::new()?;
        let mut feed = Feed::of(source, self.at)?;
        let mut ui = Ui { colour: Page::of_stdout().is_coloured(), keys: true, ..Ui::default() };
        let (mut drawn, mut dirty) = (Drawn::default(), true);
        let mut screen = Screen::open()?;
        loop {
            if dirty {
                drawn = screen.draw(|area, buffer| draw::draw(feed.picture(), &ui, area, buffer))?;
            }
            dirty = false;
            // `event::poll` never returns after the terminal has gone.
            sys::poll_readable([Some(stdout().as_fd())], TICK)?;
            if sys::hung_up(stdout(), Duration::ZERO) {
                return Ok(ended_by(libc::SIGHUP));
            }
            let mut there = event::poll(Duration::ZERO)?;
            while there {
                match ui.event(&event::read()?, feed.picture(), drawn) {
                    Act::None => {}
                    Act::Draw => dirty = true,
                    Act::Travel(by) => dirty |= feed.travel(by),
                    Act::Suspend => {
                        screen.suspend()?;
                        dirty = true;
                    }
                    Act::Quit => return Ok(ExitCode::SUCCESS),
                }
                there = event::poll(Duration::ZERO)?;
            }
            dirty |= match feed.news(&mut ui)? {
                Next::Old => false,
                Next::New => true,
                Next::Signal(signal) => return Ok(ended_by(signal)),
            };
            if let Came::Signal(signal) = waiter.wait(Some(Instant::now()))? {
                return Ok(ended_by(signal));
            }
        }
    }
}

fn ended_by(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

fn begin(recorded: &Recorded, at: Option<Time>) -> usize {
    at.map_or_else(|| recorded.end(), |at| recorded.at(at))
}

/// The pictures, of which one is shown.
enum Feed {
    Live { news: Receiver<News>, picture: Box<Picture> },
    Recording { recorded: Recorded, moment: usize },
}

/// The news since the last look.
enum Next {
    Old,
    New,
    Signal(i32),
}

impl Feed {
    fn of(source: Source, at: Option<Time>) -> Result<Self> {
        Ok(match source {
            Source::Recording(recorded) => Self::Recording { moment: begin(&recorded, at), recorded },
            Source::Live(live) => {
                let picture = Picture { source: "looking for the first time".to_owned(), ..Picture::default() };
                Self::Live { news: live.begin(false)?, picture: Box::new(picture) }
            }
        })
    }

    fn picture(&self) -> &Picture {
        match self {
            Self::Live { picture, .. } => picture,
            Self::Recording { recorded, moment } => recorded.picture(*moment),
        }
    }

    /// Moves by so many moments; returns whether the moment changed.
    fn travel(&mut self, by: isize) -> bool {
        let Self::Recording { recorded, moment } = self else { return false };
        let to = moment.saturating_add_signed(by).min(recorded.len() - 1);
        std::mem::replace(moment, to) != to
    }

    /// Takes over the news. During a pause the picture stays.
    fn news(&mut self, ui: &mut Ui) -> Result<Next> {
        let Self::Live { news, picture } = self else { return Ok(Next::Old) };
        let mut next = Next::Old;
        loop {
            match news.try_recv() {
                Ok(News::Picture(_)) if ui.paused => {}
                Ok(News::Picture(new)) => (*picture, ui.trouble, next) = (new, None, Next::New),
                Ok(News::Trouble(why)) => (ui.trouble, next) = (Some(why), Next::New),
                Ok(News::Signal(signal)) => return Ok(Next::Signal(signal)),
                Err(TryRecvError::Empty) => return Ok(next),
                Err(TryRecvError::Disconnected) => {
                    let why = ui.trouble.take().unwrap_or_else(|| "the look at this machine has ended".to_owned());
                    return Err(anyhow!("{why}"));
                }
            }
        }
    }
}

/// A picture as plain text: as wide and high as the terminal, or as a usual one.
pub(crate) fn on_paper(picture: &Picture) -> String {
    let (width, height) = live_view::stdout_size().map_or(PAPER, |(width, height)| (width as u16, height as u16));
    text_of(picture, &Ui::default(), width, height)
}

/// The text on a terminal of that size, without colours.
fn text_of(picture: &Picture, ui: &Ui, width: u16, height: u16) -> String {
    let area = Rect { x: 0, y: 0, width, height };
    let mut buffer = Buffer::empty(area);
    draw::draw(picture, ui, area, &mut buffer);
    let mut text = String::new();
    for y in 0..height {
        let (mut line, mut x) = (String::new(), 0);
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += (Span::raw(symbol).width() as u16).max(1); // a wide character covers the next cell
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
