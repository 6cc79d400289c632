//! Our options among those of clang.

use anyhow::Result;
use cotenant_cli::messages::tell;
use cotenant_cli::usage;
use cotenant_linux::given;
use cotenant_model::region;
use cotenant_setup::units;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

const OWN: &str = "--cotenant-";

/// The system limits a variable to 128 KiB.
const MOST_REGIONS: usize = 100_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Markers,
    Naps,
    Padding,
    Off,
}

/// The user's options.
#[derive(Debug, Default)]
pub struct Options {
    pub mode: Mode,
    regions: Option<PathBuf>,
    min_score: Option<f64>,
    min_coverage: Option<f64>,
    coverage: Option<f64>,
    granularity: Option<String>,
    duration: Option<Duration>,
    thickness: Option<u32>,
    pub clang_path: Option<PathBuf>,
    pub plugin: Option<PathBuf>,
    /// Everything else.
    pub clang: Vec<OsString>,
}

impl Options {
    /// Takes our options out of the environment's words and the command line's, which go first.
    pub fn parse(environment: Option<&str>, args: impl Iterator<Item = OsString>) -> Result<Self> {
        let mut words = Self::default();
        for word in environment.unwrap_or_default().split_ascii_whitespace() {
            let option = word.strip_prefix(OWN).ok_or_else(|| {
                usage(format!(
                    "COTENANT_CC: '{word}' is not an option of ours; it holds options such as \
                               {OWN}mode=naps"
                ))
            })?;
            words.set(option)?;
        }
        for arg in args {
            match arg.to_str().and_then(|word| word.strip_prefix(OWN)) {
                Some(option) => words.set(option)?,
                None => words.clang.push(arg),
            }
        }
        words.check()?;
        Ok(words)
    }

    fn set(&mut self, option: &str) -> Result<()> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let wrong = |expected: &str| usage(format!("{OWN}{key}={value} is not known; give {expected}"));
        let share =
            || value.parse().ok().filter(|x| (0.0..=1.0).contains(x)).ok_or_else(|| wrong("a number from 0 to 1"));
        let path = || if value.is_empty() { Err(wrong("a path")) } else { Ok(PathBuf::from(value)) };
        match key {
            "mode" => {
                self.mode = match value {
                    "markers" => Mode::Markers,
                    "naps" => Mode::Naps,
                    "padding" => Mode::Padding,
                    "off" => Mode::Off,
                    _ => return Err(wrong("markers, naps, padding or off")),
                }
            }
            "regions" => self.regions = Some(path()?),
            "min-score" => {
                let score = value.parse().ok().filter(|x: &f64| *x >= 0.0 && x.is_finite());
                self.min_score = Some(score.ok_or_else(|| wrong("a number from 0"))?);
            }
            "min-coverage" => self.min_coverage = Some(share()?),
            "coverage" => self.coverage = Some(share()?),
            "granularity" => self.granularity = Some(value.to_owned()),
            "duration" => {
                let duration = units::duration(value).ok().filter(|d| !d.is_zero() && *d <= Duration::from_secs(60));
                self.duration = Some(duration.ok_or_else(|| wrong("a time up to 60s, as in 20ms"))?);
            }
            "thickness" => {
                let nops = value.parse().ok().filter(|n| (1..=4096).contains(n));
                self.thickness = Some(nops.ok_or_else(|| wrong("a number from 1 to 4096"))?);
            }
            "clang" => self.clang_path = Some(path()?),
            "plugin" => self.plugin = Some(path()?),
            _ => return Err(usage(format!("{OWN}{key} is not an option; `cotenant help cc` lists them"))),
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let Some(text) = &self.granularity else { return Ok(()) };
        let wrong = |expected| Err(usage(format!("{OWN}granularity={text} is not known; give {expected}")));
        match self.mode {
            Mode::Naps if self.granularity_ns().is_none() => wrong("a time from 100us to 60s, as in 10ms"),
            Mode::Padding if self.every().is_none() => wrong("a number of instructions from 1 to 1000000"),
            _ => Ok(()),
        }
    }

    fn granularity_ns(&self) -> Option<u128> {
        let time = units::duration(self.granularity.as_deref()?).ok()?;
        (Duration::from_micros(100)..=Duration::from_secs(60)).contains(&time).then_some(time.as_nanos())
    }

    /// Instructions between two places of padding.
    fn every(&self) -> Option<u32> {
        self.granularity.as_deref()?.parse().ok().filter(|n| (1..=1_000_000).contains(n))
    }

    /// The value of `COTENANT_PASS`.
    pub fn for_pass(&self) -> String {
        let coverage = self.coverage.map(|x| format!("coverage={x}"));
        let (mode, settings) = match self.mode {
            Mode::Naps => {
                let granularity = self.granularity_ns().map(|n| format!("granularity_ns={n}"));
                ("mode=naps", [granularity, self.duration.map(|d| format!("duration_ns={}", d.as_nanos()))])
            }
            Mode::Padding => {
                let every = self.every().map(|n| format!("every={n}"));
                ("mode=padding", [every, self.thickness.map(|n| format!("thickness={n}"))])
            }
            Mode::Markers | Mode::Off => ("mode=markers", [None, None]),
        };
        let words = [Some(mode.to_owned()), coverage].into_iter().chain(settings);
        words.flatten().collect::<Vec<_>>().join(" ")
    }

    /// The value of `COTENANT_PASS_REGIONS`.
    pub fn regions(&self) -> Result<Option<String>> {
        let Some(path) = &self.regions else { return Ok(None) };
        let text = given::text(path).map_err(|e| {
            usage(format!("{}: {e}; give a region file, see docs/reference/regions.md", path.display()))
        })?;
        let (json, warning) = self.of_file(path, &text)?;
        if let Some(warning) = warning {
            tell(format_args!("warning: {warning}"));
        }
        Ok(Some(json))
    }

    /// The same of a file's text, with a warning.
    pub fn of_file(&self, path: &Path, text: &str) -> Result<(String, Option<String>)> {
        let name = path.display();
        let regions = region::parse(text).map_err(|e| usage(format!("{name}:{e}")))?;
        let score = self.min_score.unwrap_or(region::MIN_SCORE);
        let coverage = self.min_coverage.unwrap_or(region::MIN_COVERAGE);
        let highest = regions.iter().max_by(|a, b| a.score.total_cmp(&b.score));
        let highest = highest.filter(|_| !regions.iter().any(|region| region.is_worth(score, coverage)));
        let warning = highest.map(|highest| {
            format!(
                "{name}: no region is above score {score} and coverage {coverage}, so no code is slowed \
                 down. The highest score is {:.3}, at a coverage of {:.3}: lower {OWN}min-score or {OWN}min-coverage",
                highest.score, highest.coverage
            )
        });
        let json = region::for_pass(&regions, score, coverage);
        if json.len() > MOST_REGIONS {
            return Err(usage(format!(
                "{name}: the regions above score {score} are too many for one compilation; raise {OWN}min-score or {OWN}min-coverage"
            )));
        }
        Ok((json, warning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(environment: Option<&str>, args: &str) -> Result<Options> {
        Options::parse(environment, args.split_ascii_whitespace().map(OsString::from))
    }

    #[test]
    fn ours_are_taken_out_and_the_rest_is_left() {
        let parsed = words(
            Some("--cotenant-mode=naps --cotenant-duration=5ms"),
            "-O2 --cotenant-granularity=1ms -c --cotenant-duration=2ms a.c -- b.c",
        )
        .unwrap();
        assert_eq!(parsed.clang, ["-O2", "-c", "a.c", "--", "b.c"]);
        assert_eq!(parsed.for_pass(), "mode=naps granularity_ns=1000000 duration_ns=2000000");
        let parsed = words(None, "--cotenant-mode=padding --cotenant-granularity=7 --cotenant-coverage=0.5").unwrap();
        assert_eq!(parsed.for_pass(), "mode=padding coverage=0.5 every=7");
        // The pass knows no sign.
        let parsed = words(None, "--cotenant-mode=padding --cotenant-granularity=+7 --cotenant-thickness=+3").unwrap();
        assert_eq!(parsed.for_pass(), "mode=padding every=7 thickness=3");
        assert_eq!(words(None, "").unwrap().for_pass(), "mode=markers");
    }

    #[test]
    fn wrong_options_are_named_with_a_remedy() {
        for (args, part) in [
            ("--cotenant-mode=sleep", "give markers, naps, padding or off"),
            ("--cotenant-colour=red", "`cotenant help cc` lists them"),
            ("--cotenant-coverage=2", "a number from 0 to 1"),
            ("--cotenant-mode=naps --cotenant-granularity=1us", "a time from 100us to 60s"),
            ("--cotenant-mode=padding --cotenant-granularity=1ms", "a number of instructions"),
            ("--cotenant-duration=0ms", "a time up to 60s"),
            ("--cotenant-regions=", "a path"),
        ] {
            let error = words(None, args).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{args}: {error}");
        }
        assert!(words(Some("-O2"), "").unwrap_err().to_string().starts_with("COTENANT_CC: '-O2'"));
    }
}
