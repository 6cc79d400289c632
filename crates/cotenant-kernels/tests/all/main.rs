//! The integration tests of the kernels.

mod footprints;
mod kernels;
