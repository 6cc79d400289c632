//! The integration tests of the model.

mod hidden_topology;
mod illegal_metrics;
mod legal_metrics;
