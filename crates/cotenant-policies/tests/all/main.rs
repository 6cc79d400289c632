//! The integration tests of the policies.

mod contract;
mod golden;
mod policy_properties;
mod sam_oracle;
mod world;
