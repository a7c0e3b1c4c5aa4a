//! Settings of connections, as the directives of a server give them, and the transport that results.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{MtuDiscoveryConfig, TransportConfig, VarInt};

use crate::congestion::CubicFactory;

/// Settings of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bidirectional streams that the peer may have open (`http3_max_concurrent_streams`).
    pub bidi_streams_max: u32,
    /// Unidirectional streams that the peer may have open. HTTP/3 needs three (RFC 9114, 6.2).
    pub uni_streams_max: u32,
    /// Bytes of a stream that are buffered while nobody reads them (`http3_stream_buffer_size`). The windows are larger,
    /// so that they do not limit the speed: [`STREAM_WINDOW_BYTES`], and for all streams together
    /// [`CONNECTION_WINDOW_BYTES`].
    pub stream_buffer_bytes: usize,
    /// A connection without any packet for this long is dropped. Requests that take longer hold it by
    /// [`Connection::set_keep_alive`](crate::Connection::set_keep_alive).
    pub idle_timeout: Duration,
    /// Connection IDs of a client that are kept (`quic_active_connection_id_limit`): two to five, for which the library
    /// has room.
    pub active_connection_id_limit: u32,
    /// Datagrams leave in trains that the kernel or the network card splits (`quic_gso`).
    pub gso: bool,
}

/// What a peer may send of a stream before it is read, at least: 100 Mbit/s over 300 ms, as much as TCP has by default.
pub const STREAM_WINDOW_BYTES: usize = 4 * 1024 * 1024;

/// What is left to the other streams while nobody reads one.
const OTHER_STREAMS_BYTES: usize = 2 * 1024 * 1024;

/// The same for all streams of a connection.
pub const CONNECTION_WINDOW_BYTES: usize = STREAM_WINDOW_BYTES + OTHER_STREAMS_BYTES;

/// What is written ahead of what may be in flight, at least.
pub(crate) const SEND_AHEAD_BYTES: u64 = 128 * 1024;

/// What is kept of written data until it is acknowledged, with what is ahead of it: within these limits.
pub(crate) const SEND_WINDOW_BYTES_MIN: u64 = 128 * 1024;
pub(crate) const SEND_WINDOW_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The size of datagrams that is looked for: Ethernet over IPv4. A path that carries less is found to.
const MTU_MAX: u16 = 1472;

/// Handshake messages that arrive out of order, at most.
const CRYPTO_BYTES_MAX: usize = 16 * 1024;

thread_local! {
    /// The settings that this thread has used last.
    static LAST: RefCell<Option<(Settings, Arc<TransportConfig>)>> = const { RefCell::new(None) };
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bidi_streams_max: 128,
            uni_streams_max: 3,
            stream_buffer_bytes: 64 * 1024,
            idle_timeout: Duration::from_secs(75),
            active_connection_id_limit: 2,
            gso: true,
        }
    }
}

impl Settings {
    /// The library's settings, which connections with equal ones share.
    pub(crate) fn transport(&self) -> Arc<TransportConfig> {
        LAST.with_borrow_mut(|last| match last {
            Some((settings, transport)) if settings == self => transport.clone(),
            _ => {
                let transport = self.make_transport();
                *last = Some((self.clone(), transport.clone()));
                transport
            }
        })
    }

    fn make_transport(&self) -> Arc<TransportConfig> {
        let varint = |bytes: usize| VarInt::from_u64(bytes as u64).unwrap_or(VarInt::MAX);
        let stream_window = self.stream_buffer_bytes.max(STREAM_WINDOW_BYTES);
        let connection_window = stream_window + OTHER_STREAMS_BYTES;
        let mut mtu = MtuDiscoveryConfig::default();
        mtu.upper_bound(MTU_MAX);
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(self.bidi_streams_max.into())
            .max_concurrent_uni_streams(self.uni_streams_max.into())
            .max_idle_timeout(self.idle_timeout.try_into().ok())
            .stream_receive_window(varint(stream_window))
            .receive_window(varint(connection_window))
            .send_window(SEND_WINDOW_BYTES_MIN)
            .crypto_buffer_size(CRYPTO_BYTES_MAX)
            .mtu_discovery_config(Some(mtu))
            .congestion_controller_factory(Arc::new(CubicFactory))
            .datagram_receive_buffer_size(None)
            .enable_segmentation_offload(self.gso);
        Arc::new(transport)
    }
}
