//! The integration tests of the model.

mod hidden_topology;
mod legal_metrics;
