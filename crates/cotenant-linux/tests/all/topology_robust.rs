//! Damaged input: a reader may refuse it, but neither panics nor hangs.

use crate::oracle::{copy, shared};
use crate::random::Random;
use cotenant_linux::FsRoot;
use cotenant_linux::sense::topology;
use cotenant_model::topology::xml;
use std::fs;
use std::path::{Path, PathBuf};

/// Cuts, overwrites, repeats or inserts a part.
fn damage(random: &mut Random, text: &[u8]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    let at = random.below(bytes.len() + 1);
    let end = (at + random.below(40)).min(bytes.len());
    let part = bytes[at..end].to_vec();
    let with: &[u8] = match random.below(8) {
        0 => b"",
        1 => b"99999999999999999999",
        2 => b"-1",
        3 => b"0-65535",
        4 => b"ffffffff,ffffffff,ffffffff",
        5 => &[0xff, 0x00, 0xc3],
        6 => b"\"><\n: ",
        _ => &part,
    };
    match random.below(3) {
        0 => bytes.truncate(at),
        1 => drop(bytes.splice(at..end, with.iter().copied())),
        _ => drop(bytes.splice(at..at, with.iter().copied())),
    }
    bytes
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
}

/// Holds see/damaged-input.
#[test]
fn damaged_dumps() {
    let test = "damaged_dumps";
    for name in ["16em64t-4s2c2t-offlines", "16amd64-8n2c-cpusets", "2arm-2c"] {
        let Some(root) = copy(test, name) else { return };
        let mut all = Vec::new();
        files(&root, &mut all);
        all.sort();
        let mut random = Random(7);
        let (mut read, mut refused) = (0, 0);
        for _ in 0..150 {
            // Several at once, so that contradictions vary.
            let hit: Vec<(PathBuf, Vec<u8>)> = (0..=random.below(12))
                .map(|_| all[random.below(all.len())].clone())
                .map(|path| (path.clone(), fs::read(&path).unwrap()))
                .collect();
            for (path, text) in &hit {
                fs::write(path, damage(&mut random, text)).unwrap();
            }
            match topology::read(&FsRoot::at(&root), None) {
                Ok(_) => read += 1,
                Err(e) => {
                    refused += 1;
                    assert!(!e.to_string().contains('\n'), "{e}");
                }
            }
            for (path, text) in hit.iter().rev() {
                fs::write(path, text).unwrap();
            }
        }
        fs::remove_dir_all(&root).unwrap();
        // Most damage concerns one value, which is then unknown.
        assert!(read > refused, "{name}: {read} read, {refused} refused");
    }
}

/// Holds see/damaged-input.
#[test]
fn damaged_xml() {
    let Some(path) = shared("damaged_xml", "topologies/40intel64-2g2n4c+pcilocality.xml") else { return };
    let text = fs::read(path).unwrap();
    let mut random = Random(11);
    let mut refused = 0;
    for _ in 0..300 {
        let mut damaged = damage(&mut random, &text);
        if random.below(2) == 0 {
            damaged = damage(&mut random, &damaged);
        }
        if let Err(e) = xml::parse(&String::from_utf8_lossy(&damaged)) {
            refused += 1;
            assert!(e.line > 0 && e.column > 0, "{e}");
        }
    }
    assert!(refused > 0);
}

#[test]
fn a_cut_xml_is_refused_wherever_it_ends() {
    let Some(path) = shared("a_cut_xml", "topologies/40intel64-2g2n4c+pcilocality.xml") else { return };
    let text = fs::read_to_string(path).unwrap();
    let end = text.trim_end().len();
    for cut in (0..end).step_by(end / 100) {
        assert!(xml::parse(&text[..cut]).is_err(), "cut at {cut}");
    }
}
