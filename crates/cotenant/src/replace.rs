//! Files that are there as a whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes beside the file and renames: whoever reads it sees the old text or the new one, never a half. What
/// a link names is replaced, and a pipe or device is written to.
///
/// # Errors
/// Where it cannot be written; what was there before is still there.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|what| !what.is_file()) {
        return fs::write(path, bytes);
    }
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut draft = OsString::from(".");
    draft.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    draft.push(format!(".{}", std::process::id()));
    let draft = path.with_file_name(draft);
    let attempt = || {
        let mut file = File::create(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    attempt().inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })
}
