//! HTTP/1.1 towards clients: a front end of the core. It turns bytes into requests, gives them to the
//! [phases](nowait_http::phases), and sends their responses.
//!
//! Started by the worker. Uses the core; nothing of the core or the modules uses it.

mod body_reader;
mod common;
mod connection;
mod exchange;
mod hangup;
mod leaving;
mod preface;
mod proxied;
mod response_head;
mod sender;
mod serving;
mod task;
mod waiting;

pub use common::Common;
pub use connection::Connection;
pub use leaving::{Heir, Moved};
pub use task::{arrive, serve};
