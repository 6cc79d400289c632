//! Malformed input: mutated versions of good input. A parser may refuse any, but must survive all.

use fastrand::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Passes mutated versions of good inputs to a parser: `usual` of them, or `COTENANT_INPUTS`. Deterministic.
///
/// # Panics
/// With the first input on which the parser panics.
pub fn survives(parser: &str, good: &[Vec<u8>], usual: u64, parse: impl Fn(&[u8])) {
    let asked = std::env::var("COTENANT_INPUTS").ok().and_then(|number| number.parse().ok());
    let inputs = asked.unwrap_or(usual);
    for n in 0..inputs {
        let mut random = Rng::with_seed(n ^ u64::from(crc32fast::hash(parser.as_bytes())) << 32);
        let (seed, other) = (&good[random.usize(..good.len())], &good[random.usize(..good.len())]);
        let input = mutate(seed, other, &mut random);
        let survived = catch_unwind(AssertUnwindSafe(|| parse(&input))).is_ok();
        assert!(survived, "{parser}: input {n} is not survived: {}", input.escape_ascii());
    }
    eprintln!("{parser}: {inputs} inputs survived");
}

/// Numbers and pieces that are hard for parsers.
const PIECES: &[&[u8]] = &[
    b"0",
    b"-1",
    b"1e999",
    b"nan",
    b"inf",
    b"4294967296",
    b"18446744073709551615",
    b"99999999999999999999",
    b"0x",
    b",",
    b":",
    b"-",
    b"..",
    b"[",
    b"]",
    b"{",
    b"}",
    b"(",
    b")",
    b"\"",
    b"\\",
    b"\n",
    b"\0",
    b"\xff",
    b"\xc3\xa4",
    b"[[[[[[[[",
    b"null",
    b"true",
    b"&#x41;",
];

fn mutate(seed: &[u8], other: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.usize(..4) {
        let (at, length) = (random.usize(..=bytes.len()), 1 + random.usize(..16));
        let end = (at + length).min(bytes.len());
        match random.usize(..8) {
            0 if at < end => bytes[at] ^= 1 << random.usize(..8),
            1 if at < end => bytes[at] = random.u8(..),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(at),
            4 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            5 => {
                let piece = PIECES[random.usize(..PIECES.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            6 => {
                // A number becomes another one.
                let from = bytes[at..].iter().position(u8::is_ascii_digit).map_or(at, |i| at + i);
                let digits = bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
                let number = PIECES[random.usize(..8)];
                bytes.splice(from..from + digits, number.iter().copied());
            }
            _ => {
                let from = random.usize(..=other.len());
                let piece = &other[from..(from + length).min(other.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }
    bytes
}
