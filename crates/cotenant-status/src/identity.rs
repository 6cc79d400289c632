//! Which service it is, over restarts of the service and of the daemon.

use serde::{Deserialize, Serialize};

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The namespace of its pod; the user of a job.
    pub namespace: String,
    /// Its pod; the number of a job.
    pub pod: String,
    /// Its name.
    pub container: String,
    /// The workload of which its pod is an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Whether it is a job of Slurm, not a container of a pod.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub job: bool,
}

impl Identity {
    /// The name under which interference is learned: its workload's, since a pod or a job does not come back.
    pub fn learnt(&self) -> String {
        let Self { namespace, pod, container, workload, job } = self;
        match workload {
            Some(workload) if *job => workload.clone(),
            Some(workload) => format!("{namespace}/{workload}/{container}"),
            None => format!("{namespace}/{pod}/{container}"),
        }
    }
}

/// The first id of an account of people, as `login.defs` has it (`UID_MIN`).
pub const PEOPLE: u32 = 1_000;

/// The name of a service in the table of interference, which outlives the service. It holds the user's id where people
/// own the service, since they choose names as they like.
pub fn learnt(name: &str, uid: u32, container: Option<&Identity>) -> String {
    match container {
        Some(container) => container.learnt(),
        None if uid >= PEOPLE => format!("{name} (user {uid})"),
        None => name.to_owned(),
    }
}
