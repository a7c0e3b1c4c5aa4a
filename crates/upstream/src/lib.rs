//! Groups of upstream servers: the choice of peers, their failures, and their idle connections.
//!
//! Shared by `http` and `stream`; independent of protocols, and never opens connections. A request
//! begins an [`Attempt`] on a [`Group`], takes peers from it until one responds ([`Attempt::next`]), and
//! reports the outcome to the [`SelectedPeer`]. The state of peers is shared by all workers and survives
//! reloads. There is no clock inside: `now` is an argument.
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

mod attempt;
mod balance;
mod balance_input;
pub mod conf;
mod group;
mod idle;
mod line;
pub mod names;
mod peer;
mod peer_events;
mod queue;
mod removal;
mod roster;
mod selected_peer;
mod servers;
mod stats;
mod sticky;
mod wait_queue;

pub use attempt::{Attempt, NextPeer, SessionLearner};
pub use balance_input::BalanceInput;
pub use conf::{
    Balancer, GroupConf, Keepalive, LearnConf, QueueConf, SERVERS_MAX, ServerConf, ServerLocation,
    ServerMode, StateFile, Sticky, StickyCookie,
};
pub use group::{Group, Resolved, ResolvedFuture};
pub use idle::{IdleConnection, Tag};
pub use peer::{Availability, Peer};
pub use queue::{QueueError, QueueFuture};
pub use removal::{ChangedFuture, RemovedFuture};
pub use selected_peer::{SelectedPeer, Times};
pub use servers::{ChangeError, ListedServer, ServerChange};
pub use stats::{PeerStats, StatusClass};
