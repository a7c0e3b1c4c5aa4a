//! Sockets: listeners, connections and datagrams.
//!
//! Called by http and by everything that talks to upstreams. Operations are futures; dropping one
//! withdraws the interest. Nothing here parses protocols or keeps data for an idle connection.

mod address;
mod connect;
mod datagram;
mod datagram_trains;
mod layer;
mod listener;
mod packet;
mod relay;
mod send;
mod splice;
mod stream;

pub use address::Address;
pub use connect::{ConnectError, ConnectOptions};
pub use datagram::Datagram;
pub use datagram_trains::{DatagramTrains, TrainSent};
pub use layer::{DetachedLayer, Layer, OpenProgress};
pub use listener::{Accepted, Listener, ListenerOptions};
pub use packet::Packet;
pub use relay::{
    AfterEnd, Channel, ChannelFuture, Endpoint, Observer, RelayEnd, RelayOptions, Side, Sides,
    relay,
};
pub use send::{Send, SendOptions};
pub use splice::{PIPE_BYTES, PipeSink, PipeSource, Piped};
pub use stream::{Hangup, Recv, RecvLarge, Stream, Unread};

use std::time::Duration;

/// No limit of time.
pub const NO_TIMEOUT: Duration = Duration::MAX;
