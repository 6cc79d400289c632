//! A region file as a part of a report: its regions, and the source that they name, coloured by score.

use super::page::{Block, Listing, Section, SourceLine, Table};
use cotenant_model::region::Region;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines that are shown around a region.
const AROUND: u32 = 3;

/// Whether a text is a region file, by its first line that is no comment.
pub fn is_regions(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next() == Some("[[region]]")
}

/// The section of a region file that lies in `folder`. Sources are looked for where they are named: as they stand,
/// and from that folder.
pub fn section(title: String, regions: &[Region], folder: &Path) -> Section {
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
    for (file, regions) in of_file {
        let places: [PathBuf; 2] = [file.into(), folder.join(file)];
        let Some(source) = places.iter().find_map(|path| fs::read_to_string(path).ok()) else {
            blocks.push(Block::Text(format!("{file}: the source is not here, so it is not shown.")));
            continue;
        };
        blocks.push(Block::Listing(listing(file, &source, &regions, highest)));
    }
    Section { title, blocks }
}

/// The lines of a source around its regions.
fn listing(name: &str, source: &str, regions: &[&Region], highest: f64) -> Listing {
    let score = |line: u32| {
        let here = regions.iter().filter(|r| r.lines.is_some_and(|(first, last)| (first..=last).contains(&line)));
        here.map(|region| region.score).max_by(f64::total_cmp)
    };
    let near = |line: u32| {
        regions
            .iter()
            .filter_map(|r| r.lines)
            .any(|(first, last)| line + AROUND >= first && line <= last.saturating_add(AROUND))
    };
    let shown = (1..).zip(source.lines()).filter(|(line, _)| near(*line));
    let lines =
        shown.map(|(number, text)| SourceLine { number, text: text.to_owned(), score: score(number) }).collect();
    Listing { caption: format!("{name}, coloured by score"), lines, highest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::html;

    fn region(lines: (u32, u32), score: f64) -> Region {
        Region { function: Some("f".into()), file: Some("a.c".into()), lines: Some(lines), score, coverage: 0.5 }
    }

    #[test]
    fn lines_have_the_score_of_the_worst_region_that_holds_them() {
        let source = (1..=40).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
        let (outer, inner) = (region((10, 20), 0.2), region((12, 13), 0.8));
        let listing = listing("a.c", &source, &[&outer, &inner, &region((30, 30), 0.0)], 0.8);
        let numbers: Vec<u32> = listing.lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, (7..=23).chain(27..=33).collect::<Vec<u32>>());
        let score = |n: u32| listing.lines.iter().find(|line| line.number == n).unwrap().score;
        assert_eq!([9, 10, 12, 13, 14, 21].map(score), [None, Some(0.2), Some(0.8), Some(0.8), Some(0.2), None]);
        let page = html("t", &[Section { title: "s".into(), blocks: vec![Block::Listing(listing)] }]);
        assert!(page.contains("line 12</td><td class=\"n\">0.800</td>"), "{page}");
        assert_eq!(page.matches("class=\"gap\"").count(), 1, "between 23 and 27");
    }

    #[test]
    fn region_files_are_told_apart() {
        assert!(is_regions("# made by hand\n\n[[region]]\nfunction = 'f'\n"));
        assert!(!is_regions("[1, 2]") && !is_regions("[[app]]\n") && !is_regions(""));
    }
}
