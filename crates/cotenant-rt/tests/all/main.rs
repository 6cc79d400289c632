//! The integration tests of libcotenant.

mod process;
