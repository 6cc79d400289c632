//! What must hold, across modules.

mod exact;
mod shared;
mod world;
