//! Upstreams: one engine that sends a request to a server behind this one and brings its response.
//!
//! Protocol modules (the http proxy, later FastCGI and others) make a [`Run`] of a [`Codec`], which
//! knows the protocol and no socket, [`Settings`] from their own directives, and a [`Target`]. They
//! get the head of the response and an [`UpstreamBody`], turn the head into their own response, and
//! the rest into its [`Body`](crate::response::Body). The engine knows sockets, times, buffers and
//! temporary files, but no protocol. nginx: `ngx_http_upstream.c`, `ngx_event_pipe.c`.
//!
//! | step | where |
//! |---|---|
//! | a peer is chosen, asked, and perhaps another one | `run.rs` |
//! | an idle connection is taken, or one is made | `connect.rs` |
//! | the request is sent | `send.rs`, `upload.rs` |
//! | the head is received | `receive.rs` |
//! | the body: at once, as it comes, or ahead of the client | `body.rs`, `pump.rs` |
//! | another protocol in both directions | `tunnel.rs` |
//! | what variables and logs say of it | `state.rs` |

mod body;
mod codec;
mod connect;
mod exchange;
mod head;
mod pump;
mod receive;
mod run;
mod send;
mod settings;
mod state;
mod sticky_cookie;
mod target;
mod tee;
mod tunnel;
mod upload;

pub use body::{BodyOptions, UpstreamBody};
pub use codec::{BodyEvent, BodyStep, Codec, Content, Fault, HeadEvent, HeadStep};
pub use head::{Field, HeadBuilder, UpstreamHead};
pub use run::{Asked, Failed, Reply, Run};
pub use settings::{Buffers, Cause, NextUpstream, Settings};
pub use state::{PeerName, State, Try};
pub use target::{LogUri, Target};
pub use tee::Tee;
