//! Sets of CPUs of any size, in the kernel's text forms.

use crate::CpuId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Highest accepted CPU number: far above any kernel's `NR_CPUS`, low enough that a typo cannot exhaust memory.
pub const MAX_CPU: u32 = 1 << 16;

/// A set of CPUs. Equal sets compare equal.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet {
    /// Little-endian words without trailing zero words, so that equality is structural.
    words: Vec<u64>,
}

/// A text that is not a CPU list or mask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a CPU {form}: {why}")]
pub struct CpuSetError {
    text: String,
    form: &'static str,
    why: String,
}

impl CpuSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// The set with one member.
    pub fn single(cpu: CpuId) -> Self {
        let mut set = Self::new();
        set.insert(cpu);
        set
    }

    /// Parses the kernel's list form, `0-3,8,10-12`; strides as in `0-31:2/4` too. An empty text is the empty set.
    ///
    /// # Errors
    /// On anything else, and on CPU numbers above [`MAX_CPU`].
    pub fn parse_list(text: &str) -> Result<Self, CpuSetError> {
        let err = |why: &str| CpuSetError { text: text.trim().to_owned(), form: "list", why: why.to_owned() };
        let number = |s: &str| match s.trim().parse::<u32>() {
            Ok(n) if n <= MAX_CPU => Ok(n),
            Ok(_) => Err(err(&format!("CPU numbers end at {MAX_CPU}"))),
            Err(_) => Err(err("expected numbers and ranges such as 0-3,8")),
        };
        let mut set = Self::new();
        for part in text.trim().split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (range, used, group) = match part.split_once(':') {
                None => (part, 1, 1),
                Some((range, stride)) => {
                    let (used, group) = stride.split_once('/').ok_or_else(|| err("expected FIRST-LAST:USED/GROUP"))?;
                    (range, number(used)?, number(group)?)
                }
            };
            let (first, last) = match range.split_once('-') {
                None => (number(range)?, number(range)?),
                Some((a, b)) => (number(a)?, number(b)?),
            };
            if first > last || used == 0 || group < used {
                return Err(err("a range runs backwards or has an empty stride"));
            }
            for cpu in (first..=last).filter(|c| (c - first) % group < used) {
                set.insert(CpuId(cpu));
            }
        }
        Ok(set)
    }

    /// Parses the kernel's mask form, comma-separated 32-bit hexadecimal words, most significant first; `0x` prefixes
    /// are allowed.
    ///
    /// # Errors
    /// On anything else, and on masks with CPUs above [`MAX_CPU`].
    pub fn parse_mask(text: &str) -> Result<Self, CpuSetError> {
        let err = |why: &str| CpuSetError { text: text.trim().to_owned(), form: "mask", why: why.to_owned() };
        let words: Vec<&str> = text.trim().split(',').collect();
        if words.len() > MAX_CPU as usize / 32 + 1 {
            return Err(err("it is too wide"));
        }
        let mut set = Self::new();
        for (i, word) in words.iter().rev().enumerate() {
            let word = word.trim();
            let digits = word.strip_prefix("0x").unwrap_or(word);
            let value = match digits {
                "" if words.len() > 1 => 0, // hwloc writes empty words for zero
                _ => u64::from_str_radix(digits, 16).map_err(|_| err("expected hexadecimal words"))?,
            };
            if words.len() > 1 && value > u64::from(u32::MAX) {
                return Err(err("a word has more than 32 bits"));
            }
            for cpu in (0..64).filter(|b| value >> b & 1 == 1).map(|bit| i as u32 * 32 + bit) {
                if cpu > MAX_CPU {
                    return Err(err("it is too wide"));
                }
                set.insert(CpuId(cpu));
            }
        }
        Ok(set)
    }

    /// Adds a CPU; true if it was absent.
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        let (word, bit) = (cpu.index() / 64, cpu.0 % 64);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let absent = self.words[word] >> bit & 1 == 0;
        self.words[word] |= 1 << bit;
        absent
    }

    /// Removes a CPU; true if it was present.
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        let present = self.contains(cpu);
        if present {
            self.words[cpu.index() / 64] &= !(1 << (cpu.0 % 64));
            self.trim();
        }
        present
    }

    /// Whether the CPU is a member.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words.get(cpu.index() / 64).is_some_and(|w| w >> (cpu.0 % 64) & 1 == 1)
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The lowest member.
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// The highest member.
    pub fn last(&self) -> Option<CpuId> {
        let top = self.words.last()?;
        Some(CpuId((self.words.len() as u32 - 1) * 64 + 63 - top.leading_zeros()))
    }

    /// Members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            std::iter::successors((word != 0).then_some(word), |w| {
                let rest = w & (w - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |w| CpuId(i as u32 * 64 + w.trailing_zeros()))
        })
    }

    /// Members of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self::from_words(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// Members of either.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut words = long.words.clone();
        words.iter_mut().zip(&short.words).for_each(|(a, b)| *a |= b);
        Self { words }
    }

    /// Members of `self` that are not in `other`.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut words = self.words.clone();
        words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
        Self::from_words(words)
    }

    /// Whether they have a member in common.
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether every member is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().enumerate().all(|(i, w)| w & !other.words.get(i).copied().unwrap_or(0) == 0)
    }

    /// The bits as little-endian 64-bit words without trailing zero words, as `sched_setaffinity` takes them.
    pub fn as_words(&self) -> &[u64] {
        &self.words
    }

    /// The set with the bits of `words`.
    pub fn from_words(words: Vec<u64>) -> Self {
        let mut set = Self { words };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(iter: I) -> Self {
        let mut set = Self::new();
        for cpu in iter {
            set.insert(cpu);
        }
        set
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;
    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        Self::parse_list(text)
    }
}

impl fmt::Display for CpuSet {
    /// The list form, `0-3,8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut members = self.iter().peekable();
        let mut sep = "";
        while let Some(first) = members.next() {
            let mut last = first;
            while let Some(next) = members.next_if(|c| c.0 == last.0 + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{sep}{first}")?;
            } else {
                write!(f, "{sep}{first}-{last}")?;
            }
            sep = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::parse_list(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> CpuSet {
        CpuSet::parse_list(text).unwrap()
    }

    /// The mask form, as the kernel prints it.
    fn mask(cpus: &std::collections::BTreeSet<u32>) -> String {
        let word =
            |i: u32| (0..32).filter(|bit| cpus.contains(&(i * 32 + bit))).fold(0u32, |word, bit| word | 1 << bit);
        let words = (0..=cpus.last().unwrap_or(&0) / 32).rev();
        words.map(|i| format!("{:08x}", word(i))).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn kernel_forms() {
        assert_eq!(list("0-3,8").iter().map(|c| c.0).collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert_eq!(list("0-7:1/2"), list("0,2,4,6"));
        assert_eq!(list(""), CpuSet::new());
        assert_eq!(CpuSet::parse_mask("1,00000003").unwrap(), list("0,1,32"));
        assert_eq!(CpuSet::parse_mask("0xf").unwrap(), list("0-3"));
        for bad in ["x", "3-1", "0-", "99999999", "0-3:0/2", "0-3:1"] {
            assert!(CpuSet::parse_list(bad).is_err(), "{bad}");
        }
        for bad in ["", "g", "100000000,0"] {
            assert!(CpuSet::parse_mask(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(a in proptest::collection::btree_set(0u32..300, 0..40), b in proptest::collection::btree_set(0u32..300, 0..40)) {
            let of = |s: &std::collections::BTreeSet<u32>| s.iter().map(|c| CpuId(*c)).collect::<CpuSet>();
            let (x, y) = (of(&a), of(&b));
            prop_assert_eq!(x.and(&y), of(&a.intersection(&b).copied().collect()));
            prop_assert_eq!(x.or(&y), of(&a.union(&b).copied().collect()));
            prop_assert_eq!(x.minus(&y), of(&a.difference(&b).copied().collect()));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.intersects(&y), !a.is_disjoint(&b));
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.last().map(|c| c.0), a.last().copied());
            prop_assert_eq!(list(&x.to_string()), x.clone());
            prop_assert_eq!(CpuSet::parse_mask(&mask(&a)).unwrap(), x);
        }
    }
}
