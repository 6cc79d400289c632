//! What a policy is.

use super::config::Ctx;
use super::explain::{Explanation, Learned};
use super::settings::{SettingError, Settings};
use super::state::{PolicyState, State};
use crate::{ActionOutcome, AppId, Decision, Time, View};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// Why a policy cannot work here, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy}: {why}; {remedy}")]
pub struct Refusal {
    /// Which policy.
    pub policy: &'static str,
    /// What is missing.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

impl Refusal {
    /// Of this policy: what is missing, and what to do about it.
    pub fn new(policy: &'static str, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { policy, why: why.into(), remedy: remedy.into() }
    }
}

/// What a policy needs of whoever runs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent needs, not states
pub struct Needs {
    /// To decide as soon as tasks come or go, rather than at the next tick.
    pub task_changes: bool,
    /// A host that can pause tasks.
    pub pauses: bool,
    /// The stored profiles of applications.
    pub profiles: bool,
    /// Where the pages of programs are, where there are several memory nodes.
    pub pages: bool,
    /// Which node's memory tasks access, counted by what means the host has, at a budgeted cost.
    pub accesses: bool,
    /// What the kernel sees programs do, as a speed of those that report none.
    pub proxies: bool,
    /// No more than a glance at most times, see [`Host::glance`](crate::Host::glance).
    pub glances: bool,
    /// With a glance, the cycles and instructions that hardware has counted of threads until then.
    pub counts: bool,
    /// That its masks hold as they are, unless the user widens them (`--pin`): it knows which CPUs it leaves open.
    pub exact: bool,
}

/// A policy. Implementations do no I/O, read no clock, and return the same decision for the same input. A policy is
/// made from its settings, once per run; what it remembers between rounds goes in and comes out.
pub trait Policy: Send + Sync {
    /// The tag of its state in recordings, and the name of its settings. Policies that share both share it.
    const SECTION: &'static str;

    /// What it remembers between rounds.
    type State: PolicyState;

    /// What the user can set. Unknown keys and values out of range are errors of its `Deserialize`.
    type Settings: Default + Serialize + DeserializeOwned;

    /// Its name on the command line.
    fn name(&self) -> &'static str {
        Self::SECTION
    }

    /// What it needs.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Whether it can work with what is known about the machine and the applications.
    ///
    /// # Errors
    /// [`Refusal`] where it cannot, with the remedy.
    fn check(&self, _ctx: &Ctx<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether this application runs until the next decision; `None`: it lets none wait.
    fn runs(&self, _state: &Self::State, _app: AppId) -> Option<bool> {
        None
    }

    /// What the state says, for whatever shows it.
    fn explain(&self, _state: &Self::State) -> Explanation {
        Explanation::default()
    }

    /// What later runs on this machine should begin with, the latest last.
    fn learned(&self, _state: &Self::State) -> Vec<Learned> {
        Vec::new()
    }

    /// Decides. `outcomes` are those of its previous decision, `state` is what that decision returned.
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
    /// The state of a policy; empty where its type holds nothing.
    pub fn of<P: Policy>(state: P::State) -> Self {
        Self::typed(P::SECTION, state)
    }

    /// Takes it as the state of `P`; nothing remembered is the default.
    ///
    /// # Errors
    /// Where it is another policy's, or JSON that is not such a state: what is wrong with it.
    pub fn take<P: Policy>(self) -> Result<P::State, String> {
        self.take_as(P::SECTION)
    }

    /// Looks at it as the state of `P`; `None` where it is not, or is empty.
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
    /// [`SettingError`] for unknown keys and values that it does not take.
    pub fn of<P: Policy>(&self) -> Result<P::Settings, SettingError> {
        match self.get(P::SECTION) {
            None | Some(Value::Null) => Ok(P::Settings::default()),
            Some(value) => P::Settings::deserialize(value)
                .map_err(|why| SettingError { section: P::SECTION.to_owned(), why: why.to_string() }),
        }
    }
}

/// Any [`Policy`], whatever its state and settings: what the loop drives.
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
    /// As [`Policy::runs`]; `None` for a state that is not this policy's, too.
    fn runs(&self, state: &State, app: AppId) -> Option<bool>;
    /// As [`Policy::explain`]; of the default state for one that is empty or not this policy's.
    fn explain(&self, state: &State) -> Explanation;
    /// As [`Policy::learned`]; nothing for a state that is not this policy's.
    fn learned(&self, state: &State) -> Vec<Learned>;
    /// As [`Policy::decide`]. A state that is another policy's, or cannot be read, counts as none, and a note says so.
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
