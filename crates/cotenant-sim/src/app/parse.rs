//! Programs as TOML, with errors that name the place.

use super::{ASSUMABLE, Curve, Pages, Phase, Program};
use cotenant_model::parse::{position, toml_message};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use toml::Spanned;

/// Why a text with programs or a scenario was rejected, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct AppError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what was expected.
    pub message: String,
}

impl AppError {
    pub(crate) fn at(text: &str, offset: usize, message: impl Into<String>) -> Self {
        let (line, column) = position(text, offset);
        Self { line, column, message: message.into() }
    }

    pub(crate) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let message = toml_message(text, error);
        let message =
            message.replace("expected f64", "expected a number").replace("expected i64", "expected a whole number");
        Self::at(text, error.span().map_or(0, |s| s.start), message)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Of every program here.
    #[serde(default)]
    assumed: Vec<Spanned<String>>,
    #[serde(default)]
    program: BTreeMap<String, Spanned<ProgramTable>>,
}

type Number = Spanned<f64>;

/// A program; without a `phase` its own figures are its only phase.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramTable {
    instructions: Option<Number>,
    cpi: Option<Number>,
    llc_apki: Option<Number>,
    llc_mlp: Option<Number>,
    mlp: Option<Number>,
    footprint_bytes: Option<Number>,
    writeback_ratio: Option<Number>,
    miss_ratio: Option<Spanned<Vec<(f64, f64)>>>,
    private_bytes: Option<Number>,
    prefetched: Option<Number>,
    row_locality: Option<Number>,
    coherence_pki: Option<Number>,
    #[serde(default)]
    phase: Vec<Spanned<ProgramTable>>,
    shared: Option<Number>,
    #[serde(default)]
    barrier: bool,
    pages: Option<Spanned<PagesTable>>,
    #[serde(default)]
    huge_pages: bool,
    contended_lines: Option<Number>,
    threads_anew: Option<Number>,
    #[serde(default)]
    assumed: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected \"first-touch\", \"first-thread\", \"interleave\", or one share per memory node such as [0.5, 0.5]"
)]
enum PagesTable {
    Name(Policy),
    Shares(Vec<f64>),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Policy {
    FirstTouch,
    FirstThread,
    Interleave,
}

/// The fault, and its offset in the text.
pub(crate) type Fault = (usize, String);

/// The value, if it lies in the range.
pub(crate) fn number(
    name: &str,
    key: &str,
    value: Option<&Number>,
    default: Option<f64>,
    (low, high): (f64, f64),
    here: usize,
) -> Result<f64, Fault> {
    let Some(value) = value else {
        return default.ok_or_else(|| (here, format!("{name} lacks {key}; give it")));
    };
    let v = *value.get_ref();
    if v.is_finite() && (low..=high).contains(&v) {
        return Ok(v);
    }
    let range = match (low > 0.0, high < f64::MAX) {
        (true, true) if low <= f64::MIN_POSITIVE => format!("above 0 and at most {high}"),
        (_, true) => format!("between {low} and {high}"),
        (true, _) if v == f64::INFINITY => "finite".to_owned(),
        (true, _) if low >= 1.0 => "at least 1".to_owned(),
        (true, _) => "above 0".to_owned(),
        (false, _) => "finite and not negative".to_owned(),
    };
    Err((value.span().start, format!("{key} of {name} is {v}; it must be {range}")))
}

/// What figures of a machine's simulated part belong to, in messages.
pub(crate) const SIMULATOR: &str = "the simulator";

/// The value, if it exists and is in the range.
pub(crate) fn given(name: &str, key: &str, value: Option<&Number>, range: (f64, f64)) -> Result<Option<f64>, Fault> {
    value.map(|value| number(name, key, Some(value), None, range, 0)).transpose()
}

pub(crate) const POSITIVE: (f64, f64) = (f64::MIN_POSITIVE, f64::MAX);
const NOT_NEGATIVE: (f64, f64) = (0.0, f64::MAX);
const AT_LEAST_1: (f64, f64) = (1.0, f64::MAX);
const SHARE: (f64, f64) = (0.0, 1.0);

impl ProgramTable {
    pub(crate) fn into_program(self, name: &str, here: usize) -> Result<Program, Fault> {
        let name = &format!("program {name}");
        let shared = number(name, "shared", self.shared.as_ref(), Some(0.0), SHARE, here)?;
        let sound = |s: &[f64]| s.iter().all(|v| (0.0..=1.0).contains(v)) && (s.iter().sum::<f64>() - 1.0).abs() < 1e-6;
        let pages = match self.pages.as_ref().map(|pages| (pages.span().start, pages.get_ref())) {
            None | Some((_, PagesTable::Name(Policy::FirstTouch))) => Pages::FirstTouch,
            Some((_, PagesTable::Name(Policy::FirstThread))) => Pages::FirstThread,
            Some((_, PagesTable::Name(Policy::Interleave))) => Pages::Interleave,
            Some((_, PagesTable::Shares(parts))) if sound(parts) => Pages::Fixed(parts.clone()),
            Some((at, _)) => return Err((at, format!("pages of {name} must be shares that sum to 1"))),
        };
        let contended_lines = given(name, "contended_lines", self.contended_lines.as_ref(), AT_LEAST_1)?;
        let threads_anew = given(name, "threads_anew", self.threads_anew.as_ref(), POSITIVE)?;
        let barrier = self.barrier;
        let phases = if self.phase.is_empty() {
            vec![self.phase_of(name, here)?]
        } else if self.cpi.is_some() {
            return Err((here, format!("{name} has figures of its own and phases; move them into the phases")));
        } else {
            let one = |p: Spanned<Self>| {
                let at = p.span().start;
                p.into_inner().phase_of(name, at)
            };
            self.phase.into_iter().map(one).collect::<Result<Vec<_>, _>>()?
        };
        if phases.len() > 1 && phases.iter().any(|p| p.instructions.is_none()) {
            return Err((here, format!("{name} has several phases; each needs its instructions")));
        }
        let assumed = self.assumed.into_iter().map(assumable).collect::<Result<_, _>>()?;
        let huge_pages = self.huge_pages;
        Ok(Program { phases, shared, barrier, pages, huge_pages, contended_lines, threads_anew, assumed })
    }

    fn phase_of(&self, name: &str, here: usize) -> Result<Phase, Fault> {
        let get = |key, value: &Option<Number>, default, range| number(name, key, value.as_ref(), default, range, here);
        let instructions = given(name, "instructions", self.instructions.as_ref(), POSITIVE)?;
        let private_bytes = given(name, "private_bytes", self.private_bytes.as_ref(), NOT_NEGATIVE)?;
        let points = self.miss_ratio.as_ref().ok_or_else(|| (here, format!("{name} lacks miss_ratio; give it")))?;
        let miss_ratio = Curve::new(points.get_ref().clone()).ok_or_else(|| {
            let what = "must be points [bytes, ratio] whose bytes rise from above 0 and whose ratios lie in 0 to 1 and do not rise";
            (points.span().start, format!("miss_ratio of {name} {what}"))
        })?;
        Ok(Phase {
            instructions,
            cpi: get("cpi", &self.cpi, None, POSITIVE)?,
            llc_apki: get("llc_apki", &self.llc_apki, None, NOT_NEGATIVE)?,
            llc_mlp: get("llc_mlp", &self.llc_mlp, Some(1.0), AT_LEAST_1)?,
            mlp: get("mlp", &self.mlp, Some(1.0), AT_LEAST_1)?,
            footprint_bytes: get("footprint_bytes", &self.footprint_bytes, None, POSITIVE)?,
            writeback_ratio: get("writeback_ratio", &self.writeback_ratio, Some(0.0), NOT_NEGATIVE)?,
            miss_ratio,
            private_bytes,
            prefetched: get("prefetched", &self.prefetched, Some(0.0), SHARE)?,
            row_locality: get("row_locality", &self.row_locality, Some(0.5), SHARE)?,
            coherence_pki: get("coherence_pki", &self.coherence_pki, Some(0.0), NOT_NEGATIVE)?,
        })
    }
}

fn assumable(key: Spanned<String>) -> Result<String, Fault> {
    if ASSUMABLE.contains(&key.get_ref().as_str()) {
        return Ok(key.into_inner());
    }
    Err((key.span().start, format!("assumed names a key that is none of {}", ASSUMABLE.join(", "))))
}

/// Reads programs: one table `[program.NAME]` each; `docs/reference/scenario.md` describes the keys.
///
/// # Errors
/// [`AppError`] gives line and column of malformed, unknown, missing or out-of-range parts.
pub fn parse_programs(text: &str) -> Result<BTreeMap<String, Program>, AppError> {
    let file: File = toml::from_str(text).map_err(|e| AppError::of_toml(text, &e))?;
    let of_all = file.assumed.into_iter().map(assumable).collect::<Result<Vec<_>, _>>();
    let read = of_all.and_then(|of_all| {
        let mut all = programs(file.program)?;
        for program in all.values_mut() {
            program.assumed.extend(of_all.iter().cloned());
        }
        Ok(all)
    });
    read.map_err(|(offset, message)| AppError::at(text, offset, message))
}

pub(crate) fn programs(tables: BTreeMap<String, Spanned<ProgramTable>>) -> Result<BTreeMap<String, Program>, Fault> {
    let one = |(name, table): (String, Spanned<ProgramTable>)| {
        let at = table.span().start;
        let program = table.into_inner().into_program(&name, at)?;
        Ok((name, program))
    };
    tables.into_iter().map(one).collect()
}

/// A file of `workloads/`; the folder of that name next to `src` links to it, so that this package is complete.
macro_rules! workload {
    ($name:literal) => {
        include_str!(concat!("../../workloads/", $name, ".toml"))
    };
}

static EMBEDDED: LazyLock<BTreeMap<String, Program>> = LazyLock::new(|| {
    read(&[workload!("spec-cpu2000"), SPEC_CPU2006, workload!("kernels"), SHARING, workload!("services")])
});

static SUITES: LazyLock<BTreeMap<String, Program>> = LazyLock::new(|| read(&[PARALLEL, workload!("smashbench")]));

/// `workloads/spec-cpu2006.toml`.
pub const SPEC_CPU2006: &str = workload!("spec-cpu2006");
/// `workloads/sharing.toml`.
pub const SHARING: &str = workload!("sharing");
/// `workloads/parsec-npb.toml`.
pub const PARALLEL: &str = workload!("parsec-npb");

fn read(files: &[&str]) -> BTreeMap<String, Program> {
    files.iter().flat_map(|text| parse_programs(text).expect("a file of the binary itself; a test reads it")).collect()
}

/// The programs of `workloads/` that calibrate machines.
pub fn embedded() -> &'static BTreeMap<String, Program> {
    &EMBEDDED
}

/// A program of `workloads/`: of [`embedded`], or of the suites that calibrate no machine.
pub fn known(name: &str) -> Option<&'static Program> {
    EMBEDDED.get(name).or_else(|| SUITES.get(name))
}

/// The names of all of them.
pub fn known_names() -> impl Iterator<Item = &'static String> {
    EMBEDDED.keys().chain(SUITES.keys())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "[program.a]\ncpi = 1\nllc_apki = 10\nfootprint_bytes = 2e6\nmiss_ratio = [[1e6, 0.5], [2e6, 0.0]]\n";

    #[test]
    fn the_binary_carries_what_sams_evaluation_needs() {
        let names =
            ["mcf06", "art00", "hubench", "lubench", "membench", "membench-low", "cpu", "sgd", "tunkrank", "canneal"];
        assert!(names.iter().all(|name| embedded().contains_key(*name)), "{:?}", embedded().keys());
    }

    #[test]
    fn the_suites_are_complete_and_named_once() {
        let parsec = "blackscholes bodytrack canneal dedup facesim ferret fluidanimate freqmine raytrace streamcluster swaptions vips";
        let npb = "is dc sp lu ft cg mg ep ua";
        assert!(parsec.split(' ').chain(npb.split(' ')).all(|name| known(name).is_some()));
        assert!(known("bst-4mb").is_some() && known("inject-memory").is_some());
        let twice: Vec<&String> = SUITES.keys().filter(|name| EMBEDDED.contains_key(*name)).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn errors_name_the_place() {
        assert_eq!(parse_programs(GOOD).unwrap()["a"].phases[0].mlp, 1.0);
        for (from, to, message) in [
            ("cpi = 1", "cpi = -1", "2:7: cpi of program a is -1; it must be above 0"),
            ("cpi = 1", "cpi = nan", "2:7: cpi of program a is NaN; it must be above 0"),
            ("= 10", "= inf", "3:12: llc_apki of program a is inf; it must be finite and not negative"),
            ("cpi = 1\n", "", "1:1: program a lacks cpi; give it"),
            (
                "cpi = 1",
                "cpi = 1\nassumed = ['mlp', 'speed']",
                "3:19: assumed names a key that is none of cpi, llc_apki, llc_mlp, mlp, footprint_bytes, writeback_ratio, coherence_pki, shared",
            ),
            (
                "0.5]",
                "1.5]",
                "5:14: miss_ratio of program a must be points [bytes, ratio] whose bytes rise from above 0 and whose ratios lie in 0 to 1 and do not rise",
            ),
        ] {
            let text = GOOD.replace(from, to);
            assert_eq!(parse_programs(&text).unwrap_err().to_string(), message, "{text}");
        }
        assert!(
            parse_programs(&GOOD.replace("cpi", "cip"))
                .unwrap_err()
                .to_string()
                .starts_with("2:1: unknown field `cip`")
        );
    }
}
