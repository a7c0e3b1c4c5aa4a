//! What modules that pass requests to servers have in common: the rows of their directives, and the way
//! from a server's response to ours. The engine ([`crate::upstream`]) does the rest.

pub mod accel;
pub mod conf;
pub mod early_hints;
pub mod response;
pub mod store;
