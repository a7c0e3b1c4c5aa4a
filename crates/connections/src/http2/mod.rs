//! HTTP/2 towards clients: a front end of the core. Each stream is a request with its own task; one task
//! per connection receives, and sends the ready output of all streams.
//!
//! Called by [`start`](crate::start). Uses the core; nothing of the core or the
//! modules uses it. What it has in common with HTTP/3 is in [`streams`](crate::streams).
//!
//! ```text
//! socket → task → h2 core → connection: events → stream: head, body → serving → life → phases
//!                                                                                  │
//! socket ← task ← output: frames of all streams in turn ← stream ← response ← body ┘
//! ```

mod connection;
mod heads;
mod stream;
mod task;
mod window;

pub use task::serve;
