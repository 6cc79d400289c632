//! A terminal with a command and its output.

use super::svg::escaped;
use std::fmt::Write as _;

/// Size of a character.
const WIDE: f64 = 8.43;
const HIGH: f64 = 18.0;
const EDGE: f64 = 16.0;

/// Draws a screen of text. Names of services have the colours of their classes, which a terminal gives them, too.
pub fn svg(command: &str, screen: &str, classes: &[(String, String)]) -> String {
    let lines: Vec<String> = std::iter::once(format!("$ {command}")).chain(screen.lines().map(str::to_owned)).collect();
    let columns = lines.iter().map(|line| line.trim_end().chars().count()).max().unwrap_or_default();
    let (width, height) = (columns as f64 * WIDE + 2.0 * EDGE, lines.len() as f64 * HIGH + 2.0 * EDGE);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n\
         <style>text {{ font: 14px ui-monospace, 'DejaVu Sans Mono', monospace; fill: #dfe3e8; white-space: pre }} .command {{ fill: #8ab4f8 }}\n\
         .head {{ fill: #9aa4af }} .high {{ fill: #5fd38d }} .low {{ fill: #d9a0e8 }} .normal {{ fill: #e6e9ed }}</style>\n\
         <rect width=\"{width:.0}\" height=\"{height:.0}\" rx=\"8\" fill=\"#16191e\"/>\n",
        escaped(command),
    );
    for (n, line) in lines.iter().enumerate() {
        let line = line.trim_end();
        if line.is_empty() {
            continue;
        }
        let (class, text) = match line {
            _ if n == 0 => (" class=\"command\"", escaped(line)),
            _ if line.starts_with('─') => (" class=\"head\"", escaped(line)),
            _ => ("", coloured(line, classes)),
        };
        // Columns stay aligned in any font.
        let _ = writeln!(
            out,
            "<text x=\"{EDGE}\" y=\"{:.0}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\"{class}>{text}</text>",
            EDGE + (n as f64 + 0.75) * HIGH,
            line.chars().count() as f64 * WIDE,
        );
    }
    out + "</svg>\n"
}

/// A line with names in the colours of their classes.
fn coloured(line: &str, classes: &[(String, String)]) -> String {
    let (mut out, mut rest) = (String::new(), line);
    let next = |text: &str| {
        let found = classes.iter().filter_map(|(name, class)| Some((word(text, name)?, name.len(), class)));
        found.min_by_key(|(at, ..)| *at)
    };
    while let Some((at, length, class)) = next(rest) {
        let (before, behind) = rest.split_at(at);
        let (name, behind) = behind.split_at(length);
        let _ = write!(out, "{}<tspan class=\"{class}\">{}</tspan>", escaped(before), escaped(name));
        rest = behind;
    }
    out + &escaped(rest)
}

/// The place of a name as a separate word.
fn word(text: &str, name: &str) -> Option<usize> {
    let apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    let found = text.match_indices(name).map(|(at, _)| at);
    let mut alone = found.filter(|at| {
        apart(text[..*at].chars().next_back()) && apart(text[at + name.len()..].chars().next()) //
    });
    alone.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_drawn_line_by_line() {
        let svg = svg("cotenant top", "a <b>\n\n  c\n─ d\n", &[]);
        assert!(svg.contains(">$ cotenant top<") && svg.contains(">a &lt;b&gt;<") && svg.contains(">  c<"), "{svg}");
        assert_eq!((svg.matches("<text").count(), svg.matches(" class=\"head\"").count()), (4, 1));
    }

    #[test]
    fn names_have_the_colours_of_their_classes() {
        let classes = [("web".to_owned(), "high".to_owned()), ("batch".to_owned(), "low".to_owned())];
        let told = coloured("website batch: web & batch", &classes);
        let [web, batch] = ["high\">web", "low\">batch"].map(|inside| format!("<tspan class=\"{inside}</tspan>"));
        assert_eq!(told, format!("website {batch}: {web} &amp; {batch}"));
    }
}
