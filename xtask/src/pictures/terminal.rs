//! A terminal with a command and what it printed.

use super::escaped;
use std::fmt::Write as _;

/// Size of a character.
const WIDE: f64 = 8.43;
const HIGH: f64 = 18.0;
const EDGE: f64 = 16.0;

/// Draws a screen of text.
pub fn svg(command: &str, screen: &str) -> String {
    let lines: Vec<String> = std::iter::once(format!("$ {command}")).chain(screen.lines().map(str::to_owned)).collect();
    let columns = lines.iter().map(|line| line.trim_end().chars().count()).max().unwrap_or_default();
    let (width, height) = (columns as f64 * WIDE + 2.0 * EDGE, lines.len() as f64 * HIGH + 2.0 * EDGE);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n\
         <style>text {{ font: 14px ui-monospace, 'DejaVu Sans Mono', monospace; fill: #dfe3e8; white-space: pre }} .command {{ fill: #8ab4f8 }}</style>\n\
         <rect width=\"{width:.0}\" height=\"{height:.0}\" rx=\"8\" fill=\"#16191e\"/>\n",
        escaped(command),
    );
    for (n, line) in lines.iter().enumerate() {
        let class = if n == 0 { " class=\"command\"" } else { "" };
        let line = line.trim_end();
        if line.is_empty() {
            continue;
        }
        // Whatever the font is, columns stay under each other.
        let _ = writeln!(
            out,
            "<text x=\"{EDGE}\" y=\"{:.0}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\"{class}>{}</text>",
            EDGE + (n as f64 + 0.75) * HIGH,
            line.chars().count() as f64 * WIDE,
            escaped(line),
        );
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_drawn_line_by_line() {
        let svg = svg("cotenant top", "a <b>\n\n  c\n");
        assert!(svg.contains(">$ cotenant top<") && svg.contains(">a &lt;b&gt;<") && svg.contains(">  c<"), "{svg}");
        assert_eq!(svg.matches("<text").count(), 3);
    }
}
