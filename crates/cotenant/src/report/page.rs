//! Parts of a report, and its rendering as one self-contained HTML page.

use super::escape::escape;
use super::figure::Figure;
use cotenant_status::page::scripts;
use std::fmt::Write;

/// A part of the page: one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Its contents in order.
    pub blocks: Vec<Block>,
    /// The data of its parts, as JSON that is safe in a page.
    pub embedded: Option<String>,
}

/// A part drawn by scripts, like the live page of the daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Which part of it.
    pub name: &'static str,
    /// Content without scripts.
    pub still: Vec<Block>,
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A heading below the section's.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// An important paragraph.
    Warning(String),
    /// Names with values.
    Facts(Vec<(String, String)>),
    /// A table.
    Table(Table),
    /// A figure.
    Figure(Figure),
    /// A part that scripts draw.
    Part(Part),
    /// Source code.
    Listing(Listing),
}

/// Lines of a source, coloured by score.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// Its subject.
    pub caption: String,
    /// Lines, in order; where some are left out, a gap is shown.
    pub lines: Vec<SourceLine>,
    /// The score that has the full colour.
    pub highest: f64,
}

/// A line of a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceLine {
    /// Its number, from 1.
    pub number: u32,
    /// Its text.
    pub text: String,
    /// Its score; `None` outside all regions.
    pub score: Option<f64>,
}

/// A table with a caption.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Its subject.
    pub caption: String,
    /// Headings of the columns; numeric columns are right-aligned.
    pub head: Vec<(String, Align)>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
    /// Whether it is long, and so collapsed until opened or printed.
    pub folded: bool,
}

/// Alignment of a column's cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// Words.
    #[default]
    Left,
    /// Numbers.
    Right,
}

impl Table {
    /// An empty one; heads that begin with `#` are of numbers.
    pub fn new(caption: impl Into<String>, head: &[&str]) -> Self {
        let column = |head: &&str| match head.strip_prefix('#') {
            Some(head) => (head.to_owned(), Align::Right),
            None => ((*head).to_owned(), Align::Left),
        };
        Self { caption: caption.into(), head: head.iter().map(column).collect(), rows: Vec::new(), folded: false }
    }
}

impl Block {
    /// The figures in it.
    pub fn figures(&self) -> Vec<&Figure> {
        match self {
            Self::Figure(figure) => vec![figure],
            Self::Part(part) => part.still.iter().flat_map(Self::figures).collect(),
            _ => Vec::new(),
        }
    }
}

/// The page. It is well-formed XML too, so that other programs can take it apart. Its scripts are our own ones: no
/// other may run.
pub fn html(title: &str, sections: &[Section]) -> String {
    let scripted = sections.iter().any(|section| section.embedded.is_some());
    let allowed = if scripted { format!("; script-src '{}'", scripts::HASH) } else { String::new() };
    let plots = if scripted { cotenant_status::page::UPLOT_CSS } else { "" };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:{allowed}\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n\
         <title>{}</title>\n<style>{plots}{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n",
        escape(title),
        cotenant_status::page::STYLE,
        escape(title)
    );
    if sections.len() > 1 {
        page.push_str("<nav aria-label=\"Contents\"><ul>\n");
        for (i, section) in sections.iter().enumerate() {
            let _ = writeln!(page, "<li><a href=\"#s{i}\">{}</a></li>", escape(&section.title));
        }
        page.push_str("</ul></nav>\n");
    }
    for (i, section) in sections.iter().enumerate() {
        let heading = escape(&section.title);
        let embedded = section.embedded.as_ref().map_or_else(String::new, |_| format!(" data-embedded=\"s{i}-data\""));
        // The title of a page with one section describes it.
        let _ = if sections.len() == 1 {
            writeln!(page, "<section aria-label=\"{heading}\"{embedded}>")
        } else {
            writeln!(
                page,
                "<section id=\"s{i}\" aria-labelledby=\"s{i}-h\"{embedded}>\n<h2 id=\"s{i}-h\">{heading}</h2>"
            )
        };
        for (k, block) in section.blocks.iter().enumerate() {
            write_block(&mut page, block, &format!("s{i}b{k}"));
        }
        if let Some(embedded) = &section.embedded {
            let _ = writeln!(page, "<script type=\"application/json\" id=\"s{i}-data\">{embedded}</script>");
        }
        page.push_str("</section>\n");
    }
    let _ = writeln!(page, "</main>\n<footer>Made by cotenant {}.</footer>", env!("CARGO_PKG_VERSION"));
    if scripted {
        let _ = writeln!(page, "<script>{}</script>", scripts::text());
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn write_block(page: &mut String, block: &Block, id: &str) {
    let _ = match block {
        Block::Heading(text) => writeln!(page, "<h3>{}</h3>", escape(text)),
        Block::Text(text) => writeln!(page, "<p>{}</p>", escape(text)),
        Block::Warning(text) => {
            writeln!(page, "<p class=\"warning\" role=\"note\"><strong>Note:</strong> {}</p>", escape(text))
        }
        Block::Facts(facts) => {
            page.push_str("<dl>\n");
            for (name, value) in facts {
                let _ = writeln!(page, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
            }
            writeln!(page, "</dl>")
        }
        Block::Table(table) => {
            write_table(page, table);
            Ok(())
        }
        Block::Listing(listing) => {
            write_listing(page, listing);
            Ok(())
        }
        Block::Part(part) => {
            let _ = writeln!(page, "<div class=\"plots\" data-part=\"{}\">", part.name);
            for (k, block) in part.still.iter().enumerate() {
                write_block(page, block, &format!("{id}p{k}"));
            }
            writeln!(page, "</div>")
        }
        Block::Figure(figure) => {
            let (title, svg) = (escape(&figure.title), figure.inline(id));
            writeln!(
                page,
                "<figure>\n<figcaption>{title}</figcaption>\n{}{svg}</div>\n</figure>",
                scrolled(&figure.title)
            )
        }
    };
}

/// The beginning of a scrollable box for wide content; reachable without a mouse.
fn scrolled(title: &str) -> String {
    format!("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">", escape(title))
}

fn write_table(page: &mut String, table: &Table) {
    let caption = escape(&table.caption);
    if table.folded {
        let _ = writeln!(page, "<details><summary>{caption}</summary>");
    }
    let _ = writeln!(page, "{}<table>\n<caption>{caption}</caption>\n<thead><tr>", scrolled(&table.caption));
    let class = |i: usize| match table.head.get(i) {
        Some((_, Align::Right)) => " class=\"n\"",
        _ => "",
    };
    for (i, (head, _)) in table.head.iter().enumerate() {
        let _ = write!(page, "<th scope=\"col\"{}>{}</th>", class(i), escape(head));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        page.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let (tag, scope) = if i == 0 { ("th", " scope=\"row\"") } else { ("td", "") };
            let _ = write!(page, "<{tag}{scope}{}>{}</{tag}>", class(i), escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    if table.folded {
        page.push_str("</details>\n");
    }
}

/// One row per line. Its score is also given as a number, for readers who cannot distinguish the colours.
fn write_listing(page: &mut String, listing: &Listing) {
    let caption = escape(&listing.caption);
    let _ = writeln!(
        page,
        "{}<table class=\"source\">\n<caption>{caption}</caption>\n<thead><tr><th scope=\"col\" class=\"n\">line</th>\
         <th scope=\"col\">source</th><th scope=\"col\" class=\"n\">score</th></tr></thead>\n<tbody>",
        scrolled(&listing.caption)
    );
    let mut before = None;
    for line in &listing.lines {
        if before.is_some_and(|before| before + 1 < line.number) {
            page.push_str("<tr class=\"gap\"><th scope=\"row\" class=\"n\">…</th><td></td><td></td></tr>\n");
        }
        before = Some(line.number);
        let (style, score) = line.score.map_or_else(Default::default, |score| {
            let part = if listing.highest > 0.0 { (score / listing.highest).clamp(0.0, 1.0) } else { 0.0 };
            let style = format!(" style=\"background: rgba(214, 69, 35, {:.2})\"", 0.08 + 0.5 * part);
            (style, format!("{score:.3}"))
        });
        let (number, text) = (line.number, escape(&line.text));
        let _ = writeln!(
            page,
            "<tr{style}><th scope=\"row\" class=\"n\">{number}</th><td>{text}</td><td class=\"n\">{score}</td></tr>"
        );
    }
    page.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_stands_in_the_data_stays_text() {
        let evil = "<script>alert('1')</script>&\"\0";
        let mut table = Table::new(evil, &["a", "#b"]);
        table.rows.push(vec![evil.to_owned(), "1".to_owned()]);
        let blocks = vec![
            Block::Heading(evil.into()),
            Block::Text(evil.into()),
            Block::Warning(evil.into()),
            Block::Facts(vec![(evil.into(), evil.into())]),
            Block::Table(Table { folded: true, ..table }),
            Block::Listing(Listing {
                caption: evil.into(),
                lines: vec![SourceLine { number: 1, text: evil.into(), score: Some(0.5) }],
                highest: 1.0,
            }),
        ];
        let page = html(evil, &[Section { title: evil.into(), blocks, embedded: None }, Section::default()]);
        assert!(!page.contains("<script") && !page.contains('\0'));
        assert_eq!(page.matches("&lt;script&gt;alert(&#39;1&#39;)").count(), 16, "in every place");
        assert!(page.contains("<th scope=\"row\">") && page.contains("<td class=\"n\">1</td>"));
    }
}
