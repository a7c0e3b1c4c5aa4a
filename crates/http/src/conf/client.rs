//! Settings of client connections and of reading requests. nginx: `ngx_http_core_module`.

use nowait_conf::{Buffers, Cx, Diagnostic, Msec, Node, Setting, Size, arity};

use super::SizeText;

nowait_conf::directives! {
    /// How request heads are read; chosen by the server of the connection's address.
    #[derive(Debug)]
    module "core";
    pub struct HeadConf with HeadConfLayer;

    /// Time to read the whole head of a request; then the request ends with 408.
    client_header_timeout: Msec = "60s", in HTTP | SERVER, args "time";
    /// Size of the buffer for a request's head. A longer head uses `large_client_header_buffers`.
    client_header_buffer_size: Size = "1k", in HTTP | SERVER, args "size";
    /// Number and size of the buffers for large heads. A request line that does not fit into one
    /// buffer is refused with 414, a header line with 400.
    large_client_header_buffers: Buffers = "4 8k", in HTTP | SERVER, args "number size";
    /// Most header lines in a request; more are refused with 400.
    max_headers: u32 = "1000", in HTTP | SERVER, args "number";
    /// Whether header lines with other characters in their name than letters, digits, dashes and (see
    /// `underscores_in_headers`) underscores are ignored, which the error log tells at `info`.
    ignore_invalid_headers: bool = "on", in HTTP | SERVER, args "on | off";
    /// Whether underscores in header names are allowed; else such a name is invalid (see
    /// `ignore_invalid_headers`).
    underscores_in_headers: bool = "off", in HTTP | SERVER, args "on | off";
    /// Whether adjacent slashes in a URI are merged into one before a location is looked for.
    merge_slashes: bool = "on", in HTTP | SERVER, args "on | off";
    /// Accepted for compatibility: memory is not pooled per connection.
    connection_pool_size: Size = "512", in HTTP | SERVER, args "size";
    /// Accepted for compatibility: memory is not pooled per request.
    request_pool_size: Size = "4k", in HTTP | SERVER, args "size";
}

nowait_conf::directives! {
    /// How connections are kept and responses are sent.
    #[derive(Debug)]
    module "core";
    pub struct ClientConf with ClientConfLayer;

    /// How long an idle connection is kept open, and optionally the value of the `Keep-Alive`
    /// header. Zero closes connections after each request.
    keepalive_timeout: KeepaliveTimeout = "75s", in HTTP | SERVER | LOCATION, args "timeout [header_timeout]";
    /// Shortest time an idle connection is kept when connections become scarce or at shutdown.
    keepalive_min_timeout: Msec = "0", in HTTP | SERVER | LOCATION, args "timeout";
    /// Most requests through one connection; after the last one it is closed.
    keepalive_requests: u32 = "1000", in HTTP | SERVER | LOCATION, args "number";
    /// Longest time during which requests can be made through one connection.
    keepalive_time: Msec = "1h", in HTTP | SERVER | LOCATION, args "time";
    /// Browsers that get no keep-alive connection: `msie6` after a POST, `safari` on macOS; `none` is all
    /// of them allowed.
    keepalive_disable: KeepaliveDisable = "msie6", in HTTP | SERVER | LOCATION, args "none | browser ...";
    /// Whether a connection is read on after the response, so that a client that still sends
    /// receives the response before the connection is closed.
    lingering_close: LingeringClose = "on", in HTTP | SERVER | LOCATION, args "off | on | always";
    /// Longest time for which a connection is read on after its last response (see `lingering_close`).
    lingering_time: Msec = "30s", in HTTP | SERVER | LOCATION, args "time";
    /// Longest pause between two reads of a connection that is read on.
    lingering_timeout: Msec = "5s", in HTTP | SERVER | LOCATION, args "time";
    /// Whether connections that timed out are reset, which frees their memory at once.
    reset_timedout_connection: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Longest pause between two successful writes of a response; then the connection is closed. The
    /// whole response may take any time.
    send_timeout: Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
    /// Accepted for compatibility: Linux has no low-water mark for sending.
    send_lowat: Size = "0", in HTTP | SERVER | LOCATION, args "size";
    /// Smallest amount of data worth a packet while more is to come.
    postpone_output: Size = "1460", in HTTP | SERVER | LOCATION, args "size";
    /// Whether the head and the beginning of a file are sent in one packet (TCP_CORK), when
    /// `sendfile` is used.
    tcp_nopush: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Whether small packets are sent at once (TCP_NODELAY).
    tcp_nodelay: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Speed limit of a response in bytes per second; zero is no limit.
    limit_rate: Option<SizeText>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "rate";
    /// Number of bytes that are sent before the speed limit applies.
    limit_rate_after: Option<SizeText>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "size";
    /// Whether `Transfer-Encoding: chunked` may be used in responses.
    chunked_transfer_encoding: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Whether a client must pass all kinds of access checks (`all`), or one of them is enough (`any`).
    satisfy: Satisfy = "all", in HTTP | SERVER | LOCATION, args "all | any";
    /// Makes a request of its own for this URI, or at this named location, when a response has been sent:
    /// to tell somebody of it. It sees the variables of the response, such as `$body_bytes_sent`,
    /// `$request_completion` and `$status`; what it is answered with is dropped. Nobody waits for it; a
    /// worker that has 512 of such requests under way drops what would be more, which the log tells.
    post_action: Option<super::addition::AddUri>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "uri | @name";
    /// Delay of answers with 401, against guessing of passwords.
    auth_delay: Msec = "0s", in HTTP | SERVER | LOCATION, args "time";
    /// Longest answer to a subrequest that is kept in memory: the SSI command `include` with `set`.
    subrequest_output_buffer_size: Size = "4k", in HTTP | SERVER | LOCATION, args "size";
}

nowait_conf::setting_enum! {
    /// `lingering_close`
    pub enum LingeringClose {
        /// `off`
        Off = "off",
        /// `on`
        On = "on",
        /// `always`
        Always = "always",
    }
}

nowait_conf::setting_enum! {
    /// `satisfy`
    pub enum Satisfy {
        /// `all`
        All = "all",
        /// `any`
        Any = "any",
    }
}

/// `keepalive_timeout`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveTimeout {
    /// How long the connection is kept.
    pub timeout: Msec,
    /// Seconds to tell the client.
    pub header: Option<u64>,
}

impl Setting for KeepaliveTimeout {
    const ARITY: arity::Arity = arity::between(1, 2);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        Ok(Self {
            timeout: super::value(node, 0)?,
            header: match node.args.get(1) {
                Some(_) => {
                    Some(super::value::<nowait_conf::Seconds>(node, 1)?.0).filter(|s| *s != 0)
                }
                None => None,
            },
        })
    }
}

/// `keepalive_disable`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeepaliveDisable {
    /// Old versions of MSIE, after a POST.
    pub msie6: bool,
    /// Safari.
    pub safari: bool,
}

impl Setting for KeepaliveDisable {
    const ARITY: arity::Arity = arity::between(1, 2);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let mut disable = Self::default();
        for word in &node.args {
            match &word.text[..] {
                b"none" => {}
                b"msie6" => disable.msie6 = true,
                b"safari" => disable.safari = true,
                _ => {
                    return Err(word
                        .error(format!("invalid value \"{word}\""))
                        .expected("none, msie6 or safari"));
                }
            }
        }
        Ok(disable)
    }
}
