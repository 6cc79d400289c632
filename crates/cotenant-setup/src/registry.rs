//! The policies of the command: ours, or those of a program with further ones.

use cotenant_model::policy::Registry;
use std::sync::OnceLock;

static REGISTRY: OnceLock<Registry> = OnceLock::new();

/// All policies of this process.
pub fn registry() -> &'static Registry {
    REGISTRY.get_or_init(cotenant_policies::standard)
}

/// Sets them, once: a process has one command line.
pub fn set(policies: Registry) {
    let _ = REGISTRY.set(policies);
}
