//! Limits for a peer. Every limit has a documented result, and none needs a clock.
//!
//! How many streams a peer may have open, and how much it may send on each, is the transport's business.

/// Settings announced to the peer, and bounds enforced on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The peer's dynamic table in bytes (SETTINGS_QPACK_MAX_TABLE_CAPACITY), at most 65,535.
    pub table_capacity: u32,
    /// Streams that may wait for insertions (SETTINGS_QPACK_BLOCKED_STREAMS). More are a connection error.
    pub blocked_streams: u16,
    /// The longest name or value in bytes (one of `large_client_header_buffers`). A longer one is a stream error.
    pub string_bytes_max: u32,
    /// Names and values of one section in bytes (all of `large_client_header_buffers`). More are a stream error.
    pub list_bytes_max: u32,
    /// Fields of one section (`max_headers`). More are a stream error.
    pub fields_max: u16,
    /// A section as it is sent, in bytes. A larger one is a stream error, before it is kept.
    pub section_bytes_max: u32,
    /// Sections that are incomplete or wait for insertions, all streams together, in bytes. More are a connection
    /// error.
    pub kept_bytes_max: u32,
    /// Interim responses to one request. More are a stream error.
    pub interim_max: u8,
    /// Accepts extended CONNECT (RFC 9220).
    pub extended_connect: bool,
    /// The budget for [`crate::Flood::Frames`].
    pub idle_frames_max: u32,
    /// The budget for [`crate::Flood::Resets`].
    pub resets_max: u32,
    /// The budget for [`crate::Flood::Insertions`].
    pub insertions_max: u32,
}

impl Default for Limits {
    /// Those of HTTP/2 where it has them.
    fn default() -> Self {
        Limits {
            table_capacity: 4096,
            blocked_streams: 16,
            string_bytes_max: 8192,
            list_bytes_max: 4 * 8192,
            fields_max: 1000,
            section_bytes_max: 64 * 1024,
            kept_bytes_max: 256 * 1024,
            interim_max: 32,
            extended_connect: false,
            idle_frames_max: 1000,
            resets_max: 200,
            insertions_max: 2000,
        }
    }
}
