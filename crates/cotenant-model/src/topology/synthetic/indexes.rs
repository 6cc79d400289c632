//! `indexes=`: the operating system's numbers for the objects of a level.

use super::level::{Indexes, Level, SyntheticError, Type, error};
use super::scanner::Scanner;
use crate::cpuset::MAX_CPU;

/// `(index / step) % count`.
struct Loop {
    step: usize,
    count: usize,
}

impl Indexes {
    /// The numbers of all `total` objects; `None` if they count up from 0.
    pub(super) fn resolve(&self, levels: &[Level], total: usize) -> Result<Option<Vec<u32>>, SyntheticError> {
        let Some(text) = self.text.as_deref() else { return Ok(None) };
        if text.bytes().all(|b| b.is_ascii_digit() || b == b',') {
            return self.list(text, total).map(Some);
        }
        let mut loops = if text.starts_with(|c: char| c.is_ascii_digit()) {
            self.steps(text)?
        } else {
            self.types(text, levels, total)?
        };
        self.interleave(&mut loops, total).map(Some)
    }

    fn list(&self, text: &str, total: usize) -> Result<Vec<u32>, SyntheticError> {
        let number = |w: &str| match w.parse::<u32>() {
            Ok(n) if n <= MAX_CPU => Ok(n),
            _ => Err(error(self.at, format!("'{w}' is not an index"))),
        };
        let list = text.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
        if list.len() == total {
            Ok(list)
        } else {
            Err(error(self.at, format!("{} indexes for {total} objects", list.len())))
        }
    }

    /// `2*96:…`: step * count.
    fn steps(&self, text: &str) -> Result<Vec<Loop>, SyntheticError> {
        let mut s = Scanner::new(text);
        let mut loops = Vec::new();
        loop {
            let step = s.number().map_err(|_| self.bad(text))?;
            if !s.skip("*") {
                return Err(self.bad(text));
            }
            let count = s.number().map_err(|_| self.bad(text))?;
            loops.push(Loop { step, count });
            if s.rest().is_empty() {
                return Ok(loops);
            }
            if !s.skip(":") {
                return Err(self.bad(text));
            }
        }
    }

    /// `numa:core`: which level counts fastest, next fastest, …
    fn types(&self, text: &str, levels: &[Level], total: usize) -> Result<Vec<Loop>, SyntheticError> {
        let mut depths = Vec::new();
        for word in text.split(':') {
            let mut s = Scanner::new(word);
            let of = s.of_type().ok().filter(|_| s.rest().is_empty());
            let matches = |l: &Level| match (of, l.of) {
                (Some(Type::Group(None)), Some(Type::Group(_))) => true,
                (of, level) => of.is_some() && of == level,
            };
            // As in hwloc, the CPUs themselves are always the innermost loop; steps (2*10:1*2) allow anything else.
            match levels[..levels.len() - 1].iter().position(matches) {
                Some(depth) if !depths.contains(&depth) => depths.push(depth),
                Some(_) => return Err(error(self.at, format!("'{word}' is there twice"))),
                None => return Err(error(self.at, format!("there is no level '{word}'"))),
            }
        }
        let one = |&depth: &usize| {
            let outer = depths.iter().filter(|d| **d < depth).max().map_or(1, |&d| levels[d].width);
            let width = levels[depth].width;
            // A level below the one that is numbered has more objects than there are numbers.
            (width <= total).then(|| Loop { step: total / width, count: width / outer }).ok_or_else(|| self.bad(text))
        };
        depths.iter().map(one).collect()
    }

    fn interleave(&self, loops: &mut Vec<Loop>, total: usize) -> Result<Vec<u32>, SyntheticError> {
        let text = self.text.as_deref().unwrap_or_default();
        let covered = loops.iter().try_fold(1usize, |n, l| n.checked_mul(l.count)).ok_or_else(|| self.bad(text))?;
        if covered != total {
            // The innermost loop may be left out.
            let least = loops.iter().map(|l| l.step).min().unwrap_or(total);
            if covered > total || least != total / covered {
                return Err(error(self.at, format!("'{text}' numbers {covered} of {total} objects")));
            }
            loops.push(Loop { step: 1, count: total / covered });
        }
        let mut numbers = vec![0usize; total];
        let mut factor = 1usize;
        for l in loops {
            for (i, number) in numbers.iter_mut().enumerate() {
                *number = number.saturating_add((i / l.step % l.count).saturating_mul(factor));
            }
            factor = factor.saturating_mul(l.count);
        }
        let mut seen = vec![false; total];
        for &n in &numbers {
            if seen.get(n).copied().unwrap_or(true) {
                return Err(error(self.at, format!("'{text}' gives a number twice or one out of range")));
            }
            seen[n] = true;
        }
        Ok(numbers.into_iter().map(|n| n as u32).collect())
    }

    fn bad(&self, text: &str) -> SyntheticError {
        error(self.at, format!("'{text}' is neither a list (0,2,1,3), levels (numa:core) nor steps (2*4:1*2)"))
    }
}
