//! Opens recordings that the user named.

use cotenant_cli::progress::Metered;
use cotenant_cli::{messages, usage};
use cotenant_linux::bounded;
use cotenant_record::Recording;
use std::io::BufReader;
use std::path::Path;

/// Opens a recording; says how much of it is read where that takes long and is `watched`.
///
/// # Errors
/// Where it cannot be opened or is no recording; the path is named.
pub fn open_recording(path: &Path, watched: bool) -> anyhow::Result<Recording<BufReader<Metered>>> {
    let name = path.display();
    let file = bounded::given(path)
        .map_err(|e| usage(format!("{name}: {e}; give a file that `cotenant record` or `--record` wrote")))?;
    Recording::read(BufReader::new(Metered::new(file, watched)))
        .map_err(|e| usage(format!("{name}: {}", messages::chain(&e.into()))))
}
