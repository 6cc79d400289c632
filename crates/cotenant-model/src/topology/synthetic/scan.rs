//! The text of a description, cut into levels.

use super::indexes::Indexes;
use super::{CacheType, Level, MAX_CPUS, MAX_LEVELS, SyntheticError, Type, error};
use crate::parse;

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
        of.ok_or_else(|| error(at, format!("'{}' is no type of level", &self.text[at..self.at])))
    }
}

/// `l3`, `L2Cache`, `l1d`, `L1iCache`: depth and what follows it.
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

/// Cuts the text; the first level is the machine itself. Also returns the indexes of attached nodes.
pub(super) fn levels(s: &mut Scanner<'_>) -> Result<(Vec<Level>, Indexes), SyntheticError> {
    let level = |of, at, arity, width| Level {
        of,
        at,
        arity,
        width,
        bytes: None,
        indexes: Indexes::none(at),
        attached: vec![],
    };
    let mut levels = vec![level(Some(Type::Machine), 0, 1, 1)];
    let mut attached_indexes = Indexes::none(0);
    if s.skip("(") {
        let (bytes, indexes) = attributes(s, Type::Machine)?;
        (levels[0].bytes, levels[0].indexes) = (bytes, indexes);
    }
    loop {
        s.take(|c| c.is_ascii_whitespace());
        let (at, above) = (s.at, levels.len() - 1);
        let Some(first) = s.rest().chars().next() else { break };
        if s.skip("[") {
            if s.of_type()? != Type::Node {
                return Err(error(at, "only memory nodes can be attached: [numa]"));
            }
            let mut bytes = None;
            if s.skip("(") {
                let indexes;
                (bytes, indexes) = attributes(s, Type::Node)?;
                if indexes.is_given() {
                    attached_indexes = indexes;
                }
            }
            if !s.skip("]") {
                return Err(error(s.at, "']' is missing"));
            }
            levels[above].attached.push(bytes);
            continue;
        }
        let of = if first.is_ascii_digit() {
            None
        } else {
            let of = s.of_type()?;
            if !s.skip(":") {
                return Err(error(s.at, "':' and a number are missing"));
            }
            Some(of)
        };
        let arity = s.number()?;
        let width = levels[above].width.checked_mul(arity).filter(|w| *w <= MAX_CPUS);
        let width = width.ok_or_else(|| error(at, format!("more than {MAX_CPUS} objects in all")))?;
        if levels.len() == MAX_LEVELS {
            return Err(error(at, format!("more than {MAX_LEVELS} levels")));
        }
        let mut new = level(of, at, arity, width);
        if s.skip("(") {
            (new.bytes, new.indexes) = attributes(s, of.unwrap_or(Type::Pu))?;
        }
        levels.push(new);
    }
    if levels.len() == 1 {
        return Err(error(s.at, "there is no level"));
    }
    Ok((levels, attached_indexes))
}

/// Attributes up to the closing parenthesis: a size in bytes, and indexes.
fn attributes(s: &mut Scanner<'_>, of: Type) -> Result<(Option<u64>, Indexes), SyntheticError> {
    let (mut bytes, mut indexes) = (None, Indexes::none(s.at));
    loop {
        s.take(|c| c == ' ');
        if s.skip(")") {
            return Ok((bytes, indexes));
        }
        let at = s.at;
        let name = s.take(|c| c != '=' && c != ')' && c != ' ' && c != '(');
        if !s.skip("=") {
            return Err(error(at, format!("'{name}' has no value, or ')' is missing")));
        }
        let value_at = s.at;
        let value = s.take(|c| c != ')' && c != ' ');
        let size = || parse::size(value).map_err(|e| error(value_at, e.to_string()));
        match (name, of) {
            ("size", Type::Cache(..)) | ("memory", Type::Node) => bytes = Some(size()?),
            // The machine's own memory and memory-side caches have no place in our model; they must be sizes all the
            // same.
            ("memory", Type::Machine) | ("memorysidecachesize", Type::Node) => drop(size()?),
            ("indexes", _) => indexes = Indexes::read(value, value_at),
            _ => return Err(error(at, format!("'{name}' is no attribute of this level"))),
        }
    }
}
