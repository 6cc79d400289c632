//! The results of benchmarks: printed as lines of JSON, and kept in `target/bench.json`, an array in which each
//! benchmark replaces the rows of its last run.

use serde_json::Value;
use std::path::PathBuf;
use std::{env, fs};

/// The rows of one benchmark.
pub struct Report {
    bench: &'static str,
    rows: Vec<Value>,
}

impl Report {
    /// An empty report of this benchmark.
    pub fn new(bench: &'static str) -> Self {
        Self { bench, rows: Vec::new() }
    }

    /// Prints a row, which must be an object, and adds it.
    pub fn row(&mut self, mut row: Value) {
        row["bench"] = self.bench.into();
        println!("{row}");
        self.rows.push(row);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")), PathBuf::from);
        let path = target.join("bench.json");
        let old: Vec<Value> =
            fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let others = old.into_iter().filter(|row| row["bench"] != self.bench);
        let all: Vec<Value> = others.chain(self.rows.drain(..)).collect();
        let written = fs::create_dir_all(&target)
            .and_then(|()| fs::write(&path, serde_json::to_string_pretty(&all).unwrap_or_default()));
        if let Err(why) = written {
            eprintln!("{}: {why}; the rows stand on standard output only", path.display());
        }
    }
}
