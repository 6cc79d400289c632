//! The definition of a policy.

use super::config::Ctx;
use super::decision::Decision;
use super::explain::{Explanation, Learned};
use super::settings::{SettingError, Settings};
use super::state::{PolicyState, State};
use crate::{ActionOutcome, AppId, Time, View};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// Why a policy cannot work here, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy}: {why}; {remedy}")]
pub struct Refusal {
    /// The policy.
    pub policy: &'static str,
    /// The missing part.
    pub why: String,
    /// The remedy.
    pub remedy: String,
}

impl Refusal {
    /// Of this policy: what is missing, and the remedy.
    pub fn new(policy: &'static str, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { policy, why: why.into(), remedy: remedy.into() }
    }
}

/// Requirements of a policy on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent needs, not states
pub struct Needs {
    /// Decisions as soon as tasks start or end, rather than at the next tick.
    pub task_changes: bool,
    /// A host that can pause tasks.
    pub pauses: bool,
    /// The stored profiles of applications.
    pub profiles: bool,
    /// The place of programs' pages, with several memory nodes.
    pub pages: bool,
    /// Each task's accesses per memory node, by the host's means, at a bounded cost.
    pub accesses: bool,
    /// Proxies for the speed of programs without reports: activity seen by the kernel.
    pub proxies: bool,
    /// Mostly glances only, see [`Host::glance`](crate::Host::glance).
    pub glances: bool,
    /// Cycles and instructions of threads with each glance.
    pub counts: bool,
    /// Unwidened masks, unless the user sets `--pin`: the policy relies on the CPUs that it leaves free.
    pub exact: bool,
}

/// A policy. Implementations do no I/O, read no clock, and return the same decision for the same input. A policy is
/// made from its settings once per run; its state is passed in and out.
pub trait Policy: Send + Sync {
    /// The tag of its state in recordings, and the name of its settings. Policies that share both share it.
    const SECTION: &'static str;

    /// Its state between rounds.
    type State: PolicyState;

    /// Its user settings. Unknown keys and invalid values are errors of its `Deserialize`.
    type Settings: Default + Serialize + DeserializeOwned;

    /// Its name on the command line.
    fn name(&self) -> &'static str {
        Self::SECTION
    }

    /// Its requirements.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Whether it can work with the known machine and applications.
    ///
    /// # Errors
    /// [`Refusal`] if it cannot, with the remedy.
    fn check(&self, _ctx: &Ctx<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether this application runs until the next decision; `None`: the policy never pauses any.
    fn runs(&self, _state: &Self::State, _app: AppId) -> Option<bool> {
        None
    }

    /// An explanation of the state for output.
    fn explain(&self, _state: &Self::State) -> Explanation {
        Explanation::default()
    }

    /// Knowledge for later runs on this machine, the latest last.
    fn learned(&self, _state: &Self::State) -> Vec<Learned> {
        Vec::new()
    }

    /// Decides. `outcomes` are those of its previous decision, `state` is that decision's state.
    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        state: Self::State,
        now: Time,
    ) -> Decision<Self::State>;
}

impl State {
    /// The state of a policy; empty for a type without content.
    pub fn of<P: Policy>(state: P::State) -> Self {
        Self::typed(P::SECTION, state)
    }

    /// Takes it as the state of `P`; an empty one is the default.
    ///
    /// # Errors
    /// If it is another policy's, or JSON of another form: a description of the error.
    pub fn take<P: Policy>(self) -> Result<P::State, String> {
        self.take_as(P::SECTION)
    }

    /// Borrows it as the state of `P`; `None` if it is not, or is empty.
    pub fn read<P: Policy>(&self) -> Option<Cow<'_, P::State>> {
        self.read_as(P::SECTION)
    }
}

impl Settings {
    /// Builder form of [`Self::put`], with the settings of `P`.
    #[must_use]
    pub fn with<P: Policy>(mut self, settings: &P::Settings) -> Self {
        self.put(P::SECTION, settings);
        self
    }

    /// The settings of `P`.
    ///
    /// # Errors
    /// [`SettingError`] for unknown keys and invalid values.
    pub fn of<P: Policy>(&self) -> Result<P::Settings, SettingError> {
        match self.get(P::SECTION) {
            None | Some(Value::Null) => Ok(P::Settings::default()),
            Some(value) => P::Settings::deserialize(value)
                .map_err(|why| SettingError { section: P::SECTION.to_owned(), why: why.to_string() }),
        }
    }
}

/// Any [`Policy`] with its state and settings: what the loop drives.
pub trait DynPolicy: Send + Sync {
    /// As [`Policy::name`].
    fn name(&self) -> &'static str;
    /// As [`Policy::needs`].
    fn needs(&self) -> Needs;
    /// As [`Policy::check`].
    ///
    /// # Errors
    /// As [`Policy::check`].
    fn check(&self, ctx: &Ctx<'_>) -> Result<(), Refusal>;
    /// As [`Policy::runs`]; also `None` for another policy's state.
    fn runs(&self, state: &State, app: AppId) -> Option<bool>;
    /// As [`Policy::explain`]; for an empty or another policy's state, that of the default.
    fn explain(&self, state: &State) -> Explanation;
    /// As [`Policy::learned`]; empty for another policy's state.
    fn learned(&self, state: &State) -> Vec<Learned>;
    /// As [`Policy::decide`]. Another policy's or an unreadable state counts as empty, with a note.
    fn decide(&self, ctx: &Ctx<'_>, view: &View, outcomes: &[ActionOutcome], state: State, now: Time) -> Decision;
}

impl fmt::Debug for dyn DynPolicy + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<P: Policy> DynPolicy for P {
    fn name(&self) -> &'static str {
        Policy::name(self)
    }

    fn needs(&self) -> Needs {
        Policy::needs(self)
    }

    fn check(&self, ctx: &Ctx<'_>) -> Result<(), Refusal> {
        Policy::check(self, ctx)
    }

    fn runs(&self, state: &State, app: AppId) -> Option<bool> {
        Policy::runs(self, &*state.read::<P>()?, app)
    }

    fn explain(&self, state: &State) -> Explanation {
        state
            .read::<P>()
            .map_or_else(|| Policy::explain(self, &P::State::default()), |state| Policy::explain(self, &state))
    }

    fn learned(&self, state: &State) -> Vec<Learned> {
        state.read::<P>().map_or_else(Vec::new, |state| Policy::learned(self, &state))
    }

    fn decide(&self, ctx: &Ctx<'_>, view: &View, outcomes: &[ActionOutcome], state: State, now: Time) -> Decision {
        let (state, note) = match state.take::<P>() {
            Ok(state) => (state, None),
            Err(why) => (P::State::default(), Some(format!("{}: {why}; it begins anew", Policy::name(self)))),
        };
        let Decision { proposals, state, wake_at, watch_until, mut notes } =
            Policy::decide(self, ctx, view, outcomes, state, now);
        notes.extend(note);
        Decision { proposals, state: State::of::<P>(state), wake_at, watch_until, notes }
    }
}
