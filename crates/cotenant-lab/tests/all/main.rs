//! The integration tests of the laboratory.

mod cluster_sim;
mod reproduce;
mod validate;
