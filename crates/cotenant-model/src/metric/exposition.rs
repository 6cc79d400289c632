//! Server answers: the text format of Prometheus (0.0.4, and 1.0.0 with names in quotes) and `OpenMetrics` (1.0), as
//! far as one series needs it.

use crate::Histogram;
use crate::histogram::Bucket;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr;

/// A time series: `name`, `name{label="value",…}` or, with any characters, `{"name",label="value",…}`. Unnamed labels
/// may have any value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    name: String,
    labels: Vec<(String, String)>,
}

/// A text that does not name a series.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' names no series; write NAME or NAME{{label=\"value\"}}")]
pub struct SelectorError(String);

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let error = || SelectorError(text.to_owned());
        let (name, labels, rest) = series(text.trim()).map_err(|_| error())?;
        if rest.is_empty() { Ok(Self { name: name.into_owned(), labels }) } else { Err(error()) }
    }
}

impl Selector {
    /// The name of the series or of its family.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it names one quantile of a summary.
    pub fn names_quantile(&self) -> bool {
        self.labels.iter().any(|(key, _)| key == "quantile")
    }

    /// An empty label equals a missing one.
    fn matches(&self, labels: &[(String, String)]) -> bool {
        let value = |key: &String| labels.iter().find(|label| label.0 == *key).map_or("", |label| label.1.as_str());
        self.labels.iter().all(|(key, wanted)| value(key) == wanted.as_str())
    }
}

/// Current value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Scraped {
    /// A plain value.
    Gauge(f64),
    /// A monotonic count.
    Counter(f64),
    /// Observations by size, since the server started.
    Histogram(Histogram),
}

/// Why an answer lacks the series.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeError {
    /// It is missing.
    #[error("the answer has no series '{name}'; {}", if .offers.is_empty() { "it has none at all".to_owned() } else { format!("it has {}", .offers) })]
    Absent {
        /// The name.
        name: String,
        /// The available names.
        offers: String,
    },
    /// It exists only with other labels.
    #[error("the answer has no series '{name}' with these labels; it has {offers}")]
    OtherLabels {
        /// The name.
        name: String,
        /// Series of that name.
        offers: String,
    },
    /// Several match.
    #[error("the answer has {count} series '{name}'; add labels until one is left: {offers}")]
    Several {
        /// The name.
        name: String,
        /// Their number.
        count: usize,
        /// Some of them.
        offers: String,
    },
    /// None was named, and some exist.
    #[error("the answer is not one number but has series; add #SERIES to the address, one of {0}")]
    Unnamed(String),
    /// A line is malformed.
    #[error(
        "line {line}, column {column} of the answer: expected {expected}, found {found}; check the address, or tell the \
         server's authors"
    )]
    Line {
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
        /// What the format has there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A histogram with contradictory buckets.
    #[error("the buckets of '{0}' do not add up; ask the server's authors")]
    Buckets(String),
    /// A histogram without its last bucket.
    #[error("'{0}' has no bucket le=\"+Inf\", so values above the others are unknown; ask the server's authors")]
    Open(String),
    /// Several histograms whose buckets have other bounds.
    #[error("the histograms '{name}' have buckets with different bounds; add labels until they are alike: {offers}")]
    Bounds {
        /// The name.
        name: String,
        /// Some of them.
        offers: String,
    },
    /// A histogram without buckets of fixed bounds.
    #[error(
        "'{0}' has no buckets with bounds in this answer: a native histogram has them in protobuf alone; let the server \
         offer classic buckets as well"
    )]
    Native(String),
}

/// Limit of listed names.
const LISTED: usize = 8;

/// Names of series and families in an answer, at most eight, those with the longest common beginning with `wanted`
/// first. Empty if it is not this format.
pub fn offers(answer: &str, wanted: &str) -> String {
    let kinds = kinds(answer);
    let mut names: Vec<String> = Vec::new();
    for (name, ..) in samples(answer) {
        let family = ["_bucket", "_sum", "_count"].iter().filter_map(|suffix| name.strip_suffix(suffix));
        let family = family.into_iter().find(|family| matches!(kinds.get(*family), Some(&"histogram" | &"summary")));
        let name = family.unwrap_or(&name);
        if names.last().is_none_or(|last| last != name) && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    let alike = |name: &str| name.bytes().zip(wanted.bytes()).take_while(|(a, b)| a == b).count();
    names.sort_by_key(|name| std::cmp::Reverse(alike(name)));
    listed(&names)
}

fn listed<T: AsRef<str>>(all: &[T]) -> String {
    let shown: Vec<&str> = all.iter().take(LISTED).map(AsRef::as_ref).collect();
    let more = all.len() - shown.len();
    shown.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// All series of one name in query form, without bounds of buckets.
fn with_labels(answer: &str, name: &str) -> String {
    let mut all: Vec<String> = Vec::new();
    for (_, labels, _) in samples(answer).filter(|(found, ..)| found == name) {
        let labels = labels.iter().filter(|(key, _)| key != "le").map(|(key, value)| format!("{key}={value:?}"));
        let text = format!("{{{}}}", labels.collect::<Vec<_>>().join(","));
        if !all.contains(&text) {
            all.push(text);
        }
    }
    listed(&all)
}

/// The samples of an answer, each up to its value.
fn samples(answer: &str) -> impl Iterator<Item = Series<'_>> {
    let lines = answer.lines().map(|line| line.trim_start_matches(BLANK)).filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| series(line).ok()).filter(|(.., rest)| point(rest).is_ok())
}

/// Finds the series in a server's answer. Counters and histograms of all matching label sets are summed; a gauge must
/// be alone.
///
/// # Errors
/// [`ScrapeError`]. Of lines of other series only the names are checked.
pub fn scrape(answer: &str, selector: &Selector) -> Result<Scraped, ScrapeError> {
    let name = selector.name();
    let kinds = checked_kinds(answer, name)?;
    let kind = kinds.get(name).copied();
    let family = |suffix: &str| name.strip_suffix(suffix).and_then(|family| kinds.get(family).copied());
    let part = |suffix: &str| matches!(family(suffix), Some("histogram" | "summary"));
    let is_counter = kind == Some("counter")
        || (kind.is_none() && (name.ends_with("_total") || part("_count") || part("_sum") || part("_bucket")));
    let wanted = match kind {
        Some("histogram") => format!("{name}_bucket"),
        _ => name.to_owned(),
    };
    let total = format!("{name}_total"); // a counter of OpenMetrics is named by its family
    let is_wanted = |found: &str| found == wanted || (is_counter && found == total);
    let is_histogram = kind == Some("histogram");
    let is_count = |found: &str| is_histogram && found.strip_prefix(name) == Some("_count");
    // By labels; of several points of one series, which OpenMetrics allows, the last one counts.
    let mut values: BTreeMap<Labels, f64> = BTreeMap::new();
    // By the labels besides the bound: upper bounds with cumulative counts.
    let mut buckets: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    let mut native = false;
    for (i, whole) in answer.lines().enumerate() {
        let line = whole.trim_start_matches(BLANK);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let malformed = |fault| malformed(i, whole, fault);
        // A name in braces is known once they are read.
        if !line.starts_with('{') {
            let (begins, after) = bare_name(line);
            if begins.is_empty() || begins.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(malformed((line, "a name")));
            }
            if !(after.is_empty() || after.starts_with(AFTER_NAME)) {
                return Err(malformed((after, "a blank or {")));
            }
            if is_histogram && begins == name && series(line).is_err() {
                native = true; // OpenMetrics 2.0 has all buckets in braces
                continue;
            }
            if !(is_wanted(begins) || is_count(begins)) {
                continue;
            }
        }
        let (found, mut labels, rest) = series(line).map_err(malformed)?;
        native |= is_count(&found);
        if !is_wanted(&found) {
            continue;
        }
        let value = point(rest).map_err(malformed)?;
        if !selector.matches(&labels) {
            continue;
        }
        if is_histogram {
            let le = labels.iter().position(|(key, _)| key == "le").map(|at| labels.remove(at).1);
            let le = le.and_then(|le| self::value(&le)).filter(|le| !le.is_nan());
            let le = le.ok_or_else(|| malformed((line, "a bucket with a bound, le=\"NUMBER\"")))?;
            labels.sort();
            buckets.entry(labels).or_default().push((le, value));
        } else {
            labels.sort();
            values.insert(labels, value);
        }
    }
    match (kind, values.len()) {
        (Some("histogram"), _) if !buckets.is_empty() => {
            let mut sets: Vec<Vec<(f64, f64)>> = buckets.into_values().collect();
            for set in &mut sets {
                set.sort_by(|a, b| a.0.total_cmp(&b.0));
                set.dedup_by(|later, kept| {
                    later.0 == kept.0 && {
                        kept.1 = later.1;
                        true
                    }
                });
            }
            let alike = sets.windows(2).all(|two| two[0].iter().map(|b| b.0).eq(two[1].iter().map(|b| b.0)));
            if !alike {
                return Err(ScrapeError::Bounds { name: name.to_owned(), offers: with_labels(answer, &wanted) });
            }
            if sets.iter().filter_map(|set| set.last()).any(|(high, _)| *high != f64::INFINITY) {
                return Err(ScrapeError::Open(name.to_owned()));
            }
            histogram(sets.concat()).map(Scraped::Histogram).ok_or_else(|| ScrapeError::Buckets(name.to_owned()))
        }
        (Some("histogram"), _) if native && with_labels(answer, &wanted).is_empty() => {
            Err(ScrapeError::Native(name.to_owned()))
        }
        (_, 0) => {
            let (name, offers) = (name.to_owned(), offers(answer, name));
            Err(match with_labels(answer, &wanted) {
                labels if labels.is_empty() => ScrapeError::Absent { name, offers },
                labels => ScrapeError::OtherLabels { name, offers: labels },
            })
        }
        _ if is_counter => Ok(Scraped::Counter(values.values().sum())),
        (_, 1) => Ok(Scraped::Gauge(values.into_values().sum())),
        (_, count) => Err(ScrapeError::Several { name: name.to_owned(), count, offers: with_labels(answer, &wanted) }),
    }
}

/// Converts upper bounds with cumulative counts to buckets with their own counts. Equal bounds come from several label
/// sets, and are summed.
fn histogram(mut cumulative: Vec<(f64, f64)>) -> Option<Histogram> {
    cumulative.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut before = (f64::NAN, 0.0);
    let mut buckets = Vec::with_capacity(cumulative.len());
    for alike in cumulative.chunk_by(|a, b| a.0 == b.0) {
        let (high, upto) = (alike[0].0, alike.iter().map(|(_, count)| count).sum::<f64>());
        // As in Prometheus, the first bucket starts at 0 unless it ends below.
        let first = if high < 0.0 { f64::NEG_INFINITY } else { 0.0 };
        let low = if before.0.is_nan() { first } else { before.0 };
        let count = upto - before.1;
        if !(0.0..1e18).contains(&count) {
            return None;
        }
        buckets.push(Bucket { low, high, count: count.round() as u64 });
        before = (high, upto);
    }
    Some(Histogram::new(buckets))
}

/// The kind of each family, from the lines `# TYPE name kind`; malformed ones are passed over.
fn kinds(answer: &str) -> BTreeMap<Cow<'_, str>, &str> {
    answer.lines().filter_map(|line| kind(line).ok()?).collect()
}

/// The same, with errors: a family without its kind would be read as another one. Of families that cannot have the
/// series `wanted` the kind may be any word.
fn checked_kinds<'a>(answer: &'a str, wanted: &str) -> Result<BTreeMap<Cow<'a, str>, &'a str>, ScrapeError> {
    let is_open = answer.trim_end().rsplit('\n').next() == Some("# EOF");
    let mut kinds = BTreeMap::new();
    for (i, line) in answer.lines().enumerate() {
        let malformed = |fault| malformed(i, line, fault);
        if is_open && let Some(comment) = line.trim_start_matches(BLANK).strip_prefix('#') {
            let word = comment.trim_start_matches(BLANK).split(BLANK).next();
            if !matches!(word, Some("TYPE" | "HELP" | "UNIT" | "EOF")) {
                return Err(malformed((comment, "TYPE, HELP, UNIT or EOF, the comments of OpenMetrics")));
            }
        }
        let Some((name, kind)) = kind(line).map_err(malformed)? else { continue };
        let concerns = wanted.starts_with(&*name);
        if concerns && !KINDS.contains(&kind) {
            return Err(malformed((kind, "a kind, such as counter, gauge or histogram")));
        }
        let before = kinds.insert(name, kind);
        if concerns && before.is_some_and(|before| before != kind) {
            return Err(malformed((line, "one kind for each name, which has another one above")));
        }
    }
    Ok(kinds)
}

const KINDS: [&str; 9] =
    ["counter", "gauge", "histogram", "gaugehistogram", "stateset", "info", "summary", "unknown", "untyped"];

/// Between words.
const BLANK: [char; 2] = [' ', '\t'];

/// What may follow a name.
const AFTER_NAME: [char; 3] = [' ', '\t', '{'];

/// Where a line leaves the format (its rest from there), and what the format has in that place.
type Fault<'a> = (&'a str, &'static str);

/// `rest` is a part of `text` up to its end.
fn malformed(line: usize, text: &str, (rest, expected): Fault<'_>) -> ScrapeError {
    const SHOWN: usize = 40;
    let before = rest.as_ptr() as usize - text.as_ptr() as usize;
    let found: String = rest.chars().take(SHOWN).collect();
    ScrapeError::Line {
        line: line + 1,
        column: text[..before].chars().count() + 1,
        expected,
        found: if found.is_empty() { "the end of the line".to_owned() } else { format!("{found:?}") },
    }
}

/// Of a line `# TYPE name kind`; `None` of others.
fn kind(line: &str) -> Result<Option<(Cow<'_, str>, &str)>, Fault<'_>> {
    let comment = line.trim_start_matches(BLANK).strip_prefix('#');
    let Some(rest) = comment.and_then(|rest| rest.trim_start_matches(BLANK).strip_prefix("TYPE")) else {
        return Ok(None);
    };
    if !(rest.is_empty() || rest.starts_with(BLANK)) {
        return Ok(None);
    }
    let named = rest.trim_start_matches(BLANK);
    let (name, rest) = if let Some((name, rest)) = quoted(named)? {
        (Cow::Owned(name), rest)
    } else {
        let (name, rest) = bare_name(named);
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err((named, "a name"));
        }
        (Cow::Borrowed(name), rest)
    };
    if !rest.starts_with(BLANK) {
        return Err((rest, "a blank and the kind"));
    }
    Ok(Some((name, rest.trim_matches(BLANK))))
}

/// A number of the format: also `+Inf`, `-Inf`, `NaN`.
fn value(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| !(value.is_nan() && text.starts_with(['+', '-'])))
}

/// A word and its rest.
fn word(text: &str) -> (&str, &str) {
    text.split_at(text.find(BLANK).unwrap_or(text.len()))
}

/// A value, and what may follow it: a time stamp, and in `OpenMetrics` an exemplar.
fn point(text: &str) -> Result<f64, Fault<'_>> {
    let text = text.trim_end_matches(BLANK);
    let (first, rest) = word(text);
    let read = value(first).ok_or((text, "a value"))?;
    let rest = behind_stamp(rest);
    let Some(exemplar) = rest.strip_prefix("# {") else {
        return if rest.is_empty() { Ok(read) } else { Err((rest, "a time stamp and nothing else")) };
    };
    let (_, point) = braces(exemplar, &mut Some(Cow::Borrowed("")))?;
    let point = point.trim_start_matches(BLANK);
    let (first, rest) = word(point);
    value(first).ok_or((point, "the exemplar's value"))?;
    let rest = behind_stamp(rest);
    if rest.is_empty() { Ok(read) } else { Err((rest, "the exemplar's time stamp and nothing else")) }
}

/// What follows a time stamp, if there is one.
fn behind_stamp(text: &str) -> &str {
    let text = text.trim_start_matches(BLANK);
    let (time, rest) = word(text);
    let is_time = time.contains(|c: char| c.is_ascii_digit()) && value(time).is_some();
    if is_time { rest.trim_start_matches(BLANK) } else { text }
}

/// Names and values.
type Labels = Vec<(String, String)>;

/// A name, its labels, and the rest.
type Series<'a> = (Cow<'a, str>, Labels, &'a str);

/// A name without quotes, and the rest.
fn bare_name(text: &str) -> (&str, &str) {
    text.split_at(
        text.bytes().position(|b| !(b.is_ascii_alphanumeric() || b == b'_' || b == b':')).unwrap_or(text.len()),
    )
}

/// `name{label="value",…} rest`, or with names in quotes `{"name","label"="value",…} rest`.
fn series(text: &str) -> Result<Series<'_>, Fault<'_>> {
    let (bare, rest) = bare_name(text);
    if bare.starts_with(|c: char| c.is_ascii_digit()) {
        return Err((text, "a name"));
    }
    let mut name = (!bare.is_empty()).then_some(Cow::Borrowed(bare));
    let after = rest.trim_start_matches(BLANK);
    let (labels, rest) = match after.strip_prefix('{') {
        Some(inside) => braces(inside, &mut name)?,
        None if rest.is_empty() || rest.starts_with(BLANK) => (Labels::new(), rest),
        None => return Err((rest, "a blank or {")),
    };
    Ok((name.ok_or((text, "a name"))?, labels, rest.trim_start_matches(BLANK)))
}

/// Labels up to the closing brace, and the rest. A name in quotes without a value is that of the series.
fn braces<'a>(inside: &'a str, name: &mut Option<Cow<'_, str>>) -> Result<(Labels, &'a str), Fault<'a>> {
    let mut rest = inside.trim_start_matches(BLANK);
    let mut labels = Labels::new();
    while !rest.starts_with('}') {
        let (key, is_quoted, after) = if let Some((key, after)) = quoted(rest)? {
            (key, true, after)
        } else {
            let (key, after) = bare_name(rest);
            if let Some(colon) = key.find(':') {
                return Err((&rest[colon..], "="));
            }
            (key.to_owned(), false, after)
        };
        if key.is_empty() || (!is_quoted && key.starts_with(|c: char| c.is_ascii_digit())) {
            return Err((rest, "a label or }"));
        }
        let after = after.trim_start_matches(BLANK);
        if let Some(value) = after.strip_prefix('=') {
            let value = value.trim_start_matches(BLANK);
            let (value, after) = quoted(value)?.ok_or((value, "a label's value in quotes"))?;
            if labels.iter().any(|(known, _)| *known == key) {
                return Err((rest, "each label once"));
            }
            labels.push((key, value));
            rest = after.trim_start_matches(BLANK);
        } else if name.is_none() && is_quoted {
            (*name, rest) = (Some(Cow::Owned(key)), after);
        } else {
            return Err((after, "="));
        }
        match rest.strip_prefix(',') {
            Some(more) => rest = more.trim_start_matches(BLANK),
            None if rest.starts_with('}') => {}
            None => return Err((rest, ", or }")),
        }
    }
    Ok((labels, &rest[1..]))
}

/// A quoted value with `\\`, `\"` and `\n`, and the rest; `None` without quotes.
fn quoted(text: &str) -> Result<Option<(String, &str)>, Fault<'_>> {
    let Some(inside) = text.strip_prefix('"') else { return Ok(None) };
    let mut value = String::new();
    let mut chars = inside.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Ok(Some((value, &inside[i + 1..]))),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, c @ ('"' | '\\'))) => value.push(c),
                // In OpenMetrics, a backslash before any other character stands for itself.
                Some((_, c)) => value.extend(['\\', c]),
                None => break,
            },
            c => value.push(c),
        }
    }
    Err((&text[text.len()..], "a closing quote"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"# HELP up whether
# TYPE up gauge
up 1
# TYPE requests_total counter
requests_total{code="200",path="/\"a\",b"} 1027 1395066363000
requests_total{code="500"} 3
# TYPE jobs counter
jobs_total 17 # {trace="x"} 1
# TYPE temperature gauge
temperature{room="a"} 20.5
temperature{room="b"} NaN
# TYPE seconds histogram
seconds_bucket{le="0.1",code="200"} 5
seconds_bucket{le="0.1",code="500"} 1
seconds_bucket{le="+Inf",code="200"} 9
seconds_bucket{le="+Inf",code="500"} 1
seconds_sum{code="200"} 3.5
seconds_count{code="200"} 9
# TYPE wait summary
wait{quantile="0.99"} 0.25
bare 4
bare_total 5
# EOF
"#;

    fn get(selector: &str) -> Result<Scraped, ScrapeError> {
        scrape(ANSWER, &selector.parse().unwrap())
    }

    #[test]
    fn every_kind_is_read_as_what_it_is() {
        assert_eq!(get("up"), Ok(Scraped::Gauge(1.0)));
        assert_eq!(get("requests_total"), Ok(Scraped::Counter(1030.0)), "the sum over its labels");
        assert_eq!(get(r#"requests_total{path="/\"a\",b"}"#), Ok(Scraped::Counter(1027.0)));
        assert_eq!((get("jobs"), get("jobs_total")), (Ok(Scraped::Counter(17.0)), Ok(Scraped::Counter(17.0))));
        assert_eq!(get(r#"temperature{room="a"}"#), Ok(Scraped::Gauge(20.5)));
        assert_eq!(get("seconds_count"), Ok(Scraped::Counter(9.0)));
        assert_eq!(get(r#"wait{quantile="0.99"}"#), Ok(Scraped::Gauge(0.25)));
        assert_eq!((get("bare"), get("bare_total")), (Ok(Scraped::Gauge(4.0)), Ok(Scraped::Counter(5.0))));
    }

    /// By the grammar of the formats: blanks and tabs between words, a comma behind the last label, names in quotes.
    #[test]
    fn whatever_is_legal_is_read() {
        for (answer, selector, expected) in [
            ("g {a=\"b\"} 3", "g", 3.0),
            ("g\t{ a = \"b\" , }\t3 1395066363000", "g{a=\"b\"}", 3.0),
            ("  g{}3", "g", 3.0),
            ("g 1e-3", "g", 1e-3),
            ("g -Inf", "g", f64::NEG_INFINITY),
            ("g{a=\"}\"} 3", "g{a=\"}\"}", 3.0),
            ("g{a=\"x\\\\\"} 3", r#"g{a="x\\"}"#, 3.0),
            ("{\"http.load\"} 3", "{\"http.load\"}", 3.0),
            ("{\"http.load\",\"the.path\"=\"/\"} 3", "{\"http.load\"}", 3.0),
            ("{\"g\",a=\"b\"} 3", "g{a=\"b\"}", 3.0),
            ("{a=\"b\",\"g\"} 3", "g", 3.0),
            ("# TYPE g unknown\ng 3 # {} 1", "g", 3.0),
            ("gg ?\ng 3", "g", 3.0),
            ("g{a=\"b\"} 1 100\ng{a=\"b\"} 2 200\ng{a=\"b\"} 3 300.5\n# EOF", "g", 3.0),
            (r#"g{a="C:\dir"} 3"#, r#"g{a="C:\dir"}"#, 3.0),
            ("g 3\ng{a=\"b\"} 4", "g{a=\"\"}", 3.0),
        ] {
            assert_eq!(scrape(answer, &selector.parse().unwrap()), Ok(Scraped::Gauge(expected)), "{answer}");
        }
        let quoted = "# HELP \"http.requests\" of all\n#\tTYPE\t\"http.requests\"  counter\n{\"http.requests\"} 7\n";
        assert_eq!(scrape(quoted, &"{\"http.requests\"}".parse().unwrap()), Ok(Scraped::Counter(7.0)));
        assert_eq!(offers(quoted, ""), "http.requests");
        for text in ["{}", "{\"g\"", "{a=\"b\"}", "{\"g\"} 3", "9g", "g{\"h\"}", "g{\"\"=\"x\"}"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }

    /// By `OpenMetrics`: their timestamps grow.
    #[test]
    fn of_several_points_the_last_counts() {
        let jobs =
            "# TYPE jobs counter\njobs_total{a=\"1\"} 5 1\njobs_total{a=\"1\"} 7 2\njobs_total{a=\"2\"} 1 1\n# EOF\n";
        assert_eq!(scrape(jobs, &"jobs".parse().unwrap()), Ok(Scraped::Counter(8.0)));
        let points = ["0.5} 1 1", "+Inf} 2 1", "0.5} 3 2", "+Inf} 4 2"];
        let lines = points.map(|point| format!("h_bucket{{le=\"{}\n", point.replacen('}', "\"}", 1)));
        let low = Bucket { low: 0.0, high: 0.5, count: 3 };
        let all = Histogram::new([low, Bucket { low: 0.5, high: f64::INFINITY, count: 1 }]);
        let text = format!("# TYPE h histogram\n{}# EOF\n", lines.concat());
        assert_eq!(scrape(&text, &"h".parse().unwrap()), Ok(Scraped::Histogram(all)));
    }

    #[test]
    fn buckets_lose_their_running_sum() {
        let bucket = |low, high, count| Bucket { low, high, count };
        let expected = Histogram::new([bucket(0.0, 0.1, 6), bucket(0.1, f64::INFINITY, 4)]);
        assert_eq!(get("seconds"), Ok(Scraped::Histogram(expected)));
        let one = Histogram::new([bucket(0.0, 0.1, 1)]);
        assert_eq!(get(r#"seconds{code="500"}"#), Ok(Scraped::Histogram(one)));
        let selector = "h".parse().unwrap();
        let falling = "# TYPE h histogram\nh_bucket{le=\"1\"} 5\nh_bucket{le=\"2\"} 4\n";
        assert_eq!(
            scrape(&format!("{falling}h_bucket{{le=\"+Inf\"}} 5\n"), &selector),
            Err(ScrapeError::Buckets("h".into()))
        );
        assert_eq!(scrape(falling, &selector), Err(ScrapeError::Open("h".into())));
        let unlike =
            "# TYPE h histogram\nh_bucket{a=\"1\",le=\"1\"} 5\nh_bucket{a=\"1\",le=\"9\"} 6\nh_bucket{le=\"2\"} 7\n";
        let why = scrape(unlike, &selector).unwrap_err().to_string();
        assert!(why.ends_with(r#"with different bounds; add labels until they are alike: {a="1"}, {}"#), "{why}");
    }

    #[test]
    fn what_cannot_be_told_says_why() {
        let why = |selector: &str| get(selector).unwrap_err().to_string();
        assert_eq!(
            why("secs"),
            "the answer has no series 'secs'; it has seconds, up, requests_total, jobs_total, temperature, wait, bare, bare_total"
        );
        let both = r#"{room="a"}, {room="b"}"#;
        assert_eq!(
            why("temperature"),
            format!("the answer has 2 series 'temperature'; add labels until one is left: {both}")
        );
        assert_eq!(
            why("temperature{room=\"c\"}"),
            format!("the answer has no series 'temperature' with these labels; it has {both}")
        );
        assert!(why("requests_total{code=\"404\"}").ends_with(r#"{code="200",path="/\"a\",b"}, {code="500"}"#));
        assert!(why("seconds{code=\"404\"}").ends_with(r#"{code="200"}, {code="500"}"#), "buckets are not told apart");
        let selector = "x".parse().unwrap();
        assert_eq!(scrape("", &selector).unwrap_err().to_string(), "the answer has no series 'x'; it has none at all");
        let many = "a 1\nb 1\nc 1\nd 1\ne 1\nf 1\ng 1\nh 1\ni 1\nj 1\n";
        assert_eq!(offers(many, ""), "a, b, c, d, e, f, g, h and 2 more");
        assert_eq!((offers("hello\n", ""), offers("<html>1</html>", "")), (String::new(), String::new()));
        let native = "the native histogram h: ";
        for answer in [
            "# TYPE h histogram\nh_count 17\nh_sum 3.5\n",
            "# TYPE h histogram\nh {count:17,sum:3.5,schema:0,zero_threshold:1e-4,zero_count:0} 1\n",
        ] {
            assert_eq!(scrape(answer, &"h".parse().unwrap()), Err(ScrapeError::Native("h".into())), "{native}{answer}");
            assert_eq!(scrape(answer, &"up".parse().unwrap()).unwrap_err().to_string().matches("no series").count(), 1);
        }
        let count = scrape("# TYPE h histogram\nh_count 17\nh_sum 3.5\n", &"h_count".parse().unwrap());
        assert_eq!(count, Ok(Scraped::Counter(17.0)), "what it has may be asked for");
    }

    #[test]
    fn where_a_line_leaves_the_format_is_said() {
        let why = |answer: &str| scrape(answer, &"x".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(
            why("up 1\n x{a=\"é\"} one"),
            "line 2, column 11 of the answer: expected a value, found \"one\"; check the address, or tell the server's \
             authors"
        );
        for (answer, column, expected) in [
            ("x", 2, "a value, found the end of the line"),
            ("x {", 4, "a label or }"),
            ("x{a=\"1\" 3", 9, ", or }"),
            ("x{a=1} 3", 5, "a label's value in quotes"),
            ("x{a=\"1} 3", 10, "a closing quote"),
            ("x{9=\"1\"} 3", 3, "a label or }"),
            ("x{a:b=\"1\"} 3", 4, "="),
            ("x{a=\"1\",a=\"2\"} 3", 9, "each label once"),
            ("x 3 4 5", 7, "a time stamp and nothing else"),
            ("x 3 now", 5, "a time stamp and nothing else"),
            ("x 3 # {a=\"b\"}", 14, "the exemplar's value"),
            ("x -NaN", 3, "a value"),
            ("x 0x1p-2", 3, "a value"),
            ("x\u{a0}3", 2, "a blank or {"),
            ("\u{feff}x 3", 1, "a name"),
            ("9x 3", 1, "a name"),
            ("<html>", 1, "a name"),
            ("{a=\"b\"} 3", 1, "a name"),
            ("# TYPE x", 9, "a blank and the kind"),
            ("# TYPE x conter\nx 3", 10, "a kind, such as"),
            ("# TYPE x? counter\nx 3", 9, "a blank and the kind"),
            ("# TYPE x histogram\nx_bucket{le=\"one\"} 3", 1, "a bucket with a bound"),
        ] {
            let (said, column) = (why(answer), format!("column {column} of the answer: expected {expected}"));
            assert!(said.contains(&column), "{answer}: {said}");
        }
        assert!(
            why("# TYPE x gauge\n# TYPE x counter\nx 3")
                .starts_with("line 2, column 1 of the answer: expected one kind")
        );
        // A comment in one format, an error in the other one.
        assert_eq!(scrape("# TYP x counter\nx 3\n", &"x".parse().unwrap()), Ok(Scraped::Gauge(3.0)));
        assert!(why("# TYP x counter\nx 3\n# EOF\n").contains("line 1, column 2 of the answer: expected TYPE, HELP"));
    }
}
