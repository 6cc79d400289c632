//! The scripts of a report as one text; by its hash, the page allows no other script.

/// Between marks that make it plain text to XML, and comments to a browser.
const TEXT: [&str; 5] = ["/*<![CDATA[*/\n", super::UPLOT, super::PARTS, include_str!("report.js"), "/*]]>*/"];

/// All of it.
pub fn text() -> String {
    TEXT.concat()
}

/// Its SHA-256, as a policy for content names it.
pub const HASH: &str = "sha256-NS7LAWb0742QobwY8aPenVimdvvbZkBNTmCpssPy5q8=";

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// Holds record/report-safe.
    #[test]
    fn the_hash_is_that_of_the_text() {
        let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        sum.stdin.take().unwrap().write_all(text().as_bytes()).unwrap();
        let said = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
        let bytes: Vec<u8> = (0..32).map(|i| u8::from_str_radix(&said[2 * i..2 * i + 2], 16).unwrap()).collect();
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for three in bytes.chunks(3) {
            let all = [0, 1, 2].iter().fold(0_u32, |all, i| all << 8 | u32::from(*three.get(*i).unwrap_or(&0)));
            for i in 0..4 {
                let digit = digits[(all >> (18 - 6 * i) & 63) as usize];
                text.push(if i <= three.len() { char::from(digit) } else { '=' });
            }
        }
        assert_eq!(HASH, format!("sha256-{text}"), "the scripts have changed: write this there");
    }

    /// Nothing in it ends what it stands in.
    #[test]
    fn it_stays_inside() {
        let text = text();
        assert_eq!(text.matches("]]>").count(), 1);
        assert!(!text.to_lowercase().contains("</script") && !text.contains("<!--"));
    }
}
