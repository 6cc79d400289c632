//! ELF files, section by section.

/// A section of [`elf`]: name, type, flags, content, and the length in its header if that is more than the content.
pub type Section<'a> = (&'a str, u32, u64, &'a [u8], u64);

/// An ELF file with these sections, whose first page is loaded at 0x1000. A section that claims more than its content
/// reaches beyond the end of the file.
pub fn elf(sections: &[Section<'_>]) -> Vec<u8> {
    let mut names = b"\0.shstrtab\0".to_vec();
    let mut bytes = vec![0; 64 + 56];
    let mut table = vec![0; 64];
    let strings = sections.iter().position(|section| section.0 == ".strtab").map_or(0, |at| at + 2);
    let mut add = |name: usize, kind: u32, flags: u64, at: usize, length: u64, link: usize| {
        table.extend([(name as u32).to_le_bytes(), kind.to_le_bytes()].concat());
        table.extend([flags, 0, at as u64, length].map(u64::to_le_bytes).concat());
        table.extend([link as u32, 0].map(u32::to_le_bytes).concat());
        table.extend([1_u64, 24].map(u64::to_le_bytes).concat());
    };
    let starts = sections.iter().map(|(name, ..)| {
        let at = names.len();
        names.extend(name.bytes().chain([0]));
        at
    });
    let starts: Vec<usize> = starts.collect();
    add(1, 3, 0, bytes.len(), names.len() as u64, 0);
    bytes.extend(&names);
    for ((_, kind, flags, content, claimed), name) in sections.iter().zip(starts) {
        add(name, *kind, *flags, bytes.len(), (*claimed).max(content.len() as u64), strings);
        bytes.extend(*content);
    }
    let (at, count) = (bytes.len() as u64, sections.len() as u16 + 2);
    bytes.extend(table);
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    head.extend([0x1000, 64, at].map(u64::to_le_bytes).concat());
    head.extend(0_u32.to_le_bytes());
    head.extend([64, 56, 1, 64, count, 1].map(u16::to_le_bytes).concat());
    head.extend([1_u32, 5].map(u32::to_le_bytes).concat()); // loaded, to be read and executed
    head.extend([0, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000].map(u64::to_le_bytes).concat());
    bytes[..head.len()].copy_from_slice(&head);
    bytes
}
