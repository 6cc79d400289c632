//! External text before printing: names of threads and programs, keys and texts of files, servers' answers. A terminal
//! obeys escape sequences in it, newlines forge lines of ours, and direction marks reorder what people read. Everything
//! printed passes through here, and all of it stays visible.
//!
//! Escapes are JSON's. So cleaned JSON keeps its meaning, and cleaning twice equals cleaning once.

use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Characters of a name: as many as a file's may have bytes.
pub const NAME: usize = 255;
/// Characters of one line for people, such as an error.
pub const LINE: usize = 500;

/// Whether a terminal obeys the character, or people cannot see it in place.
fn is_foreign(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text with every misleading character escaped, and every other one that `kept` excludes.
fn escaped(text: &str, kept: fn(char) -> bool) -> Cow<'_, str> {
    let is_bad = |c: char| is_foreign(c) && !kept(c);
    if !text.contains(is_bad) {
        return text.into();
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_bad(c) => clean.push(c),
            '\n' => clean.push_str("\\n"),
            '\r' => clean.push_str("\\r"),
            '\t' => clean.push_str("\\t"),
            c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                let _ = write!(clean, "\\u{unit:04x}"); // writing to a String cannot fail
            }),
        }
    }
    clean.into()
}

/// The text as a part of one line, however long.
pub fn clean(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// The text as at most `most` characters of one line. A longer one keeps both ends: an error begins with the event and
/// ends with the place.
pub fn within(text: &str, most: usize) -> Cow<'_, str> {
    // The omitted middle is not cleaned, because it may be a hundred megabytes.
    if text.len() <= most && !text.contains(is_foreign) {
        return text.into();
    }
    let ends = (text.char_indices().nth(most).map(|(at, _)| at), text.char_indices().nth_back(most));
    let text = match ends {
        (Some(head), Some((tail, _))) if head < tail => {
            return within_clean(&format!("{}…{}", clean(&text[..head]), clean(&text[tail..])), most).into();
        }
        _ => clean(text),
    };
    if text.chars().nth(most).is_some() { within_clean(&text, most).into() } else { text }
}

fn within_clean(text: &str, most: usize) -> String {
    let tail = most / 3;
    let head = most.saturating_sub(tail + 1);
    let chars = text.chars().count();
    text.chars().take(head).chain(['…']).chain(text.chars().skip(chars - tail)).collect()
}

/// An external name, as shown and stored.
pub fn name(bytes: &[u8]) -> String {
    within(&String::from_utf8_lossy(bytes), NAME).into_owned()
}

/// A name from a file: for `#[serde(deserialize_with = …)]`.
///
/// # Errors
/// If it is not text.
pub fn name_of<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(name(Cow::<str>::deserialize(from)?.as_bytes()))
}

/// Remarks from a file, each one line: for `#[serde(deserialize_with = …)]`.
///
/// # Errors
/// If they are not a list of texts.
pub fn lines_of<'de, D: Deserializer<'de>, T: From<Vec<String>>>(from: D) -> Result<T, D::Error> {
    let lines = Vec::<Cow<'_, str>>::deserialize(from)?;
    Ok(lines.iter().map(|line| within(line, LINE).into_owned()).collect::<Vec<_>>().into())
}

/// A text from a file that is part of a line: for `#[serde(deserialize_with = …)]`.
///
/// # Errors
/// If it is not text.
pub fn line_of<'de, D: Deserializer<'de>, T: From<String>>(from: D) -> Result<T, D::Error> {
    Ok(within(&Cow::<str>::deserialize(from)?, LINE).into_owned().into())
}

/// Multi-line text for a terminal: newlines and tabs stay, the rest is [`clean`].
#[derive(Debug)]
pub struct Clean<W>(pub W);

impl<W: Write> Write for Clean<W> {
    /// Piece by piece, as formatting passes them: no character is split.
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        for chunk in piece.utf8_chunks() {
            self.0.write_all(escaped(chunk.valid(), |c| matches!(c, '\n' | '\t')).as_bytes())?;
            if !chunk.invalid().is_empty() {
                self.0.write_all("\u{fffd}".as_bytes())?;
            }
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_obeys_is_seen() {
        assert_eq!(clean("wörker-1 日本"), "wörker-1 日本");
        assert_eq!(clean("a\x1b[2Jb\x07\u{9b}1m\r\n\t\0"), "a\\u001b[2Jb\\u0007\\u009b1m\\r\\n\\t\\u0000");
        assert_eq!(clean("x\u{202e}gpj.exe\u{2066}\u{e0041}"), "x\\u202egpj.exe\\u2066\\udb40\\udc41");
        assert_eq!(name(b"a\xff\x1b"), "a\u{fffd}\\u001b");
    }

    #[test]
    fn both_ends_of_what_is_long_are_kept() {
        assert_eq!(within("abcdefghij", 10), "abcdefghij");
        assert_eq!(within("abcdefghijk", 10), "abcdef…ijk");
        assert_eq!(within("ab\ncdefghi", 10), "ab\\ncd…ghi");
        assert_eq!(within(&format!("unknown {} at line 3", "x".repeat(200_000)), 40).chars().count(), 40);
        assert!(within(&format!("{}at line 3", "x".repeat(200_000)), 40).ends_with("at line 3"));
        assert_eq!(["", "a", "ab"].map(|text| within(text, 1)), ["", "a", "…"]);
    }

    /// Holds run/foreign-text.
    #[test]
    fn json_means_the_same_afterwards() {
        let json = serde_json::json!({"a\u{7f}\u{202e}\u{e0041}": ["\x1b[2J", "\u{9b}"]});
        let mut out = Clean(Vec::new());
        serde_json::to_writer_pretty(&mut out, &json).unwrap();
        let text = String::from_utf8(out.0).unwrap();
        assert!(!text.contains(|c| is_foreign(c) && c != '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), json);
    }

    proptest! {
        /// Promise run/foreign-text: Names and other foreign text are escaped before any command prints them; an
        /// error is one line of at most 500 characters.
        #[test]
        fn any_text_is_clean_once_and_for_all(text in any::<String>(), most in 1usize..40) {
            let once = clean(&text).into_owned();
            prop_assert!(!once.contains(is_foreign));
            prop_assert_eq!(clean(&once), &*once);
            let cut = within(&text, most).into_owned();
            prop_assert!(!cut.contains(is_foreign) && cut.chars().count() <= most);
            prop_assert_eq!(within(&cut, most), &*cut);
        }

        #[test]
        fn any_bytes_are_text_afterwards(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut out = Clean(Vec::new());
            out.write_all(&bytes).unwrap();
            prop_assert!(!String::from_utf8(out.0).unwrap().contains(|c| is_foreign(c) && c != '\n' && c != '\t'));
        }
    }
}
