//! The tests of the parsers of foreign input.

mod malformed;
