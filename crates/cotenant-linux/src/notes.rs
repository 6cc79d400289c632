//! Remarks for people.

use cotenant_model::text::{LINE, within};
use std::collections::BTreeMap;

/// Limit, against weeks of growth.
const MOST: usize = 100;

/// Distinct remarks. Beyond a limit, the oldest ones are dropped.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// When each was last added, as a running number.
    said: BTreeMap<String, u64>,
    count: u64,
}

impl Notes {
    /// Adds a remark: one line, even if servers and programs contribute words.
    pub fn add(&mut self, note: impl Into<String>) {
        self.said.insert(within(&note.into(), LINE).into_owned(), self.count);
        self.count += 1;
        if self.said.len() > MOST
            && let Some(oldest) = self.said.iter().min_by_key(|(_, said)| **said).map(|(note, _)| note.clone())
        {
            self.said.remove(&oldest);
        }
    }

    /// Keeps several.
    pub fn extend(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            self.add(note);
        }
    }

    /// Removes an outdated remark.
    pub fn take_back(&mut self, note: &str) {
        self.said.remove(&*within(note, LINE));
    }

    /// All of them, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = &String> {
        self.said.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// New notes still find room after a run of weeks.
    #[test]
    fn of_too_many_those_go_that_were_said_longest_ago() {
        let mut notes = Notes::default();
        for number in 0..2 * MOST {
            notes.add(format!("process {number} is left alone"));
            notes.add("again and again");
        }
        let kept: Vec<&String> = notes.iter().collect();
        let has = |number: usize| kept.contains(&&format!("process {number} is left alone"));
        assert_eq!(kept.len(), MOST);
        assert!(has(2 * MOST - 1) && has(MOST + 1) && !has(MOST) && !has(0), "{kept:?}");
        assert!(kept.iter().any(|note| *note == "again and again"));
        notes.take_back("again and again");
        assert_eq!(notes.iter().count(), MOST - 1);
    }
}
