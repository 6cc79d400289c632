//! Requests and answers over the control socket: a line of JSON each.

use crate::containers::Told;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io;
use std::time::Duration;

/// Both ends use the same version.
const VERSION: u32 = 1;

/// Time for a request to come and for an answer to go.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Time for the loop to carry out a request.
pub(crate) const LOOP: Duration = Duration::from_secs(10);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Its status.
    Status,
    /// Stop changing anything, and undo the changes.
    Pause {
        /// Of this service; `None`: of all.
        service: Option<String>,
    },
    /// Go on.
    Resume {
        /// With this service alone; `None`: with all.
        service: Option<String>,
    },
    /// The containers of this machine; they replace the former list.
    Containers {
        /// All of them.
        containers: Vec<Told>,
    },
    /// Interference among the containers of this machine.
    Node,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    version: u32,
    #[serde(flatten)]
    request: Request,
}

/// The daemon's answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer<T> {
    Ok(T),
    Error(String),
}

/// The request in a line, or the error.
pub(crate) fn request(line: &[u8]) -> Result<Request, String> {
    match serde_json::from_slice::<Envelope>(line) {
        Err(why) => Err(format!("this is not a request: {why}")),
        Ok(Envelope { version, .. }) if version != VERSION => {
            let ours = env!("CARGO_PKG_VERSION");
            Err(format!("the daemon is of version {ours}, which speaks another protocol"))
        }
        Ok(Envelope { request, .. }) => Ok(request),
    }
}

/// A request as a line.
pub(crate) fn asked(request: Request) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Envelope { version: VERSION, request })?;
    line.push(b'\n');
    Ok(line)
}

/// The daemon's answer, or its refusal.
pub(crate) fn answered<T: DeserializeOwned>(line: &[u8]) -> Result<T> {
    match serde_json::from_slice(line).context("the daemon's answer cannot be read; are both of one version?")? {
        Answer::Ok(answer) => Ok(answer),
        Answer::Error(why) => bail!("{why}"),
    }
}

pub(crate) fn bytes<T: Serialize>(answer: &Answer<T>) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(answer)?;
    bytes.push(b'\n');
    Ok(bytes)
}
