//! Users' requests to the loop over the control socket: pauses, and their ends.

use super::Shift;
use crate::control::Order;
use crate::log;
use crate::parties::may_all;
use crate::pauses::{Paused, Pauses};
use crate::protocol::Request;
use cotenant_linux::sys;

impl Shift<'_> {
    /// Carries out a request from the socket, and answers.
    pub(super) fn obey(&mut self, Order { request, uid, answer, .. }: Order) {
        let before = self.mode();
        let done = self.change(&request, uid);
        if self.mode() != before {
            self.begin_anew();
        }
        // The client may have gone.
        match done {
            Ok(done) => self.desk.kept.keep(move |kept| _ = answer.send(Ok(over_restarts(&done, kept)))),
            Err(why) => _ = answer.send(Err(why)),
        }
    }

    fn change(&mut self, request: &Request, user: u32) -> Result<String, String> {
        let all = || {
            may_all(user)
                .then_some(())
                .ok_or_else(|| "only root and the daemon's own user may do that; name one of your services".to_owned())
        };
        match request {
            Request::Status | Request::Containers { .. } | Request::Node => Err("this needs no loop".to_owned()),
            Request::Pause { service: None } => {
                all()?;
                self.desk.kept.pauses.all = true;
                tracing::info!(
                    MESSAGE_ID = log::DAEMON,
                    "paused by user {}: everything is given back",
                    sys::user_name(user)
                );
                Ok("paused: nothing is changed, and what was changed is given back".to_owned())
            }
            Request::Resume { service: None } => {
                all()?;
                self.desk.kept.pauses = Pauses::default();
                self.looked = None; // of resting services no other event reports
                tracing::info!(MESSAGE_ID = log::DAEMON, "resumed by user {}", sys::user_name(user));
                Ok("resumed".to_owned())
            }
            Request::Pause { service: Some(name) } => {
                // A client that may pause everything takes over a user's pause.
                let paused = self.desk.kept.pauses.named(name).map(|(key, paused)| (key.clone(), paused.uid));
                let managed = self.managed.get(name).map(|m| (m.service.key.clone(), m.service.uid));
                let is_paused = managed.is_none() && paused.is_some();
                let known = managed.or(paused).filter(|(_, uid)| may_all(user) || *uid == user);
                let Some((key, uid)) = known else {
                    return Err(format!("'{name}' is not a service of yours that is managed; see cotenant status"));
                };
                if !may_all(user) && is_paused {
                    return Err(format!("'{name}' is paused already"));
                }
                if !may_all(user) && !self.desk.kept.has_room(uid, &self.desk.shared.parties) {
                    return Err("too many services of users are paused; resume some".to_owned());
                }
                let called = Some(name.clone()).filter(|name| *name != key);
                let paused = Paused { name: called, uid, by_operator: may_all(user) };
                self.desk.kept.pauses.services.insert(key, paused);
                self.leave(name, &format!("user {} has paused it", sys::user_name(user)));
                self.assign().map_err(|why| why.to_string())?;
                Ok(format!("{name} is left alone until cotenant resume {name}"))
            }
            Request::Resume { service: Some(name) } => {
                let paused = self.desk.kept.pauses.named(name);
                let Some((key, paused)) = paused.filter(|(_, paused)| may_all(user) || paused.uid == user) else {
                    return Err(format!("'{name}' is not a service of yours that is paused; see cotenant status"));
                };
                if !may_all(user) && paused.by_operator {
                    return Err(format!("the administrator has paused '{name}', and alone resumes it"));
                }
                let key = key.clone();
                self.desk.kept.pauses.services.remove(&key);
                self.looked = None;
                Ok(format!("{name} is managed again"))
            }
        }
    }
}

/// The answer if a pause, or its end, should outlast the daemon.
fn over_restarts(done: &str, kept: std::io::Result<()>) -> String {
    match kept {
        Ok(()) => done.to_owned(),
        Err(why) => format!("{done}; only until the daemon restarts, since that cannot be kept: {why}"),
    }
}
