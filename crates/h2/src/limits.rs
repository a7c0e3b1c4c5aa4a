//! Limits for a peer. Every limit has a documented result, and none needs a clock.

use crate::frame::{FRAME_SIZE_DEFAULT, WINDOW_MAX};
use crate::hpack::TABLE_SIZE_DEFAULT;

/// Settings announced to the peer, and bounds enforced on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Streams that the peer may have open (`http2_max_concurrent_streams`). More are refused with
    /// REFUSED_STREAM; the peer may try again.
    pub concurrent_streams: u32,
    /// The window of a new stream in bytes (`http2_body_preread_size`): what a peer may send before
    /// a caller takes it. DATA beyond it is a stream error.
    pub stream_window: u32,
    /// The window of the connection in bytes, at least 65,535. DATA beyond it is a connection error.
    pub connection_window: u32,
    /// The largest frame in bytes, at least 16,384. A larger one is a connection error.
    pub frame_size: u32,
    /// The peer's dynamic table in bytes, at most 65,535.
    pub header_table_size: u32,
    /// The longest name or value in bytes (one of `large_client_header_buffers`). A longer one is a
    /// connection error.
    pub string_bytes_max: u32,
    /// Names and values of one block in bytes (all of `large_client_header_buffers`). More are a
    /// connection error for a server, as in nginx; for a client a stream error, up to
    /// [`Limits::LIST_EXCESS`] times as much.
    pub list_bytes_max: u32,
    /// Fields of one block (`max_headers`). More are a stream error.
    pub fields_max: u16,
    /// A block as it is sent, in bytes. A larger one is a connection error, before it is kept.
    pub block_bytes_max: u32,
    /// CONTINUATION frames of one block (CVE-2024-27316). More are a connection error.
    pub continuations_max: u16,
    /// Interim responses to one request. More are a stream error.
    pub interim_max: u8,
    /// Accepts extended CONNECT (RFC 8441).
    pub extended_connect: bool,
    /// Accepts a whole octet of padding after Huffman codes, as nginx does; some encoders send it.
    pub long_padding: bool,
    /// The budget for [`crate::Flood::Frames`].
    pub idle_frames_max: u32,
    /// The budget for [`crate::Flood::Resets`].
    pub resets_max: u32,
    /// The budget for [`crate::Flood::Refused`].
    pub refused_max: u32,
}

impl Limits {
    /// A field list of this many times [`Limits::list_bytes_max`] is a connection error for a client,
    /// too: decoding it to its end would cost more than a connection.
    pub const LIST_EXCESS: u32 = 4;
}

impl Default for Limits {
    /// nginx's defaults where it has them.
    fn default() -> Self {
        Limits {
            concurrent_streams: 128,
            stream_window: 65_536,
            connection_window: WINDOW_MAX,
            frame_size: FRAME_SIZE_DEFAULT,
            header_table_size: TABLE_SIZE_DEFAULT,
            string_bytes_max: 8192,
            list_bytes_max: 4 * 8192,
            fields_max: 1000,
            block_bytes_max: 64 * 1024,
            continuations_max: 256,
            interim_max: 32,
            extended_connect: false,
            long_padding: false,
            idle_frames_max: 1000,
            resets_max: 200,
            refused_max: 200,
        }
    }
}
