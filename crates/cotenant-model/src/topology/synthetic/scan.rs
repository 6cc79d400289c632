//! The text of a description, cut into levels.

use super::level::{Indexes, Level, MAX_CPUS, MAX_LEVELS, SyntheticError, Type, error};
use super::scanner::Scanner;
use crate::parse;

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
            // The machine's own memory and memory-side caches are not in our model, but must be valid sizes.
            ("memory", Type::Machine) | ("memorysidecachesize", Type::Node) => drop(size()?),
            ("indexes", _) => indexes = Indexes::read(value, value_at),
            _ => return Err(error(at, format!("'{name}' is not an attribute of this level"))),
        }
    }
}
