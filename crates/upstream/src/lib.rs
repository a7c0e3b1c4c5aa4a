//! Groups of upstream servers: the choice of peers, their failures, and their idle connections.
//!
//! `http` and `stream` share this crate; it knows no protocol and opens no connection. A request
//! begins an [`Attempt`] on a [`Group`], takes peers from it until one responds
//! ([`Attempt::next`]), and reports the outcome to the [`SelectedPeer`]. The state of peers is shared by
//! all workers and survives reloads. There is no clock inside: `now` is an argument.
//!
//! ```
//! use std::time::Instant;
//! use nowait_upstream::{BalanceInput, Group, NextPeer};
//!
//! let group = Group::of_addresses("example", vec!["127.0.0.1:8080".parse::<std::net::SocketAddr>().unwrap().into()]);
//! let now = Instant::now();
//! let mut attempt = group.begin(BalanceInput::default());
//! match attempt.next(now) {
//!     NextPeer::Peer(peer) => {
//!         // connect to peer.address(), or take an idle connection; then:
//!         peer.succeeded(now, None);
//!     }
//!     NextPeer::Busy => { /* attempt.queue(now).await, then next() again */ }
//!     NextPeer::Unresolved => { /* group.resolved().await, within resolver_timeout, then next() again */ }
//!     NextPeer::NoLive => { /* 502: no live upstreams while connecting to upstream */ }
//! }
//! ```
#![forbid(unsafe_code)]

mod ask;
mod attempt;
mod balance;
pub mod conf;
mod crc;
mod group;
mod idle;
pub mod names;
mod peer;
mod queue;
mod removal;
mod roster;
mod selected_peer;
mod stats;
mod sticky;
mod wait_queue;

pub use ask::BalanceInput;
pub use attempt::{Attempt, NextPeer, SessionLearner};
pub use conf::{
    Balancer, GroupConf, Keepalive, LearnConf, QueueConf, ServerConf, ServerLocation, Sticky,
    StickyCookie,
};
pub use group::{Group, Resolved, ResolvedFuture};
pub use idle::{IdleConnection, Tag};
pub use peer::{Availability, Peer};
pub use queue::{QueueError, QueueFuture};
pub use removal::RemovedFuture;
pub use selected_peer::{SelectedPeer, Times};
pub use stats::{PeerStats, StatusClass};
