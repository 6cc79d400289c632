//! Contentious regions of a program's code, found by `cotenant regions` and slowed down by `cotenant cc` (Tang, §5.2.2
//! and §5.3). `docs/reference/regions.md` describes the file.

pub mod found;
pub mod sampled;

use crate::parse::Located;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use toml::Spanned;

/// Score above which Tang slows a region (§5.4.4).
pub const MIN_SCORE: f64 = 0.3;

/// Coverage above which a region pays. The dissertation has such a threshold without its value; ours.
pub const MIN_COVERAGE: f64 = 0.01;

/// A piece of source code and its effect on others.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// Its function: as in the source, with namespaces and parameters (`ns::f(int)`), or by its linker name.
    pub function: Option<String>,
    /// Its source file, or the end of the path.
    pub file: Option<String>,
    /// First and last line, from 1; `None` = the whole function.
    pub lines: Option<(u32, u32)>,
    /// Contentiousness by the model of §5.2, at least 0: the loss of its co-runners.
    pub score: f64,
    /// Fraction of the program's execution time, 0–1.
    pub coverage: f64,
}

impl Region {
    /// Whether it is above both thresholds (Algorithm 2, line 3).
    pub fn is_worth(&self, min_score: f64, min_coverage: f64) -> bool {
        self.score > min_score && self.coverage > min_coverage
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    region: Vec<Spanned<Table>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    function: Option<String>,
    file: Option<String>,
    lines: Option<Spanned<[u32; 2]>>,
    score: Spanned<f64>,
    coverage: Spanned<f64>,
}

/// Reads a region file.
///
/// # Errors
/// The first fault, with its place.
pub fn parse(text: &str) -> Result<Vec<Region>, Located> {
    let at = |offset, message: String| Located::at(text, offset, message);
    let file: File = toml::from_str(text).map_err(|e| Located::of_toml(text, &e))?;
    let mut regions = Vec::with_capacity(file.region.len());
    for table in file.region {
        let place = table.span().start;
        let Table { function, file, lines, score, coverage } = table.into_inner();
        let some = |text: &Option<String>| text.as_ref().is_some_and(|t| !t.is_empty());
        if !(some(&function) || some(&file) && lines.is_some()) {
            return Err(at(place, "a region needs a function, or a file and lines".to_owned()));
        }
        if let Some(lines) = &lines {
            let [first, last] = *lines.get_ref();
            if first == 0 || last < first {
                return Err(at(
                    lines.span().start,
                    format!("lines [{first}, {last}] are none; give first and last, from 1"),
                ));
            }
        }
        if !(score.get_ref().is_finite() && *score.get_ref() >= 0.0) {
            return Err(at(score.span().start, "score is a number from 0".to_owned()));
        }
        if !(0.0..=1.0).contains(coverage.get_ref()) {
            return Err(at(coverage.span().start, "coverage is a share from 0 to 1".to_owned()));
        }
        regions.push(Region {
            function: function.filter(|t| !t.is_empty()),
            file: file.filter(|t| !t.is_empty()),
            lines: lines.map(|lines| lines.into_inner().into()),
            score: score.into_inner(),
            coverage: coverage.into_inner(),
        });
    }
    Ok(regions)
}

/// Writes a region file that [`parse`] reads back as the same.
pub fn write(regions: &[Region]) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let mut file = String::new();
    for region in regions {
        let _ = writeln!(file, "[[region]]");
        for (key, text) in [("function", &region.function), ("file", &region.file)] {
            if let Some(text) = text {
                let _ = writeln!(file, "{key} = {}", quoted(text));
            }
        }
        if let Some((first, last)) = region.lines {
            let _ = writeln!(file, "lines = [{first}, {last}]");
        }
        let _ = writeln!(file, "score = {:?}\ncoverage = {:?}\n", region.score, region.coverage);
    }
    file
}

/// Worthwhile regions in the compiler pass's format: JSON.
pub fn for_pass(regions: &[Region], min_score: f64, min_coverage: f64) -> String {
    #[derive(Serialize)]
    struct Place<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        function: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        first: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        last: Option<u32>,
    }
    let worth = regions.iter().filter(|region| region.is_worth(min_score, min_coverage));
    let places: Vec<Place> = worth
        .map(|r| Place {
            function: r.function.as_deref(),
            file: r.file.as_deref(),
            first: r.lines.map(|(first, _)| first),
            last: r.lines.map(|(_, last)| last),
        })
        .collect();
    serde_json::json!(places).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_says_what_it_says() {
        let text = "\
[[region]]
function = \"LBM_performStreamCollide\"
file = \"lbm.c\"
lines = [186, 274]
score = 0.83
coverage = 0.97
[[region]]
function = \"ns::f(int)\"
score = 0.3
coverage = 0.5
[[region]]
file = \"src/a.c\"
lines = [7, 7]
score = 0.9
coverage = 0.01
";
        let regions = parse(text).unwrap();
        assert_eq!(regions.len(), 3);
        assert_eq!((regions[0].lines, regions[0].score), (Some((186, 274)), 0.83));
        // Above, not at: the second has the score 0.3, the third the coverage 0.01.
        assert_eq!(
            for_pass(&regions, MIN_SCORE, MIN_COVERAGE),
            r#"[{"file":"lbm.c","first":186,"function":"LBM_performStreamCollide","last":274}]"#
        );
        assert_eq!(
            for_pass(&regions, 0.29, 0.0),
            r#"[{"file":"lbm.c","first":186,"function":"LBM_performStreamCollide","last":274},{"function":"ns::f(int)"},{"file":"src/a.c","first":7,"last":7}]"#
        );
        assert_eq!(parse("").unwrap(), []);
    }

    /// Holds compile/regions.
    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, message) in [
            ("[[region]]\nscore = 1\ncoverage = 1\n", "1:1: a region needs a function, or a file and lines"),
            (
                "[[region]]\nfile = 'a.c'\nscore = 1\ncoverage = 1\n",
                "1:1: a region needs a function, or a file and lines",
            ),
            ("[[region]]\nfunction = 'f'\ncoverage = 1\n", "missing field `score`"),
            ("[[region]]\nfunction = 'f'\nscore = -1\ncoverage = 1\n", "3:9: score is a number from 0"),
            ("[[region]]\nfunction = 'f'\nscore = nan\ncoverage = 1\n", "3:9: score is a number from 0"),
            ("[[region]]\nfunction = 'f'\nscore = 1\ncoverage = 1.5\n", "4:12: coverage is a share"),
            ("[[region]]\nfunction = 'f'\nlines = [5, 4]\nscore = 1\ncoverage = 1\n", "3:9: lines [5, 4] are none"),
            ("[[region]]\nfunction = 'f'\nline = 5\nscore = 1\ncoverage = 1\n", "3:1: unknown field `line`"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(message) && !error.contains('\n'), "{text}: {error}");
        }
    }

    fn region() -> impl Strategy<Value = Region> {
        let lines = (1u32..1000, 0u32..100).prop_map(|(first, more)| (first, first + more));
        (prop::option::of(".{1,20}"), prop::option::of(".{1,20}"), prop::option::of(lines), 0.0f64..9.0, 0.0f64..=1.0)
            .prop_map(|(function, file, lines, score, coverage)| Region { function, file, lines, score, coverage })
            .prop_filter("names something", |r| r.function.is_some() || (r.file.is_some() && r.lines.is_some()))
    }

    proptest! {
        /// Holds compile/regions.
        #[test]
        fn what_is_written_is_read_back(regions in prop::collection::vec(region(), 0..5)) {
            prop_assert_eq!(parse(&write(&regions)).unwrap(), regions);
        }
    }
}
