//! Outstanding changes, by kind of effect. The actuators provide a table of kinds, so that undoing does not depend on
//! them.

use crate::sys::thread::{Identity, numbers_in, process_stat};
use crate::undo::report::RestoreReport;
use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

/// Time after its end during which a pause may continue. Then the guardian ends it, because this Cotenant is stopped
/// itself.
pub const GRACE: Duration = Duration::from_secs(2);

/// A line of a journal, written as it is displayed.
pub trait Record: fmt::Display + Sized {
    /// Its effect.
    type Effect: Effect<Record = Self>;

    /// Parses a line; `None` if it is of another kind, or damaged.
    fn parse(line: &str) -> Option<Self>;
}

/// All changes of one kind to undo: the sum of its records.
pub trait Effect: Any + fmt::Debug + Default {
    /// Its records.
    type Record: Record<Effect = Self>;

    /// Adds a record.
    fn enter(&mut self, record: &Self::Record);

    /// Whether a record contains nothing new.
    fn knows(&self, record: &Self::Record) -> bool;

    /// The fewest records that living processes may still need. `all` of them have been added in that order.
    fn essential(&self, all: Vec<Self::Record>, living: &Living) -> Vec<Self::Record>;

    /// Resumes what is paused because of us, without further undoing: what was to run by that time of
    /// [`crate::sys::monotonic`], or all of it. Returns records of the resumed.
    fn let_run(&self, _by: Option<Duration>, _report: &mut RestoreReport) -> Vec<Self::Record> {
        Vec::new()
    }

    /// Undoes all of it. Returns records of failures, which are retried. Ended processes need nothing.
    fn undo(&self, by: &Undoer<'_>, report: &mut RestoreReport) -> Vec<Self::Record>;
}

/// The surroundings in which changes are undone.
#[derive(Clone, Copy, Debug)]
pub struct Undoer<'a> {
    /// The Cotenant that wrote the journal.
    pub owner: Identity,
    /// Processes to leave alone.
    pub spare: &'a [u32],
}

/// Live processes, and sessions with a live member.
#[derive(Clone, Debug, Default)]
pub struct Living {
    /// Process ids.
    pub processes: HashSet<u32>,
    /// Session ids.
    pub sessions: HashSet<u32>,
}

impl Living {
    /// The present ones.
    pub fn now() -> Self {
        let found = numbers_in("/proc").into_iter().filter_map(|pid| Some((pid, process_stat(pid)?.session)));
        let (processes, sessions) = found.unzip();
        Self { processes, sessions }
    }
}

/// A kind of effect.
#[derive(Debug)]
pub struct Kind(fn() -> Box<dyn AnyEffect>);

impl Kind {
    /// That of a type.
    pub const fn of<E: Effect>() -> Self {
        Self(|| Box::<E>::default())
    }
}

/// All kinds of effects, in the order of undoing.
pub type Table = &'static [Kind];

/// Outstanding changes of each kind, in the order of the table.
#[derive(Debug)]
pub(crate) struct Effects {
    table: Table,
    all: Vec<Box<dyn AnyEffect>>,
}

impl Effects {
    pub fn new(table: Table) -> Self {
        Self { table, all: table.iter().map(|kind| kind.0()).collect() }
    }

    /// The effects in these lines, and the number of lines that no kind understands.
    pub fn read(table: Table, lines: &[String]) -> (Self, usize) {
        let mut effects = Self::new(table);
        let unknown = lines.iter().filter(|line| !effects.enter(line)).count();
        (effects, unknown)
    }

    /// Adds a line; returns whether some kind accepts it.
    pub fn enter(&mut self, line: &str) -> bool {
        self.all.iter_mut().any(|effect| effect.enter_line(line))
    }

    /// See [`Effect::let_run`]; the lines of these records.
    pub fn let_run(&self, by: Option<Duration>, report: &mut RestoreReport) -> Vec<String> {
        self.all.iter().flat_map(|effect| effect.let_all_run(by, report)).collect()
    }

    /// The changes of one kind; `None` if the table lacks it.
    pub fn get<E: Effect>(&self) -> Option<&E> {
        self.all.iter().find_map(|effect| (&**effect as &dyn Any).downcast_ref())
    }

    pub fn get_mut<E: Effect>(&mut self) -> Option<&mut E> {
        self.all.iter_mut().find_map(|effect| (&mut **effect as &mut dyn Any).downcast_mut())
    }

    /// A journal's lines that living processes still need, and their effects.
    pub fn compacted(&self, lines: &[String], living: &Living) -> (Vec<String>, Self) {
        let kept: Vec<String> = self.all.iter().flat_map(|effect| effect.essential_lines(lines, living)).collect();
        let (effects, _) = Self::read(self.table, &kept);
        (kept, effects)
    }

    /// Undoes all of it; returns lines about failures.
    pub fn undo(&self, by: &Undoer<'_>, report: &mut RestoreReport) -> Vec<String> {
        report.journals += 1;
        self.all.iter().flat_map(|effect| effect.undo_all(by, report)).collect()
    }
}

/// An effect of any kind.
trait AnyEffect: Any + fmt::Debug {
    /// Adds a line; returns whether it is of this kind.
    fn enter_line(&mut self, line: &str) -> bool;
    fn essential_lines(&self, lines: &[String], living: &Living) -> Vec<String>;
    fn let_all_run(&self, by: Option<Duration>, report: &mut RestoreReport) -> Vec<String>;
    fn undo_all(&self, by: &Undoer<'_>, report: &mut RestoreReport) -> Vec<String>;
}

impl<E: Effect> AnyEffect for E {
    fn enter_line(&mut self, line: &str) -> bool {
        E::Record::parse(line).map(|record| self.enter(&record)).is_some()
    }

    fn essential_lines(&self, lines: &[String], living: &Living) -> Vec<String> {
        let records = lines.iter().filter_map(|line| E::Record::parse(line)).collect();
        self.essential(records, living).iter().map(E::Record::to_string).collect()
    }

    fn let_all_run(&self, by: Option<Duration>, report: &mut RestoreReport) -> Vec<String> {
        self.let_run(by, report).iter().map(E::Record::to_string).collect()
    }

    fn undo_all(&self, by: &Undoer<'_>, report: &mut RestoreReport) -> Vec<String> {
        self.undo(by, report).iter().map(E::Record::to_string).collect()
    }
}

/// End of a pause, by [`crate::sys::monotonic`]; `None`: on its Cotenant's order.
pub type End = Option<Duration>;

/// An end as one word.
pub fn end_word(end: End) -> String {
    end.map_or_else(|| "-".to_owned(), |end| end.as_nanos().to_string())
}

/// Parses such a word; `None` if it is none.
#[allow(clippy::option_option)] // the word of an unlimited pause
pub fn end_of(word: &str) -> Option<End> {
    if word == "-" { Some(None) } else { word.parse().ok().map(|ns| Some(Duration::from_nanos(ns))) }
}

/// Whether a pause until `end` must be over at `by`; all are if that is `None`.
pub fn is_due(end: End, by: Option<Duration>) -> bool {
    by.is_none_or(|by| end.is_some_and(|end| end <= by))
}

/// The next word of a line as a number.
pub fn number<N: std::str::FromStr>(word: Option<&str>) -> Option<N> {
    word?.parse().ok()
}
