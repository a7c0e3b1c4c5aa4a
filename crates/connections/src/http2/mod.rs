//! HTTP/2 towards clients: a front end of the core. Each stream is a request with its own task; one task
//! per connection receives, and sends what all of them have ready.
//!
//! Started by HTTP/1.1's task, which recognises the preface. Uses the core; nothing of the core or the
//! modules uses it.
//!
//! ```text
//! socket → task → h2 core → connection: events → stream: head, body → serving → phases
//!                                                                        │
//! socket ← task ← output: frames of all streams in turn ← stream ← sender ┘
//! ```

mod body_reader;
mod connection;
mod head;
mod response_head;
mod reused;
mod sender;
mod serving;
mod stream;
mod task;
mod tunnel;
mod window;

pub use task::serve;
