//! What users ask of the loop over the control socket: pauses, and their ends.

use super::control::{Order, Request, may_all};
use super::pauses::{Paused, Pauses};
use super::{Shift, log};

impl Shift<'_> {
    /// Does what was asked over the socket.
    pub(super) fn obey(&mut self, order: &Order) -> Result<String, String> {
        let all = || {
            may_all(order.uid)
                .then_some(())
                .ok_or_else(|| "only root and the daemon's own user may do that; name one of your services".to_owned())
        };
        match &order.request {
            Request::Status | Request::Containers { .. } | Request::Node => Err("this needs no loop".to_owned()),
            Request::Pause { service: None } => {
                all()?;
                let kept = self.desk.kept.change(|pauses| pauses.all = true);
                tracing::info!(MESSAGE_ID = log::DAEMON, "paused by user {}: everything is given back", order.uid);
                Ok(over_restarts("paused: nothing is changed, and what was changed is given back", kept))
            }
            Request::Resume { service: None } => {
                all()?;
                let kept = self.desk.kept.change(|pauses| *pauses = Pauses::default());
                self.looked = None; // of those who rested nobody else tells
                tracing::info!(MESSAGE_ID = log::DAEMON, "resumed by user {}", order.uid);
                Ok(over_restarts("resumed", kept))
            }
            Request::Pause { service: Some(name) } => {
                // Whoever may pause everything takes over what a user has paused.
                let paused = self.desk.kept.pauses.services.get(name).map(|paused| paused.uid);
                let managed = self.managed.get(name).map(|managed| managed.service.uid);
                let owner = managed.or(paused).filter(|uid| may_all(order.uid) || *uid == order.uid);
                let Some(uid) = owner else {
                    return Err(format!("'{name}' is no service of yours that is managed; see cotenant status"));
                };
                if !may_all(order.uid) && paused.is_some() {
                    return Err(format!("'{name}' is paused already"));
                }
                if !may_all(order.uid) && !self.desk.kept.has_room(uid) {
                    return Err("too many of your services are paused; resume some".to_owned());
                }
                let paused = Paused { uid, by_operator: may_all(order.uid) };
                let kept = self.desk.kept.change(|pauses| _ = pauses.services.insert(name.clone(), paused));
                self.leave(name, &format!("user {} has paused it", order.uid));
                self.assign().map_err(|why| why.to_string())?;
                Ok(over_restarts(&format!("{name} is left alone until cotenant resume {name}"), kept))
            }
            Request::Resume { service: Some(name) } => {
                let paused = self.desk.kept.pauses.services.get(name);
                let Some(paused) = paused.filter(|paused| may_all(order.uid) || paused.uid == order.uid) else {
                    return Err(format!("'{name}' is no service of yours that is paused; see cotenant status"));
                };
                if !may_all(order.uid) && paused.by_operator {
                    return Err(format!("the administrator has paused '{name}', and alone resumes it"));
                }
                let kept = self.desk.kept.change(|pauses| _ = pauses.services.remove(name));
                self.looked = None;
                Ok(over_restarts(&format!("{name} is managed again"), kept))
            }
        }
    }
}

/// What is answered where a pause, or its end, is to outlive the daemon.
fn over_restarts(done: &str, kept: std::io::Result<()>) -> String {
    match kept {
        Ok(()) => done.to_owned(),
        Err(why) => format!("{done}; only until the daemon restarts, since that cannot be kept: {why}"),
    }
}
