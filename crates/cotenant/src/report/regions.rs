//! A region file as a part of a report: its regions, and their sources, coloured by score.

use super::page::{Block, Listing, Section, SourceLine, Table};
use cotenant_linux::bounded;
use cotenant_model::region::{self, Region};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Lines shown around a region.
const AROUND: u32 = 3;

/// Whether a text is a region file, by its first line that is not a comment.
pub fn is_regions(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next() == Some("[[region]]")
}

/// Limit of a region file's bytes in a report: some 10,000 regions.
const LONGEST: usize = 1 << 20;

/// Bytes of sources that a section shows. The region file chooses the sources, not the page's maker.
const SHOWN: usize = 1 << 20;

/// Bytes of a line on the page besides its text.
const A_LINE: usize = 64;

/// The regions of a file.
///
/// # Errors
/// `LINE:COLUMN: ` and the error.
pub fn parse(text: &str) -> Result<Vec<Region>, String> {
    if text.len() > LONGEST {
        return Err(format!("1:1: these are {} bytes of regions; at most {LONGEST} are shown", text.len()));
    }
    region::parse(text).map_err(|why| why.to_string())
}

/// File names for people: the first few.
pub fn listed(files: &[String]) -> String {
    let first = files.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    if files.len() > 5 { format!("{first} and {} more files", files.len() - 5) } else { first }
}

/// The section of a region file in `folder`, and its sources with shown lines. A source's path is tried as written, and
/// from that folder.
pub fn section(title: String, regions: &[Region], folder: &Path) -> (Section, Vec<String>) {
    let mut table = Table::new("Regions, as in the file", &["function", "file", "lines", "#score", "#coverage, %"]);
    let mut of_file: BTreeMap<&str, Vec<&Region>> = BTreeMap::new();
    for region in regions {
        let lines = region.lines.map_or_else(String::new, |(first, last)| format!("{first}–{last}"));
        let (function, file) = (region.function.clone().unwrap_or_default(), region.file.clone().unwrap_or_default());
        let (score, coverage) = (format!("{:.3}", region.score), format!("{:.1}", region.coverage * 100.0));
        table.rows.push(vec![function, file, lines, score, coverage]);
        if let (Some(file), Some(_)) = (&region.file, region.lines) {
            of_file.entry(file).or_default().push(region);
        }
    }
    let mut blocks = vec![Block::Table(table)];
    let highest = regions.iter().map(|region| region.score).fold(0.0, f64::max);
    let (mut shown, mut left) = (Vec::new(), SHOWN);
    for (file, regions) in of_file {
        let places: [PathBuf; 2] = [file.into(), folder.join(file)];
        let read = |path: &PathBuf| bounded::named_text(path);
        let found = read(&places[0]).or_else(|why| match why.kind() {
            ErrorKind::NotFound => read(&places[1]),
            _ => Err(why),
        });
        let why = match found.map(|source| listing(file, &source, &regions, highest, &mut left)) {
            Ok(Some(listing)) => {
                if !listing.lines.is_empty() {
                    shown.push(file.to_owned());
                }
                blocks.push(Block::Listing(listing));
                continue;
            }
            Ok(None) => format!("with it the page would show more than {} KiB of sources", SHOWN >> 10),
            Err(why) if why.kind() == ErrorKind::NotFound => "the source is not here".to_owned(),
            Err(why) => why.to_string(),
        };
        blocks.push(Block::Text(format!("{file}: {why}, so it is not shown.")));
    }
    if !shown.is_empty() {
        let remark = "Lines of these files are on this page; look at them before you share it";
        blocks.insert(1, Block::Text(format!("{remark}: {}.", shown.join(", "))));
    }
    (Section { title, blocks, embedded: None }, shown)
}

/// The lines of a source around its regions; `None` if they exceed the remaining bytes.
fn listing(name: &str, source: &str, regions: &[&Region], highest: f64, left: &mut usize) -> Option<Listing> {
    let score = |line: u32| {
        let here = regions.iter().filter(|r| r.lines.is_some_and(|(first, last)| (first..=last).contains(&line)));
        here.map(|region| region.score).max_by(f64::total_cmp)
    };
    let around = |(first, last): (u32, u32)| (first.saturating_sub(AROUND), last.saturating_add(AROUND));
    let mut near: Vec<(u32, u32)> = regions.iter().filter_map(|r| r.lines).map(around).collect();
    near.sort_unstable();
    let (mut near, mut lines, mut rest) = (near.into_iter().peekable(), Vec::new(), *left);
    for (number, text) in (1..).zip(source.lines()) {
        while near.next_if(|&(_, last)| last < number).is_some() {}
        if near.peek().is_some_and(|&(first, _)| first <= number) {
            rest = rest.checked_sub(text.len() + A_LINE)?;
            lines.push(SourceLine { number, text: text.to_owned(), score: score(number) });
        }
    }
    *left = rest;
    Some(Listing { caption: format!("{name}, coloured by score"), lines, highest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::html;

    fn region(lines: (u32, u32), score: f64) -> Region {
        Region { function: Some("f".into()), file: Some("a.c".into()), lines: Some(lines), score, coverage: 0.5 }
    }

    /// Holds compile/regions.
    #[test]
    fn lines_have_the_score_of_the_worst_region_that_holds_them() {
        let source = (1..=40).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
        let (outer, inner) = (region((10, 20), 0.2), region((12, 13), 0.8));
        let regions = [&outer, &inner, &region((30, 30), 0.0)];
        assert!(listing("a.c", &source, &regions, 0.8, &mut 1_000).is_none());
        let listing = listing("a.c", &source, &regions, 0.8, &mut 10_000).unwrap();
        let numbers: Vec<u32> = listing.lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, (7..=23).chain(27..=33).collect::<Vec<u32>>());
        let score = |n: u32| listing.lines.iter().find(|line| line.number == n).unwrap().score;
        assert_eq!([9, 10, 12, 13, 14, 21].map(score), [None, Some(0.2), Some(0.8), Some(0.8), Some(0.2), None]);
        let page = html("t", &[Section { title: "s".into(), blocks: vec![Block::Listing(listing)], embedded: None }]);
        assert!(page.contains("line 12</td><td class=\"n\">0.800</td>"), "{page}");
        assert_eq!(page.matches("class=\"gap\"").count(), 1, "between 23 and 27");
    }

    /// Holds compile/regions.
    #[test]
    fn region_files_are_told_apart() {
        assert!(is_regions("# made by hand\n\n[[region]]\nfunction = 'f'\n"));
        assert!(!is_regions("[1, 2]") && !is_regions("[[app]]\n") && !is_regions(""));
    }
}
