//! Assumptions about simulated programs.

use cotenant_sim::app::Program;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Per program of which something is assumed: the keys of it.
pub(super) type Assumed<'a> = BTreeMap<&'a str, &'a [String]>;

pub(super) fn of<'a>(programs: impl Iterator<Item = (&'a str, &'a Program)>) -> Assumed<'a> {
    programs.filter(|(_, p)| !p.assumed.is_empty()).map(|(name, p)| (name, p.assumed.as_slice())).collect()
}

/// A line for each set of keys.
pub(super) fn say(out: &mut impl Write, assumed: &Assumed<'_>) -> io::Result<()> {
    let mut by_keys: BTreeMap<&[String], Vec<&str>> = BTreeMap::new();
    for (name, keys) in assumed {
        by_keys.entry(keys).or_default().push(name);
    }
    for (keys, names) in by_keys {
        writeln!(out, "assumed of {}: {}", names.join(", "), keys.join(", "))?;
    }
    Ok(())
}
