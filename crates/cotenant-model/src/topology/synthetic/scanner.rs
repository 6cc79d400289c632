//! Reads words, numbers and types of levels.

use super::super::CacheType;
use super::level::{SyntheticError, Type, error};

pub(super) struct Scanner<'a> {
    text: &'a str,
    pub(super) at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn skip(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    pub(super) fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    pub(super) fn number(&mut self) -> Result<usize, SyntheticError> {
        let at = self.at;
        let digits = self.take(|c| c.is_ascii_digit());
        match digits.parse() {
            Ok(n) if n > 0 => Ok(n),
            Ok(_) => Err(error(at, "there cannot be 0 objects")),
            Err(_) if digits.is_empty() => Err(error(at, "a number is missing")),
            Err(_) => Err(error(at, format!("'{digits}' is too large"))),
        }
    }

    /// A type, shortened as in hwloc: any case, at least two letters.
    pub(super) fn of_type(&mut self) -> Result<Type, SyntheticError> {
        let at = self.at;
        let word = self.take(|c| c.is_ascii_alphabetic() || c == '-').to_ascii_lowercase();
        let digits = self.take(|c| c.is_ascii_digit());
        let is = |name: &str| word.len() >= 2 && name.starts_with(&word) && digits.is_empty();
        let of = if is("numanode") || is("node") {
            Some(Type::Node)
        } else if is("package") || is("socket") {
            Some(Type::Package)
        } else if is("die") {
            Some(Type::Die)
        } else if is("core") {
            Some(Type::Core)
        } else if is("pu") {
            Some(Type::Pu)
        } else if word == "l" {
            let suffix = self.take(|c| c.is_ascii_alphabetic()).to_ascii_lowercase();
            cache(digits, &suffix)
        } else if word.len() >= 2 && "group".starts_with(&word) || ["tile", "module"].contains(&&*word) {
            if digits.is_empty() { Some(Type::Group(None)) } else { digits.parse().ok().map(|d| Type::Group(Some(d))) }
        } else {
            None
        };
        of.ok_or_else(|| error(at, format!("'{}' is not a type of level", &self.text[at..self.at])))
    }
}

/// `l3`, `L2Cache`, `l1d`, `L1iCache`: depth and rest.
fn cache(depth: &str, suffix: &str) -> Option<Type> {
    let depth: u8 = depth.parse().ok().filter(|d| (1..=5).contains(d))?;
    let (kind, rest) = match suffix.as_bytes().first() {
        Some(b'i') if depth <= 3 => (CacheType::Instruction, &suffix[1..]),
        Some(b'i') => return None,
        Some(b'd') => (CacheType::Data, &suffix[1..]),
        Some(b'u') => (CacheType::Unified, &suffix[1..]),
        _ => (CacheType::Unified, suffix),
    };
    "cache".starts_with(rest).then_some(Type::Cache(depth, kind))
}
