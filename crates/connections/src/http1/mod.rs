//! HTTP/1.1 towards clients: a front end of the core. It turns bytes into requests, gives them to the
//! [phases](nowait_http::phases), and sends their responses.
//!
//! Called by [`start`](crate::start). Uses the core; nothing of the core or the modules uses it.

mod body_reader;
mod connection;
mod exchange;
mod hangup;
mod response;
mod response_head;
mod serving;
mod task;

pub(crate) use task::serve;
