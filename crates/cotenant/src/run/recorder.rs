//! Recording to a file: opened before anything is started; its errors never end a run.

use anyhow::Result;
use cotenant_cli::usage;
use cotenant_model::host::Round;
use cotenant_model::usage::Seen;
use cotenant_record::{Header, MAGIC, RecordWriter, Status};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Arguments of the subcommands that record on the side.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Recording")]
#[group(id = "recording")]
pub struct Args {
    /// Record samples, decisions and outcomes to FILE. A recording that is already there is kept as FILE.old; any
    /// other file is left alone
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// How
    #[command(flatten)]
    pub how: How,
}

/// How a recording is made.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Recording")]
pub struct How {
    /// Stop recording, not the run, when the file reaches this size in bytes (suffixes K, M, G, T: powers of 1024)
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = cotenant_setup::units::bytes)]
    pub record_limit: u64,
    /// Leave the command line and the names of programs and threads out of the recording
    #[arg(long)]
    pub record_redacted: bool,
}

impl Args {
    /// The file and its options, if any.
    pub(crate) fn target(&self) -> Option<Target<'_>> {
        self.record.as_deref().map(|path| Target { path, how: &self.how })
    }
}

/// A recording to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub path: &'a Path,
    pub how: &'a How,
}

impl Target<'_> {
    /// Opens it, with the header from `header`, whose argument is whether to redact.
    pub fn open(&self, header: impl FnOnce(bool) -> Result<Header>) -> Result<Recorder> {
        Recorder::create(self.path, &header(self.how.record_redacted)?, self.how.record_limit)
    }
}

/// Records rounds to a file.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    writer: RecordWriter<File>,
    limit: u64,
}

impl Recorder {
    /// Makes the file (readable by its owner alone) and writes the header, so that early errors occur before a command
    /// is started.
    ///
    /// # Errors
    /// One line with the path and the remedy.
    pub fn create(path: &Path, header: &Header, limit: u64) -> Result<Self> {
        let file = open(path)?;
        let failed = |why| usage(format!("cannot record to {}: {why}", path.display()));
        let writer = RecordWriter::new(file, header, limit).map_err(failed)?;
        Ok(Self { path: path.to_owned(), writer, limit })
    }

    /// Records a round. If recording ends here (error, size limit), returns the line for the user, once; the run
    /// continues.
    pub fn round(&mut self, round: &Round<'_>) -> Option<String> {
        let (path, limit) = (self.path.display(), self.limit);
        match self.writer.round(round) {
            Ok(Status::LimitReached) => {
                Some(format!("{path}: the recording reached its limit of {limit} bytes and ends here; the run goes on"))
            }
            Ok(Status::Recording | Status::Stopped) => None,
            Err(why) => Some(format!("{path}: {why}; the run goes on, the recording stays readable up to here")),
        }
    }

    /// Takes over the use of the machine.
    pub fn used(&mut self, usage: &Seen) {
        if !usage.is_empty() {
            self.writer.used(usage);
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the recording. Returns the line for the user if the end could not be written.
    pub fn finish(self) -> Option<String> {
        let Self { path, writer, .. } = self;
        let why = writer.finish().err()?;
        Some(format!("{}: {why}; the recording stays readable up to here", path.display()))
    }
}

/// Opens the file. An existing recording is set aside, as in `perf record`; pipes and devices are written to directly.
fn open(path: &Path) -> Result<File> {
    let no = |why: &dyn std::fmt::Display| usage(format!("cannot record to {}: {why}", path.display()));
    let failed = |why: io::Error| no(&format!("{why}; name a file in a folder that you may write to"));
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
        Ok(meta) if meta.is_dir() => return Err(no(&"it is a folder; name a file in it")),
        // `mktemp` leaves an empty file.
        Ok(meta) if !meta.is_file() || meta.len() == 0 => {
            return OpenOptions::new().write(true).open(path).map_err(failed);
        }
        Ok(_) => {
            let mut start = [0; MAGIC.len()];
            let known = File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == MAGIC;
            if !known {
                return Err(no(&"it exists and is not a recording; remove it or name another file"));
            }
            let mut old = OsString::from(path);
            old.push(".old");
            fs::rename(path, old).map_err(failed)?;
        }
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)
}
