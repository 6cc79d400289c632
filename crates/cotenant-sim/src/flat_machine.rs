//! A machine of some cores with one last-level cache and one memory, in eight lines of TOML.

use crate::app::{AppError, SIMULATOR, given};
use crate::occupancy::Replacement;
use cotenant_model::machine::Machine;
use serde::Deserialize;
use std::fmt::Write as _;
use toml::Spanned;

/// Most cores of a small machine.
const MAX_CORES: i64 = 1_024;

/// From this many bytes of last-level cache per core, the cache is taken as inclusive if the file does not say:
/// inclusive servers of Intel (up to Broadwell) had 2 to 3 MiB, later ones 1.375 to 1.875 MiB.
const INCLUSIVE_FROM: f64 = 2.0 * 1_048_576.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    cores: Spanned<i64>,
    clock_ghz: Spanned<f64>,
    llc_bytes: Spanned<f64>,
    inclusive: Option<bool>,
    l2_bytes: Option<Spanned<f64>>,
    private_in_use: Option<Spanned<f64>>,
    llc_ns: Option<Spanned<f64>>,
    memory_ns: Spanned<f64>,
    memory_gbs: Spanned<f64>,
    memory_queue_ns: Option<Spanned<f64>>,
    lines_in_flight: Option<Spanned<f64>>,
    turbo: Option<Spanned<Vec<f64>>>,
    #[serde(default)]
    replacement: Replacement,
}

/// Whether a text is of this form, rather than a machine file.
pub fn is_flat(text: &str) -> bool {
    toml::from_str::<toml::Table>(text).is_ok_and(|t| t.contains_key("cores") && !t.contains_key("topology"))
}

/// The machine described by a text, if it has this form.
pub fn of(text: &str) -> Option<Result<Machine, AppError>> {
    is_flat(text).then(|| parse(text))
}

/// Parses a machine; `docs/reference/mix.md` describes the keys.
///
/// # Errors
/// [`AppError`] gives line and column of malformed, unknown, missing or non-positive parts.
pub fn parse(text: &str) -> Result<Machine, AppError> {
    let f: File = toml::from_str(text).map_err(|e| AppError::of_toml(text, &e))?;
    let cores = *f.cores.get_ref();
    if !(1..=MAX_CORES).contains(&cores) {
        let why = format!("cores is {cores}; it must be from 1 to {MAX_CORES}");
        return Err(AppError::at(text, f.cores.span().start, why));
    }
    let figures = [
        ("clock_ghz", Some(&f.clock_ghz)),
        ("llc_bytes", Some(&f.llc_bytes)),
        ("l2_bytes", f.l2_bytes.as_ref()),
        ("private_in_use", f.private_in_use.as_ref()),
        ("llc_ns", f.llc_ns.as_ref()),
        ("memory_ns", Some(&f.memory_ns)),
        ("memory_gbs", Some(&f.memory_gbs)),
        ("memory_queue_ns", f.memory_queue_ns.as_ref()),
        ("lines_in_flight", f.lines_in_flight.as_ref()),
    ];
    for (key, value) in figures {
        if key == "private_in_use" {
            given(SIMULATOR, key, value, (0.0, 1.0)).map_err(|(at, why)| AppError::at(text, at, why))?;
        } else if let Some(v) = value.filter(|v| !(v.get_ref().is_finite() && *v.get_ref() > 0.0)) {
            let why = format!("{key} is {}; it must be a number above 0", v.get_ref());
            return Err(AppError::at(text, v.span().start, why));
        }
    }
    let inclusive = f.inclusive.unwrap_or(*f.llc_bytes.get_ref() >= INCLUSIVE_FROM * cores as f64);
    let replacement = if f.replacement == Replacement::Lru { "lru" } else { "random" };
    let (name, clock_hz) = (toml::Value::String(f.name), f.clock_ghz.get_ref() * 1e9);
    let mut full = format!(
        "name = {name}\ndescription = 'some cores with one last-level cache and one memory'\nsource = 'the user'\n\
         clock_hz = {clock_hz:?}\ntopology = {{ synthetic = 'package:1 [numa] l3:1 core:{cores} pu:1' }}\n\
         [simulator]\ninclusive = {inclusive}\nreplacement = '{replacement}'\n"
    );
    for (key, value) in &figures[1..] {
        full += &value.map_or_else(String::new, |value| format!("{key} = {:?}\n", value.get_ref()));
    }
    if let Some(turbo) = &f.turbo {
        let _ = writeln!(full, "turbo = {}", toml::Value::from(turbo.get_ref().clone()));
    }
    Machine::parse(&full).map_err(|e| AppError::at(text, 0, e.to_string()))
}
