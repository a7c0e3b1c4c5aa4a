//! HTTP/3 towards clients: a front end of the core. Each bidirectional stream is a request with its own task; one task
//! per connection takes the transport's events, and moves what is ready to the transport.
//!
//! Called by [`quic`](crate::quic) with connections whose handshake is complete. Uses the core; nothing of the core or
//! the modules uses it. What it has in common with HTTP/2 is in [`streams`](crate::streams).
//!
//! ```text
//! QUIC → task → h3 core → connection: events → stream: head, body → serving → life → phases
//!                                                                                │
//! QUIC ← connection: frames, content, by priority ← stream ← response ← body ────┘
//! ```

mod connection;
mod heads;
mod stream;
mod task;
mod writing;

pub(crate) use task::serve;
