//! Client of a running daemon.

use crate::protocol::{LOOP, PATIENCE, Request, answered, asked};
use anyhow::{Context as _, Result};
use cotenant_cli::usage;
use cotenant_linux::bounded::{self, Limit};
use cotenant_linux::sys;
use cotenant_linux::undo::default_state_dir;
use serde::de::DeserializeOwned;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The named socket, else that of this user's daemon, or root's if this user has none.
///
/// # Errors
/// There is no folder for this user's.
pub fn socket_or_default(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let own = default_state_dir()?.join("control.sock");
    let roots = Path::new("/run/cotenant/control.sock");
    Ok(if !own.exists() && roots.exists() { roots.to_owned() } else { own })
}

/// Whether a daemon listens there.
pub fn is_there(socket: Option<&Path>) -> bool {
    socket_or_default(socket).is_ok_and(|path| sys::connect_unix(&path, PATIENCE).is_ok())
}

/// Sends a request to the daemon.
///
/// # Errors
/// No daemon; a refusal.
pub fn ask<T: DeserializeOwned>(socket: Option<&Path>, request: Request) -> Result<T> {
    let path = socket_or_default(socket)?;
    let stream = sys::connect_unix(&path, PATIENCE)
        .map_err(|why| usage(format!("no daemon answers at {} ({why}); start one: cotenant daemon", path.display())))?;
    stream.set_read_timeout(Some(LOOP + PATIENCE))?;
    (&stream).write_all(&asked(request)?)?;
    answered(&bounded::rest(&mut &stream, Limit::Named).context("the daemon does not answer")?)
}
