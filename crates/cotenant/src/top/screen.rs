//! The terminal in raw mode, which is restored in every case.

use cotenant_linux::sys;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::layout::Rect;
use ratatui::prelude::Buffer;
use std::io::{self, Stdout, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is in our mode. Restoring it twice would move its cursor.
static OURS: AtomicBool = AtomicBool::new(false);

/// The terminal. Dropping it restores it; so does a panic.
pub(super) struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Not a terminal.
    pub fn open() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
        }));
        let screen = Terminal::new(CrosstermBackend::new(stdout()))?;
        // From here on, errors restore the terminal.
        let screen = Self(screen);
        enter()?;
        Ok(screen)
    }

    /// Draws the whole screen.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw<T: Default>(&mut self, draw: impl FnOnce(Rect, &mut Buffer) -> T) -> io::Result<T> {
        let mut drawn = T::default();
        self.0.draw(|frame| drawn = draw(frame.area(), frame.buffer_mut()))?;
        Ok(drawn)
    }

    /// Stops as Ctrl-Z does elsewhere, and takes the terminal again afterwards.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        sys::stop_own_group()?;
        enter()?;
        // It does not know the screen's content. `clear` would query the cursor's place, which not every terminal
        // answers.
        self.0 = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    OURS.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableMouseCapture)
}

fn leave() {
    if OURS.swap(false, Ordering::SeqCst) {
        // Errors have no reader any more.
        let _ = execute!(stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Set if this test runs itself in a terminal made by `script` (util-linux).
    const INSIDE: &str = "COTENANT_TEST_PANICS_ON_SCREEN";

    /// Holds daemon/top.
    #[test]
    fn a_panic_gives_the_terminal_back_before_it_is_told() {
        if std::env::var_os(INSIDE).is_some() {
            let _screen = Screen::open().unwrap();
            panic!("on purpose");
        }
        let script = |line: &str| {
            let mut script = Command::new("script");
            script.args(["-qec", line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null()).output()
        };
        if !script("test -t 1").is_ok_and(|out| out.status.success()) {
            eprintln!("skipped: no terminal from script(1)");
            return;
        }
        let (me, (_, here)) = (std::env::current_exe().unwrap(), module_path!().split_once("::").unwrap());
        let this = "a_panic_gives_the_terminal_back_before_it_is_told";
        let itself = format!("{INSIDE}=1 '{}' --exact --nocapture {here}::{this}", me.display());
        let line = format!("before=$(stty -g); {itself}; test \"$before\" = \"$(stty -g)\" && echo as before");
        let shown = String::from_utf8_lossy(&script(&line).unwrap().stdout).into_owned();
        let (_, taken) = shown.split_once("\x1b[?1049h").unwrap_or_else(|| panic!("never taken: {shown:?}"));
        let (drawn, back) = taken.split_once("\x1b[?1049l").unwrap_or_else(|| panic!("never given back: {shown:?}"));
        assert!(!drawn.contains("on purpose"), "told where nobody reads it: {shown:?}");
        assert!(back.contains("on purpose") && !back.contains("\x1b[?1049l"), "{shown:?}");
        assert!(back.contains("as before"), "it is not as it was: {shown:?}");
    }
}
