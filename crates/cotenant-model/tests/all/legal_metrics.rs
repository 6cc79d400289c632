//! Everything that the grammars of Prometheus' text format (0.0.4, and 1.0.0 with names in quotes) and of `OpenMetrics`
//! 1.0 allow is read with its written values.

use cotenant_model::Histogram;
use cotenant_model::histogram::Bucket;
use cotenant_model::metric::{Scraped, scrape};
use std::fmt::Write as _;

const TEXTS: u64 = 10_000;

/// The query of a series and its expected value; `None`: an error.
pub type Expected = (String, Option<Scraped>);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    GaugeHistogram,
    StateSet,
    Info,
    Summary,
    Unknown,
}

/// Labels by name, with their meaning.
type Labels = Vec<(String, String)>;

/// A text under construction.
struct Writer {
    random: fastrand::Rng,
    /// `OpenMetrics`.
    is_open: bool,
    text: String,
    expected: Vec<Expected>,
}

/// A legal text, and its content.
pub fn written(seed: u64) -> (String, Vec<Expected>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let is_open = random.bool();
    let families = random.usize(1..6);
    let mut writer = Writer { random, is_open, text: String::new(), expected: Vec::new() };
    for n in 0..families {
        writer.family(n);
        writer.remark();
    }
    if is_open {
        writer.text.push_str(if writer.random.bool() { "# EOF\n" } else { "# EOF" });
    }
    (writer.text, writer.expected)
}

impl Writer {
    fn one_in(&mut self, n: usize) -> bool {
        self.random.usize(..n) == 0
    }

    fn any<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.random.usize(..of.len())]
    }

    /// Between words: `OpenMetrics` has one blank.
    fn blank(&mut self) -> &'static str {
        if self.is_open { " " } else { self.any(&[" ", " ", "\t", "  ", " \t "]) }
    }

    /// If none is needed.
    fn gap(&mut self) -> &'static str {
        if self.is_open { "" } else { self.any(&["", "", "", " ", "\t"]) }
    }

    /// Lines without content, which `OpenMetrics` lacks.
    fn remark(&mut self) {
        if !self.is_open && self.one_in(3) {
            let lines = ["\n", "  \n", "# of old\n", "#\n", "\t# HELPFUL x\n", "## TYPE a counter\n", "#TYPES a b\n"];
            let line = self.any(&lines);
            self.text.push_str(line);
        }
    }

    /// A name that is neither a prefix of another nor one with a suffix.
    fn name(&mut self, n: usize, in_quotes: bool) -> String {
        let first = self.any(&["a", "Z", "_", ":", "http", "x_total_"]);
        let last = if in_quotes { self.any(&[".é \"}", "\\", ",{=#", "\n.日"]) } else { "" };
        format!("{first}{}{last}{n}z", self.any(&["", "_seconds", ":9", "_count_", "__"]))
    }

    /// A finite number, as text and value.
    fn number(&mut self) -> (String, f64) {
        let (digits, power) = (self.random.u32(..100_000), self.random.i32(-12..12));
        let mut text = match self.random.u32(..6) {
            0 => format!("{digits}.5"),
            1 => format!(".{digits}"),
            2 => format!("{digits}."),
            3 => format!("{digits}e{power}"),
            4 => format!("00{digits}.25E+1"),
            _ => digits.to_string(),
        };
        // Its value by an independent way: digits and a power of ten, which Rust reads as in JSON.
        let plain = match text.split_once('.') {
            Some((whole, part)) => {
                let (part, power) = part.split_once(['e', 'E']).unwrap_or((part, "0"));
                let power: i32 = power.parse().unwrap();
                format!("{whole}{part}e{}", power - part.len() as i32)
            }
            None => text.clone(),
        };
        let mut value: f64 = plain.parse().unwrap();
        match self.random.u32(..6) {
            0 => text.insert(0, '+'),
            1 => {
                text.insert(0, '-');
                value = -value;
            }
            _ => {}
        }
        (text, value)
    }

    fn value(&mut self) -> (String, f64) {
        if !self.one_in(8) {
            return self.number();
        }
        let text = self.any(&["+Inf", "-Inf", "inf", "INFINITY", "-infinity", "NaN", "nan", "NAN"]);
        let value = match text.to_ascii_lowercase().trim_start_matches(['+', '-']) {
            "nan" => f64::NAN,
            _ if text.starts_with('-') => f64::NEG_INFINITY,
            _ => f64::INFINITY,
        };
        (text.to_owned(), value)
    }

    /// A count, as text and value.
    fn count(&mut self, upto: u32) -> (String, f64) {
        let count = self.random.u32(..upto);
        let text = match self.random.u32(..4) {
            0 => format!("{count}.0"),
            1 => format!("{count}e0"),
            2 => format!("+{count}"),
            _ => count.to_string(),
        };
        (text, f64::from(count))
    }

    /// Values of labels; all of one `n` differ.
    fn label_value(&mut self, n: usize) -> String {
        let mut value = n.to_string();
        for _ in 0..self.random.usize(..6) {
            value += self.any(&[
                "a",
                "\\",
                "\"",
                "\n",
                "}",
                "{",
                ",",
                "=",
                "#",
                " ",
                "\t",
                "é",
                "日本",
                "\\n",
                "\r",
                "/",
                "\u{1f600}",
            ]);
        }
        value
    }

    fn escaped(&mut self, value: &str, of_text: bool) -> String {
        let mut text = String::new();
        let mut chars = value.chars().peekable();
        while let Some(c) = chars.next() {
            // OpenMetrics keeps a backslash before any other character.
            let plain = chars.peek().is_some_and(|next| !matches!(next, 'n' | '"' | '\\' | '\n'));
            match c {
                '\\' if of_text && self.is_open && plain && self.random.bool() => text.push('\\'),
                '\\' | '"' => text.extend(['\\', c]),
                '\n' => text += "\\n",
                c => text.push(c),
            }
        }
        text
    }

    /// `name{…}` as written, or as queried.
    fn series(&mut self, name: &str, labels: &[(String, String)], of_text: bool) -> String {
        let bare = |name: &str, colon: bool| {
            !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || (colon && c == ':'))
        };
        let mut parts = Vec::new();
        let mut text = if bare(name, true) {
            name.to_owned()
        } else {
            parts.push(format!("\"{}\"", self.escaped(name, false)));
            String::new()
        };
        let mut labels = labels.to_vec();
        if of_text {
            self.random.shuffle(&mut labels);
        }
        for (key, value) in &labels {
            let key = if bare(key, false) { key.clone() } else { format!("\"{}\"", self.escaped(key, false)) };
            let (before, after) = if of_text { (self.gap(), self.gap()) } else { ("", "") };
            parts.push(format!("{key}{before}={after}\"{}\"", self.escaped(value, of_text)));
        }
        if !parts.is_empty() || self.one_in(4) {
            let gaps = [(); 4].map(|()| if of_text { self.gap() } else { "" });
            let comma = if of_text && !self.is_open && !parts.is_empty() && self.one_in(3) { "," } else { "" };
            let between = format!("{},{}", gaps[0], gaps[1]);
            write!(text, "{}{{{}{}{comma}{}}}", gaps[2], gaps[3], parts.join(&between), gaps[0]).unwrap();
        }
        text
    }

    fn line(&mut self, name: &str, labels: &[(String, String)], value: &str, may_have_exemplar: bool) -> String {
        let mut line = self.gap().to_owned() + &self.series(name, labels, true) + self.blank() + value;
        if self.one_in(4) {
            let at = self.random.i64(-1_000_000..2_000_000_000_000);
            line += self.blank();
            line += &at.to_string();
            line += if self.is_open { ".5" } else { "" };
        }
        if self.is_open && may_have_exemplar && self.one_in(3) {
            line += self.any(&[" # {} 1", " # {trace=\"} 7 \\\"\"} 0.5 1520879607.789", " # {a=\"b\",c=\"#\"} +Inf"]);
        }
        line + self.gap() + "\n"
    }

    fn described(&mut self, name: &str, kind: Kind) {
        let word = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::GaugeHistogram => "gaugehistogram",
            Kind::StateSet => "stateset",
            Kind::Info => "info",
            Kind::Summary => "summary",
            Kind::Unknown if self.is_open => "unknown",
            Kind::Unknown => "untyped",
        };
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c));
        let name = if plain { name.to_owned() } else { format!("\"{}\"", self.escaped(name, false)) };
        let is_told = !matches!(kind, Kind::Unknown | Kind::Gauge) || self.random.bool();
        let mut lines = Vec::new();
        if is_told {
            lines.push(format!("#{}TYPE{}{name}{}{word}{}\n", self.blank(), self.blank(), self.blank(), self.gap()));
        }
        if self.random.bool() {
            let help = self.any(&["", "of all", "TYPE x counter", "# \\\\ \\n {}", "日本 5"]);
            lines.push(format!("#{}HELP{}{name} {help}\n", self.blank(), self.blank()));
        }
        self.random.shuffle(&mut lines);
        self.text += &lines.concat();
    }

    fn family(&mut self, n: usize) {
        use Kind::{Counter, Gauge, GaugeHistogram, Histogram, Info, StateSet, Summary, Unknown};
        let kinds: &[&Kind] = if self.is_open {
            &[&Counter, &Gauge, &Histogram, &GaugeHistogram, &StateSet, &Info, &Summary, &Unknown]
        } else {
            &[&Counter, &Gauge, &Histogram, &Summary, &Unknown]
        };
        let kind = *self.any(kinds);
        let in_quotes = !self.is_open && self.one_in(4);
        let mut name = self.name(n, in_quotes);
        if kind == StateSet {
            name = name.replace(':', "_"); // it is also the name of a label
        }
        self.described(&name, kind);
        let mut names = vec!["a", "code", "_x", "Path9"];
        if in_quotes {
            names.extend(["the.path", "ü \"", "0"]);
        }
        self.random.shuffle(&mut names);
        names.truncate(self.random.usize(..4));
        let sets = if names.is_empty() { 1 } else { self.random.usize(1..5) };
        let sets: Vec<Labels> =
            (0..sets).map(|i| names.iter().map(|name| ((*name).to_owned(), self.label_value(i))).collect()).collect();
        let mut lines = match kind {
            Histogram => self.histograms(&name, &sets),
            Summary => self.summaries(&name, &sets),
            _ => self.plain(&name, kind, &sets),
        };
        if !self.is_open && kind != Counter && kind != Histogram {
            self.random.shuffle(&mut lines);
        }
        self.text += &lines.concat();
    }

    /// Those with a sample per set of labels.
    fn plain(&mut self, name: &str, kind: Kind, sets: &[Labels]) -> Vec<String> {
        let (suffix, counts) = match kind {
            Kind::Counter if self.is_open => ("_total", true),
            Kind::Counter => ("", true),
            Kind::Info => ("_info", false),
            Kind::GaugeHistogram => (self.any(&["_gcount", "_gsum", "_bucket"]), false),
            _ => ("", false),
        };
        let of_name = format!("{name}{suffix}");
        let mut lines = Vec::new();
        let mut sum = 0.0;
        for labels in sets {
            let mut labels = labels.clone();
            match kind {
                Kind::StateSet => labels.push((name.to_owned(), "on".to_owned())),
                Kind::GaugeHistogram if suffix == "_bucket" => labels.push(("le".to_owned(), "+Inf".to_owned())),
                _ => {}
            }
            let (text, value) = match kind {
                _ if counts => self.count(1_000_000),
                Kind::StateSet | Kind::Info => ("1".to_owned(), 1.0),
                _ => self.value(),
            };
            sum += value;
            if self.is_open && self.one_in(6) {
                // Points of before.
                for (value, at) in [("1", "5.5"), ("0.0", "6"), (&*text, "7")] {
                    lines.push(format!("{} {value} {at}\n", self.series(&of_name, &labels, true)));
                }
            } else {
                lines.push(self.line(&of_name, &labels, &text, counts));
            }
            if counts && self.is_open && self.one_in(4) {
                lines.push(self.line(&format!("{name}_created"), &labels, "1520430000.123", false));
            }
            let asked = self.series(&of_name, &labels, false);
            let says = if counts { Scraped::Counter(value) } else { Scraped::Gauge(value) };
            self.expected.push((asked, Some(says)));
        }
        if counts {
            let asked = self.series(name, &[], false);
            self.expected.push((asked, Some(Scraped::Counter(sum))));
        }
        lines
    }

    fn summaries(&mut self, name: &str, sets: &[Labels]) -> Vec<String> {
        let mut lines = Vec::new();
        for labels in sets {
            for quantile in ["0.5", "0.99"] {
                let with = [&labels[..], &[("quantile".to_owned(), quantile.to_owned())]].concat();
                let (text, value) = self.value();
                lines.push(self.line(name, &with, &text, false));
                let asked = self.series(name, &with, false);
                self.expected.push((asked, Some(Scraped::Gauge(value))));
            }
            self.sum_and_count(name, labels, &mut lines);
        }
        lines
    }

    fn sum_and_count(&mut self, name: &str, labels: &[(String, String)], lines: &mut Vec<String>) {
        for suffix in ["_sum", "_count"] {
            let name = format!("{name}{suffix}");
            let (text, value) = self.count(1_000);
            lines.push(self.line(&name, labels, &text, false));
            let asked = self.series(&name, labels, false);
            self.expected.push((asked, Some(Scraped::Counter(value))));
        }
    }

    fn histograms(&mut self, name: &str, sets: &[Labels]) -> Vec<String> {
        const BOUNDS: [(&str, f64); 6] =
            [("-1.5", -1.5), ("0.0", 0.0), ("0.1", 0.1), ("2.5e-01", 0.25), ("1.0", 1.0), ("1e+06", 1e6)];
        let drawn = |random: &mut fastrand::Rng| {
            let mut bounds: Vec<(&str, f64)> = BOUNDS.into_iter().filter(|_| random.bool()).collect();
            bounds.push(("+Inf", f64::INFINITY));
            bounds
        };
        let first = drawn(&mut self.random);
        let (mut lines, mut sum, mut all) = (Vec::new(), Histogram::default(), Vec::new());
        for labels in sets {
            let bounds = if self.one_in(6) { drawn(&mut self.random) } else { first.clone() };
            all.push(bounds.clone());
            let (mut low, mut upto, mut buckets) = (f64::NAN, 0.0, Vec::new());
            for (le, high) in bounds {
                let (_, count) = self.count(1_000);
                upto += count;
                let text = if self.random.bool() { format!("{upto}") } else { format!("{upto}.0") };
                let with = [&labels[..], &[("le".to_owned(), le.to_owned())]].concat();
                lines.push(self.line(&format!("{name}_bucket"), &with, &text, true));
                let asked = self.series(&format!("{name}_bucket"), &with, false);
                self.expected.push((asked, Some(Scraped::Counter(upto))));
                if low.is_nan() {
                    low = if high < 0.0 { f64::NEG_INFINITY } else { 0.0 };
                }
                buckets.push(Bucket { low, high, count: count as u64 });
                low = high;
            }
            let told = Histogram::new(buckets);
            sum.add(&told);
            let asked = self.series(name, labels, false);
            self.expected.push((asked, Some(Scraped::Histogram(told))));
            self.sum_and_count(name, labels, &mut lines);
        }
        if !sets[0].is_empty() {
            let asked = self.series(name, &[], false);
            self.expected.push((asked, all.windows(2).all(|two| two[0] == two[1]).then_some(Scraped::Histogram(sum))));
        }
        lines
    }
}

/// Promise speed/metrics: Metrics, logs and web servers are read as their formats define; a quantile outside a
/// histogram's bounds is no reading.
#[test]
fn whatever_the_grammar_allows_is_read() {
    let mut asked_for = 0;
    for seed in 0..TEXTS {
        let (text, expected) = written(seed);
        asked_for += expected.len();
        for (asked, says) in expected {
            let selector = asked.parse().unwrap_or_else(|e| panic!("{seed}: {e}"));
            let read = scrape(&text, &selector);
            // NaN is not equal to itself, but is written like it.
            assert_eq!(
                format!("{:?}", read.as_ref().ok()),
                format!("{:?}", says.as_ref()),
                "{seed}: {asked} {read:?} of\n{text}"
            );
        }
    }
    assert!(asked_for > TEXTS as usize, "{asked_for}");
}
