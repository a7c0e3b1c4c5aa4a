//! The modules of `stream`, one file each.

pub mod access;
pub mod answer;
pub mod limit_conn;
pub mod pass;
pub mod preread;
pub mod proxy;
pub mod realip;
pub mod set;
