//! The integration tests of the kernels.

mod kernels;
