//! Settings of connections, as the directives of a server give them.

use std::time::Duration;

/// Settings of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bidirectional streams that the peer may have open (`http3_max_concurrent_streams`).
    pub bidi_streams_max: u32,
    /// Unidirectional streams that the peer may have open. HTTP/3 needs three (RFC 9114, 6.2).
    pub uni_streams_max: u32,
    /// Bytes received of a stream and not read, at most (`http3_stream_buffer_size`). The same again bounds what
    /// is kept of a connection's streams together, times eight.
    pub stream_buffer_bytes: usize,
    /// A connection without any packet for this long is dropped (`keepalive_timeout`, and the longest timeout of a
    /// request: see [`Connection::set_keep_alive`](crate::Connection::set_keep_alive)).
    pub idle_timeout: Duration,
    /// Connection IDs of the peer that are kept (`quic_active_connection_id_limit`). quinn-proto keeps at most 5; a
    /// smaller number has no effect.
    pub active_connection_id_limit: u32,
    /// Datagrams leave in batches that the kernel or the network card splits (`quic_gso`).
    pub gso: bool,
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
