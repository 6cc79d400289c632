//! Text of files that a user names. Waiting for the writer of a pipe can be interrupted, which takes the signals of
//! [`crate::sys`].

use crate::bounded::{Limit, given, rest_text};
use crate::sys::SignalMask;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The text of a file named by a user: a regular file, or a pipe, for whose writer this waits.
///
/// # Errors
/// As [`bounded::text`](crate::bounded::text); `InvalidInput` for other files.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    text_if(path, |_| Ok(()))
}

/// The same with a check of the opened file.
///
/// # Errors
/// As [`text`], and as `may`.
pub fn text_if(path: impl AsRef<Path>, may: impl Fn(&Metadata) -> io::Result<()>) -> io::Result<String> {
    let read = |path| {
        let mut file = given(path)?;
        may(&file.metadata()?)?;
        rest_text(&mut file, Limit::Named)
    };
    if !path.as_ref().metadata()?.file_type().is_fifo() {
        return read(path);
    }
    // A wait for a writer can be interrupted, even with signals blocked for programs to start.
    let held = SignalMask::current();
    SignalMask::outer().apply()?;
    let text = read(path);
    held.apply()?;
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;
    use std::fs::File;
    use std::io::ErrorKind;

    /// What a user names may be a pipe, whose writer may be slow; a device is refused before it is read.
    #[test]
    fn what_a_user_names_is_a_file_or_a_pipe() {
        let dir = TempDir::new("given");
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::write(pipe, "from a pipe").unwrap()
        });
        assert_eq!(text(&pipe).unwrap(), "from a pipe");
        writer.join().unwrap();
        for device in ["/dev/zero", "/dev/tty"] {
            let why = text(device).unwrap_err().to_string();
            assert_eq!(why, "it is neither a regular file nor a pipe", "{device}");
        }
        assert_eq!(text("/dev/null").unwrap(), "");
        assert_eq!(text(dir.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        dir.write("a", "text");
        assert_eq!(text(dir.path().join("a")).unwrap(), "text");
        File::create(dir.path().join("long")).unwrap().set_len(Limit::Named.bytes() + 1).unwrap();
        assert_eq!(text(dir.path().join("long")).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}
