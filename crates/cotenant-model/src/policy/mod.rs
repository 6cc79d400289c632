//! The contract of policies: pure functions from observations to orders. Each policy implements [`Policy`];
//! [`Registry`] lists the named ones.

mod config;
mod contract;
mod decision;
mod explain;
mod registry;
pub mod settings;
mod state;

pub use config::{Config, Ctx};
pub use contract::{DynPolicy, Needs, Policy, Refusal};
pub use decision::Decision;
pub use explain::{Alone, Bound, Explanation, Learned, Limited, ProtectedApp, Statement, Throttling, TrialResult};
pub use registry::{Entry, Registry};
pub use settings::{NoSettings, SettingError, Settings};
pub use state::{PolicyState, State};
