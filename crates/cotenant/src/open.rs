//! Opens recordings that the user named.

use cotenant_cli::progress::Metered;
use cotenant_cli::{messages, usage};
use cotenant_linux::bounded;
use cotenant_model::Time;
use cotenant_record::Recording;
use std::io::BufReader;
use std::path::Path;

/// Refuses an option's moment beyond the end of a recording, to the millisecond.
///
/// # Errors
/// It is outside.
pub fn in_time(option: &str, at: Time, ends: Time) -> anyhow::Result<()> {
    let [at, ends] = [at, ends].map(|time| (time.as_secs_f64() * 1e3).ceil() / 1e3);
    if at > ends {
        return Err(usage(format!("{option} {at} s: the recording ends at {ends} s")));
    }
    Ok(())
}

/// Opens a recording; if `watched`, shows the progress of long reads.
///
/// # Errors
/// It cannot be opened or is not a recording; with the path.
pub fn open_recording(path: &Path, watched: bool) -> anyhow::Result<Recording<BufReader<Metered>>> {
    let name = path.display();
    let file = bounded::given(path)
        .map_err(|e| usage(format!("{name}: {e}; give a file that `cotenant record` or `--record` wrote")))?;
    Recording::read(BufReader::new(Metered::new(file, watched)))
        .map_err(|e| usage(format!("{name}: {}", messages::chain(&e.into()))))
}
