//! Upstreams: an engine that sends a request to an upstream server and receives its response.
//!
//! The handler of backends ([`crate`]) creates a [`Tries`] from a [`CodecFactory`], whose
//! codecs implement a protocol without sockets, [`Settings`] from the protocol's own directives, and
//! an [`UpstreamTarget`]. It receives the head of the response and an [`UpstreamBody`], converts the head to
//! the client's, and the rest to its [`Body`](nowait_http::response::Body). The engine handles sockets,
//! times, buffers and temporary files, but no protocol. nginx: `ngx_http_upstream.c`,
//! `ngx_event_pipe.c`.
//!
//! | step | where |
//! |---|---|
//! | the request waits until limits allow it | `gate.rs` |
//! | peers are chosen and tried | `tries.rs` |
//! | an idle connection is taken, or one is opened | `connect.rs` |
//! | the request is sent | `send.rs`, `upload.rs` |
//! | the head is received | `receive.rs` |
//! | the body is received: at once, at the client's pace, or ahead of the client | `body.rs`, `pump.rs`, `ahead.rs` |
//! | another protocol takes over in both directions | `tunnel.rs` |
//! | a try's bytes are carried by a connection of its own, or by a stream of a shared one | `pipe.rs`, `http2/` |
//! | the tries are recorded for variables and logs | `upstream_state.rs` of the core |

mod ahead;
mod body;
mod codec;
mod connect;
mod exchange;
pub mod gate;
mod http2;
mod pipe;
pub mod probe;
mod pump;
mod receive;
mod send;
mod settings;
pub mod sticky_cookie;
mod target;
mod tee;
mod tries;
mod tunnel;
mod upload;
mod upstream_request;

pub use body::{BodyOptions, UpstreamBody};
pub use codec::{
    BodyEvent, BodyStep, Codec, CodecFactory, Content, Fault, HeadEvent, HeadStep, Remark,
};
pub use http2::{CallResponse, Fields, Line, OwnConnection, UpstreamStream};
pub use settings::{Buffers, Cause, RetryConditions, Settings};
pub use target::UpstreamTarget;
pub use tee::Tee;
pub use tries::{Reply, RequestError, Tries};
pub use upstream_request::{Condition, UpstreamRequest, UpstreamVariation};
