//! A cpio archive in the format `newc` (`Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel),
//! uncompressed, since unpacking is what an emulated CPU is slowest at.

pub const FOLDER: u32 = 0o040_755;
pub const PROGRAM: u32 = 0o100_755;
pub const TEXT: u32 = 0o100_644;
pub const LINK: u32 = 0o120_777;

/// A file system that is being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// A file by its path without the first slash; its folder precedes it. The content of a link is its target.
    pub fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        let fields = [
            self.inode,
            mode,
            0, // uid
            0, // gid
            1, // links
            0, // time
            content.len() as u32,
            0, // device, major
            0, // device, minor
            0,
            0,
            name.len() as u32 + 1,
            0, // checksum: unused in this format
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub fn close(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, b"");
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_aligned_entries_and_a_trailer() {
        let mut archive = Archive::default();
        archive.add("init", PROGRAM, b"abcde");
        let bytes = archive.close();
        assert_eq!(&bytes[..22], b"07070100000001000081ed");
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..124], b"abcde\0\0\0");
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.windows(10).any(|w| w == b"TRAILER!!!"));
    }
}
