//! The daemon's state across hosts.

use crate::containers::Containers;
use crate::control::Shared;
use crate::log;
use crate::pauses::Kept;
use crate::slurm::Slurm;
use crate::web::Web;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// State that survives a change of the host.
pub(crate) struct Desk {
    pub begun: Instant,
    pub shared: Arc<Shared>,
    pub web: Web,
    pub socket: PathBuf,
    pub slurm: Option<Slurm>,
    /// The services that are left alone for now.
    pub kept: Kept,
    /// Why the configuration on disk is not in force.
    pub refused: Option<String>,
}

impl Desk {
    /// Whether jobs of Slurm are known from now on.
    pub fn set_slurm(&mut self, wanted: bool) {
        match (wanted, &self.slurm) {
            (true, None) => match Slurm::begin(&self.socket) {
                Ok((slurm, remark)) => {
                    if let Some(remark) = remark {
                        tracing::warn!(MESSAGE_ID = log::CONFIG, "{remark}");
                    }
                    self.slurm = Some(slurm);
                }
                Err(why) => {
                    let folder = self.socket.with_file_name("slurm");
                    tracing::error!(MESSAGE_ID = log::CONFIG, "slurm: {}: {why}; no job is known", folder.display());
                }
            },
            (false, _) => self.slurm = None,
            (true, Some(_)) => {}
        }
    }

    /// Containers of the bridge and jobs of Slurm.
    pub fn containers(&self) -> Arc<Containers> {
        let told = self.shared.containers();
        match self.slurm.as_ref().map(Slurm::jobs) {
            Some(jobs) if told.len() == 0 => jobs.clone(),
            Some(jobs) => Arc::new(told.and(jobs)),
            None => told,
        }
    }
}
