//! The data of a report for its scripts.

use crate::plots::Plots;
use crate::status::{Decision, Trial};
use cotenant_model::interference::Row;
use serde::Serialize;

/// The data of a recording.
#[derive(Serialize)]
pub struct Embedded {
    /// Plots over the time of the recording.
    pub history: Plots,
    /// Certain losses.
    pub interference: Vec<Row>,
    /// Trials of placements.
    pub trials: Vec<Trial>,
    /// The last decisions.
    pub last: Vec<Decision>,
}

impl Embedded {
    /// As JSON that cannot break out of HTML or XML, because none of its characters is special there.
    ///
    /// # Errors
    /// Errors of writing it as JSON.
    pub fn json(&self) -> anyhow::Result<String> {
        Ok(safe(&serde_json::to_string(self)?))
    }
}

fn safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            // XML has no place for these, however they are written.
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{FFFE}' | '\u{FFFF}' => safe.push_str("\\ufffd"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_json_and_no_markup() {
        let evil = "</script><!--<script>]]>&amp;\u{2028}\u{0}\"\\";
        let safe = safe(&serde_json::to_string(&[evil]).unwrap());
        assert!(!safe.contains(['<', '>', '&', '\u{2028}', '\u{0}']), "{safe}");
        let read: Vec<String> = serde_json::from_str(&safe).unwrap();
        assert_eq!(read[0], evil.replace('\u{2028}', "\u{FFFD}"));
    }
}
