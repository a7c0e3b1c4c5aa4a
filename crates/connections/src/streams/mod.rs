//! What HTTP/2 and HTTP/3 have in common towards clients: a request is a stream of a connection, which has several.
//!
//! Used by the front ends of both. Nothing here knows frames, windows, or which of the two it is.

pub(crate) mod body_reader;
pub(crate) mod connection;
pub(crate) mod heads;
pub(crate) mod outgoing;
pub(crate) mod presence;
pub(crate) mod request_future;
pub(crate) mod requests;
pub(crate) mod response;
pub(crate) mod response_head;
pub(crate) mod serving;
pub(crate) mod state;
pub(crate) mod stream;
pub(crate) mod tunnel;

/// Bytes of a request that are discarded after its response, so that clients that send the whole request
/// first get no reset. If more is expected, or the length is unknown, the stream is stopped.
pub(crate) const DISCARD_BYTES_MAX: u64 = 32 * 1024;

/// Streams of a connection whose requests are being discarded; further ones are stopped at once.
pub(crate) const DISCARDING_STREAMS_MAX: usize = 32;

/// Maximum memory of the heads of a connection's requests at a time, in bytes: 8 KB for each of 128
/// streams. Further streams are refused. A head that refers to fields of earlier ones costs a client a few
/// hundred bytes, and the server all that `large_client_header_buffers` allows.
pub(crate) const HEADS_BYTES_MAX: usize = 1024 * 1024;

/// Fields that a request may have beyond `max_headers`: those that are not counted.
pub(crate) const FIELDS_MORE: u16 = 128;
