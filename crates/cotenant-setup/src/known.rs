//! The shapes that were best on this machine, from run to run: one JSON file below the data folder.

use crate::calibrated;
use crate::replace::{lock, replace};
use cotenant_linux::bounded;
use cotenant_model::policy::Learned;
use cotenant_model::profile::calibration::structure;
use cotenant_model::{Round, Topology};
use cotenant_policies::{KnownGroup, KnownShape};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::{fs, io};

/// Shapes that are kept; the oldest go first.
const MOST: usize = 64;

/// The known shapes, and those found by this run.
#[derive(Clone, Debug, Default)]
pub struct Known {
    path: Option<PathBuf>,
    machine: String,
    found: Vec<KnownShape>,
    /// Groups whose shape has lost against the kernel's placement.
    lost: Vec<Vec<KnownGroup>>,
}

/// The file.
#[derive(Serialize, Deserialize)]
pub struct Stored {
    /// Of the topology: shapes of another one say nothing.
    machine: String,
    known: Vec<KnownShape>,
}

impl Known {
    /// The shapes of this machine.
    pub fn of(topology: &Topology) -> Self {
        let id = calibrated::data_folder().zip(calibrated::machine_id());
        let path = id.map(|(folder, id)| folder.join(format!("shapes/{id}.json")));
        Self { path, machine: structure(topology), ..Self::default() }
    }

    /// The shapes found by earlier runs; none if they cannot be read, since they only save time.
    pub fn read(&self) -> Vec<KnownShape> {
        let text = self.path.as_ref().and_then(|path| bounded::named_text(path).ok());
        let stored: Option<Stored> = text.and_then(|text| serde_json::from_str(&text).ok());
        stored.filter(|stored| stored.machine == self.machine).map_or_else(Vec::new, |stored| stored.known)
    }

    /// Takes over the knowledge of a round's policy.
    pub fn watch(&mut self, round: &Round<'_>) {
        // A policy notes what it has learned; most rounds have no note.
        if round.decision.is_none_or(|decision| decision.notes.is_empty()) {
            return;
        }
        for Learned { about, value } in round.learned() {
            let Ok(groups) = serde_json::from_value::<Vec<KnownGroup>>(about) else { continue };
            // A policy that started afresh in this run knows less than it found before.
            self.found.retain(|found| found.groups != groups);
            self.lost.retain(|lost| *lost != groups);
            match value.map(serde_json::from_value) {
                None => self.lost.push(groups),
                Some(Ok(shape)) => self.found.push(shape),
                Some(Err(_)) => {}
            }
        }
        self.found.drain(..self.found.len().saturating_sub(MOST));
        self.lost.drain(..self.lost.len().saturating_sub(MOST));
    }

    /// The file to change; `None` without new shapes.
    pub fn file(&self) -> Option<&PathBuf> {
        self.path.as_ref().filter(|_| !self.found.is_empty() || !self.lost.is_empty())
    }

    /// Stores results for the next run, together with other runs' newer ones.
    ///
    /// # Errors
    /// Errors of writing it.
    pub fn keep(&self) -> io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let _lock = lock(path);
        let mut known = self.read();
        let now = || self.found.iter().map(|found| &found.groups).chain(&self.lost);
        known.retain(|old| now().all(|groups| *groups != old.groups));
        known.extend(self.found.iter().cloned());
        known.drain(..known.len().saturating_sub(MOST));
        let stored = Stored { machine: self.machine.clone(), known };
        replace(path, &serde_json::to_vec_pretty(&stored)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::testing::machine;

    /// A command learns the measured latencies sooner or later than the daemon.
    #[test]
    fn a_machine_is_the_same_with_measured_latencies() {
        let told = machine(2, 1, 4, 2);
        let mut parts = told.parts().clone();
        let distances = parts.distances.as_mut().expect("two nodes have distances");
        distances.rows[0][1] += 5.0;
        distances.rows[1][0] += 5.0;
        let measured = Topology::new(parts).unwrap();
        assert_eq!(Known::of(&told).machine, Known::of(&measured).machine);
        assert_ne!(Known::of(&told).machine, Known::of(&machine(2, 1, 4, 1)).machine);
    }

    /// Each of many at the same moment.
    #[test]
    fn nobody_s_shape_is_lost() {
        let folder = std::env::temp_dir().join(format!("cotenant-known-all-{}", std::process::id()));
        let group = |n: usize| KnownGroup { app: format!("app{n}"), part: String::new(), threads: 1 };
        let keep = |n: usize| {
            let shape =
                serde_json::json!({ "counts": [[1]], "doubling": { "order": [], "pair": null, "packed": null } });
            let found =
                vec![serde_json::from_value(serde_json::json!({ "groups": [group(n)], "shape": shape })).unwrap()];
            let path = Some(folder.join("shapes/a.json"));
            Known { path, machine: "one".to_owned(), found, lost: Vec::new() }.keep().unwrap();
        };
        std::thread::scope(|scope| (0..8).for_each(|n| drop(scope.spawn(move || keep(n)))));
        let read =
            Known { path: Some(folder.join("shapes/a.json")), machine: "one".to_owned(), ..Known::default() }.read();
        assert_eq!(read.len(), 8, "{read:?}");
        fs::remove_dir_all(folder).unwrap();
    }

    /// Holds place/trials.
    #[test]
    fn the_latest_of_each_kind_is_kept_and_those_of_another_machine_are_not_read() {
        let shape = |name: &str, n: usize| -> KnownShape {
            serde_json::from_value(serde_json::json!({
                "groups": [[name, n]], "shape": { "counts": [[n, 0]], "doubling": { "order": [0], "pair": null, "packed": null } },
            }))
            .unwrap()
        };
        let folder = std::env::temp_dir().join(format!("cotenant-known-{}", std::process::id()));
        let known = |machine: &str, found: Vec<KnownShape>| Known {
            path: Some(folder.join("shapes/a.json")),
            machine: machine.to_owned(),
            found,
            lost: Vec::new(),
        };
        known("one", vec![shape("a", 2), shape("b", 3)]).keep().unwrap();
        known("one", vec![shape("a", 2)]).keep().unwrap();
        let read = known("one", Vec::new()).read();
        assert_eq!(read, [shape("b", 3), shape("a", 2)]);
        assert_eq!(known("another", Vec::new()).read(), []);
        let lost = Known { lost: vec![shape("b", 3).groups], ..known("one", Vec::new()) };
        lost.keep().unwrap();
        assert_eq!(known("one", Vec::new()).read(), [shape("a", 2)], "the kernel's placement is better");
        known("one", vec![shape("b", 3)]).keep().unwrap();
        fs::write(folder.join("shapes/a.json"), "{\"machine\":").unwrap();
        assert_eq!(known("one", Vec::new()).read(), [], "damaged: it begins anew");
        let many = (0..70).map(|n| shape("x", n)).collect();
        known("one", many).keep().unwrap();
        assert_eq!(known("one", Vec::new()).read().len(), MOST);
        fs::remove_dir_all(folder).unwrap();
    }
}
