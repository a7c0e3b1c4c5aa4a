//! Settings of HTTP/2. nginx: `ngx_http_v2_module`.

use nowait_conf::{Cx, Diagnostic, Node, Size, Value, ValueError};

nowait_conf::directives! {
    /// HTTP/2 towards clients, for a server.
    #[derive(Debug)]
    module "http2";
    pub struct Http2Conf with Http2ConfLayer;

    /// Enables or disables HTTP/2: for clients that choose it in the TLS handshake, or that begin with its
    /// preface on a plain connection.
    http2: bool = "off", in HTTP | SERVER, args "on | off";
    /// Maximum number of streams that a client may have open on a connection. Further ones are refused;
    /// clients repeat them. That of the address's default server applies.
    http2_max_concurrent_streams: u32 = "128", in HTTP | SERVER, args "number";
    /// How much of each request's body a client may send before it is read: the initial window of
    /// streams. That of the address's default server applies.
    http2_body_preread_size: WindowSize = "64k", in HTTP | SERVER, args "size";
    /// Accepted for compatibility: memory is not pooled per connection.
    http2_pool_size: PoolSize = "4k", in HTTP | SERVER, args "size";
    /// Accepted for compatibility: streams are found without an index.
    http2_streams_index_size: PowerOfTwo = "32", in HTTP | SERVER, args "number";
}

nowait_conf::directives! {
    /// HTTP/2 towards clients, for a location.
    #[derive(Debug)]
    module "http2";
    pub struct Http2LocationConf with Http2LocationConfLayer;

    /// Maximum size of the frames into which the body of a response is sliced. Smaller ones cost more;
    /// larger ones delay other streams for longer. By default a frame fills one TLS record with its header.
    // nginx differs: 8k, which costs twice the reads of a file, frames and turns.
    http2_chunk_size: ChunkSize = "16375", in HTTP | SERVER | LOCATION, args "size";
}

nowait_conf::rows! {
    pub static HTTP2_ROWS, module "http2";

    /// Accepted for compatibility: buffers belong to no worker.
    "http2_recv_buffer_size" => recv_buffer_size, in HTTP, take exactly(1), default "256k", args "size";
    /// Obsolete and ignored: there is no server push.
    "http2_max_concurrent_pushes" => obsolete, in HTTP | SERVER, take exactly(1), default "10", args "number";
    /// Obsolete and ignored: there is no server push.
    "http2_push" => obsolete, in HTTP | SERVER | LOCATION, take exactly(1), default "off", args "uri | off";
    /// Obsolete and ignored: there is no server push.
    "http2_push_preload" => obsolete, in HTTP | SERVER | LOCATION, take exactly(1), default "off", args "on | off";
    /// Obsolete and ignored: use `keepalive_requests`.
    "http2_max_requests" => obsolete, in HTTP | SERVER, take exactly(1), default "1000", args "number";
    /// Obsolete and ignored: use `large_client_header_buffers`.
    "http2_max_field_size" => obsolete, in HTTP | SERVER, take exactly(1), default "4k", args "size";
    /// Obsolete and ignored: use `large_client_header_buffers`.
    "http2_max_header_size" => obsolete, in HTTP | SERVER, take exactly(1), default "16k", args "size";
    /// Obsolete and ignored: use `client_header_timeout`.
    "http2_recv_timeout" => obsolete, in HTTP | SERVER, take exactly(1), default "30s", args "time";
    /// Obsolete and ignored: use `keepalive_timeout`.
    "http2_idle_timeout" => obsolete, in HTTP | SERVER, take exactly(1), default "3m", args "time";
}

/// The smallest pool, and the part of nginx's receive buffer that keeps its state, in bytes.
const POOL_MIN: u64 = 352;
const STATE_BYTES: u64 = 16;

/// The largest window and the largest frame of the protocol.
const WINDOW_MAX: u64 = (1 << 31) - 1;
const FRAME_MAX: u64 = (1 << 24) - 1;

impl Http2LocationConf {
    /// `http2_chunk_size` in bytes.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.http2_chunk_size.0.min(FRAME_MAX)).unwrap_or(usize::MAX)
    }
}

/// `http2_body_preread_size`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize(pub u64);

impl Value for WindowSize {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        let size = Size::from_word(text)?.0;
        if size > WINDOW_MAX {
            return Err(ValueError::message("the maximum body preread buffer size is 2147483647"));
        }
        Ok(Self(size))
    }
}

/// `http2_chunk_size`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSize(pub u64);

impl Value for ChunkSize {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        match Size::from_word(text)?.0 {
            0 => Err(ValueError::message("the http2 chunk size cannot be zero")),
            size => Ok(Self(size)),
        }
    }
}

/// `http2_pool_size`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSize;

impl Value for PoolSize {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        match Size::from_word(text)?.0 {
            ..POOL_MIN => {
                Err(ValueError::message(format!("the pool size must be no less than {POOL_MIN}")))
            }
            size if size % 16 != 0 => {
                Err(ValueError::message("the pool size must be a multiple of 16"))
            }
            _ => Ok(Self),
        }
    }
}

/// `http2_streams_index_size`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerOfTwo;

impl Value for PowerOfTwo {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        match u32::from_word(text)?.is_power_of_two() {
            true => Ok(Self),
            false => Err(ValueError::directive("must be a power of two")),
        }
    }
}

fn recv_buffer_size(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    match super::value::<Size>(node, 0)?.0 {
        ..=STATE_BYTES => Err(node.directive_error("value is too small")),
        _ => Ok(()),
    }
}

fn obsolete(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let name = &node.name;
    let instead = match &name.text[..] {
        b"http2_max_requests" => "keepalive_requests",
        b"http2_max_field_size" | b"http2_max_header_size" => "large_client_header_buffers",
        b"http2_recv_timeout" => "client_header_timeout",
        b"http2_idle_timeout" => "keepalive_timeout",
        _ => "",
    };
    let advice = match instead {
        "" => "ignored".to_owned(),
        instead => format!("use the \"{instead}\" directive instead"),
    };
    let text = format!("the \"{name}\" directive is obsolete, {advice}");
    cx.report(Diagnostic::warn(text).at(node.span));
    Ok(())
}
