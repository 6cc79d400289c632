//! What leaves the grammars of [`super::legal_metrics`] is refused, and its place is named; what stays within them is
//! not. The grammars are written down here once more, as the specifications have them.

use super::legal_metrics::{Expected, written};
use cotenant_model::metric::{ScrapeError, Selector, scrape};
use std::collections::BTreeMap;

const TEXTS: u64 = 10_000;

/// A reader of one line.
struct Line<'a>(std::iter::Peekable<std::str::Chars<'a>>);

/// Name, and labels with their values.
type Sample = (String, BTreeMap<String, String>);

impl<'a> Line<'a> {
    fn new(text: &'a str) -> Self {
        Self(text.chars().peekable())
    }

    fn is_next(&mut self, wanted: char) -> bool {
        self.0.next_if_eq(&wanted).is_some()
    }

    fn run(&mut self, wanted: impl Fn(char) -> bool) -> String {
        std::iter::from_fn(|| self.0.next_if(|c| wanted(*c))).collect()
    }

    fn blank(&mut self) -> bool {
        !self.run(|c| c == ' ' || c == '\t').is_empty()
    }

    /// `[a-zA-Z_:][a-zA-Z0-9_:]*`; labels have no colons.
    fn name(&mut self, more: &str) -> Option<String> {
        let name = self.run(|c| c.is_ascii_alphanumeric() || more.contains(c));
        (!name.is_empty() && !name.as_bytes()[0].is_ascii_digit()).then_some(name)
    }

    /// `"` escaped characters `"`.
    fn text(&mut self) -> Option<String> {
        let mut text = String::new();
        if !self.is_next('"') {
            return None;
        }
        loop {
            match self.0.next()? {
                '"' => return Some(text),
                '\\' => match self.0.next()? {
                    'n' => text.push('\n'),
                    c @ ('"' | '\\') => text.push(c),
                    c => text.extend(['\\', c]),
                },
                c => text.push(c),
            }
        }
    }

    /// Between braces; a single text is the name.
    fn labels(&mut self, name: &mut Option<String>) -> Option<BTreeMap<String, String>> {
        let mut labels = BTreeMap::new();
        self.blank();
        while !self.is_next('}') {
            let is_text = self.0.peek() == Some(&'"');
            let key = if is_text { self.text()? } else { self.name("_")? };
            self.blank();
            if self.is_next('=') {
                self.blank();
                let is_new = labels.insert(key.clone(), self.text()?).is_none();
                if key.is_empty() || !is_new {
                    return None;
                }
                self.blank();
            } else if is_text && name.is_none() && !key.is_empty() {
                *name = Some(key);
            } else {
                return None;
            }
            if self.is_next(',') {
                self.blank();
            } else if self.0.peek() != Some(&'}') {
                return None;
            }
        }
        Some(labels)
    }

    fn number(&mut self) -> Option<String> {
        let number = self.run(|c| c != ' ' && c != '\t');
        is_number(&number).then_some(number)
    }

    /// An optional time stamp, which is finite.
    fn stamp(&mut self) -> Option<()> {
        self.blank();
        if self.0.peek().is_none_or(|c| *c == '#') {
            return Some(());
        }
        let stamp = self.number()?;
        self.blank();
        stamp.contains(|c: char| c.is_ascii_digit()).then_some(())
    }

    fn sample(mut self) -> Option<Sample> {
        self.blank();
        let mut name = if self.0.peek() == Some(&'{') { None } else { Some(self.name("_:")?) };
        let mut is_apart = self.blank();
        let mut labels = BTreeMap::new();
        if self.is_next('{') {
            labels = self.labels(&mut name)?;
            self.blank();
            is_apart = true;
        }
        let name = name.filter(|_| is_apart)?;
        self.number()?;
        self.stamp()?;
        if self.is_next('#') {
            if !(self.is_next(' ') && self.is_next('{')) {
                return None;
            }
            self.labels(&mut Some(String::new()))?;
            self.blank();
            self.number()?;
            self.stamp()?;
        }
        self.0.next().is_none().then_some((name, labels))
    }
}

/// `realnumber`, infinities with a sign or without one, `NaN` without one.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    match unsigned.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => true,
        "nan" => unsigned.len() == text.len(),
        number => {
            let (mantissa, power) = number.split_once('e').unwrap_or((number, "0"));
            let power = power.strip_prefix(['+', '-']).unwrap_or(power);
            let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
            digits(whole)
                && digits(part)
                && !(whole.is_empty() && part.is_empty())
                && digits(power)
                && !power.is_empty()
        }
    }
}

/// A line about a name: of `TYPE` with its kind.
enum Comment {
    Other,
    Kind(String, String),
    Wrong,
}

fn comment(line: &str, is_open: bool) -> Comment {
    let mut line = Line::new(line);
    line.blank();
    assert!(line.is_next('#'));
    line.blank();
    match line.run(|c| c != ' ' && c != '\t').as_str() {
        "TYPE" => {
            line.blank();
            let name = if line.0.peek() == Some(&'"') { line.text() } else { line.name("_:") };
            match name.filter(|_| line.blank()) {
                Some(name) => Comment::Kind(name, line.0.collect::<String>().trim_matches([' ', '\t']).to_owned()),
                None => Comment::Wrong,
            }
        }
        "HELP" | "UNIT" | "EOF" => Comment::Other,
        _ if is_open => Comment::Wrong,
        _ => Comment::Other,
    }
}

/// Lines, from 1: those for which the reading must be refused, and those for which it may be.
#[derive(Debug, Default)]
struct Verdict {
    must: Vec<usize>,
    may: Vec<usize>,
}

fn verdict(text: &str, asked: &str) -> Verdict {
    const KINDS: &str = "counter gauge histogram gaugehistogram stateset info summary unknown untyped";
    let is_open = text.trim_end().ends_with("\n# EOF") || text.trim_end() == "# EOF";
    let mut verdict = Verdict::default();
    let mut kinds: BTreeMap<String, String> = BTreeMap::new();
    let is_comment = |line: &str| line.trim_start_matches([' ', '\t']).starts_with('#');
    for (i, line) in text.lines().enumerate().filter(|(_, line)| is_comment(line)) {
        let is_wrong = match comment(line, is_open) {
            Comment::Other => false,
            Comment::Wrong => true,
            Comment::Kind(name, kind) => {
                let known = KINDS.split(' ').any(|known| known == kind);
                let before = kinds.insert(name.clone(), kind.clone());
                asked.starts_with(&name) && (!known || before.is_some_and(|before| before != kind))
            }
        };
        verdict.must.extend(is_wrong.then_some(i + 1));
    }
    let kind = kinds.get(asked).map_or("", String::as_str);
    let wanted = if kind == "histogram" { format!("{asked}_bucket") } else { asked.to_owned() };
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !is_comment(line)) {
        let stripped = line.trim_matches([' ', '\t']);
        match Line::new(line).sample() {
            _ if stripped.is_empty() => {}
            Some((name, labels)) => {
                let is_bound = |le: &String| is_number(le) && !le.eq_ignore_ascii_case("nan");
                let is_open = kind == "histogram" && name == wanted && !labels.get("le").is_some_and(is_bound);
                verdict.may.extend(is_open.then_some(i + 1));
            }
            None => {
                let mut name = None;
                if let Some(inside) = stripped.strip_prefix('{') {
                    let is_read = Line::new(inside).labels(&mut name).is_some();
                    name = name.filter(|_| is_read);
                } else {
                    let begins = stripped.split([' ', '\t', '{']).next().unwrap();
                    name = Line::new(begins).name("_:").filter(|read| read == begins);
                }
                verdict.may.extend(name.as_ref().is_some_and(|name| name.starts_with(asked)).then_some(i + 1));
                verdict.must.extend(name.is_none_or(|name| name == wanted).then_some(i + 1));
            }
        }
    }
    verdict
}

/// One change anywhere in a text.
fn mutated(text: &str, random: &mut fastrand::Rng) -> String {
    const MORE: [&str; 24] = [
        "\"", "{", "}", ",", "=", "\\", " ", "\t", "\n", "#", "9", ".", "-", "+", "e", "x", ":", "_", "é", "\u{a0}",
        "\u{feff}", "\r", " 1", "# ",
    ];
    let chars: Vec<char> = text.chars().collect();
    let at = random.usize(..chars.len());
    let (before, after) = (chars[..at].iter().collect::<String>(), &chars[at + 1..]);
    let rest: String = after.iter().collect();
    let more = MORE[random.usize(..MORE.len())];
    match random.u32(..5) {
        0 => before + &rest,
        1 => format!("{before}{more}{}{rest}", chars[at]),
        2 => format!("{before}{more}{rest}"),
        3 => format!("{before}{0}{0}{rest}", chars[at]),
        // The rest of the line is lost.
        _ => before + rest.find('\n').map_or("", |end| &rest[end..]),
    }
}

/// Holds speed/metrics.
#[test]
fn what_leaves_the_grammar_is_refused_with_its_place() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 0..TEXTS {
        let (text, expected) = written(seed);
        if expected.is_empty() {
            continue;
        }
        let mut random = fastrand::Rng::with_seed(seed ^ 0xbad);
        let text = mutated(&text, &mut random);
        let (asked, _): &Expected = &expected[random.usize(..expected.len())];
        let selector: Selector = asked.parse().unwrap();
        let verdict = verdict(&text, selector.name());
        let read = scrape(&text, &selector);
        let context = || format!("{seed}: {asked}: {read:?}, {verdict:?} of\n{text:?}");
        if let Err(why @ ScrapeError::Line { line, column, .. }) = &read {
            refused += 1;
            assert!(verdict.must.contains(line) || verdict.may.contains(line), "{}", context());
            assert!(*column <= text.lines().nth(line - 1).unwrap().chars().count() + 1, "{}", context());
            assert!(!why.to_string().contains('\n'), "{why}");
        } else {
            taken += 1;
            assert!(verdict.must.is_empty(), "{}", context());
        }
    }
    assert!(refused > 1_000 && taken > 1_000, "{refused} refused, {taken} taken");
}
