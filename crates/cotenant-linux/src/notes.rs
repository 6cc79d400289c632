//! Remarks for people.

use cotenant_model::text::{LINE, within};
use std::collections::BTreeSet;

/// Kept at most: a run of weeks would say ever more.
const MOST: usize = 100;

/// Remarks, each of them once.
#[derive(Clone, Debug, Default)]
pub struct Notes(BTreeSet<String>);

impl Notes {
    /// Keeps a remark: one line, though servers and programs may have a word in it.
    pub fn add(&mut self, note: impl Into<String>) {
        if self.0.len() < MOST {
            self.0.insert(within(&note.into(), LINE).into_owned());
        }
    }

    /// Keeps several.
    pub fn extend(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            self.add(note);
        }
    }

    /// Takes a remark back that does not hold any more.
    pub fn take_back(&mut self, note: &str) {
        self.0.remove(&*within(note, LINE));
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &String> {
        self.0.iter()
    }
}
