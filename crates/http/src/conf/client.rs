//! Settings of client connections and of reading requests. nginx: `ngx_http_core_module`.

use nowait_conf::{Buffers, Cx, Diagnostic, Msec, Node, Setting, Size, arity};

use super::SizeText;

nowait_conf::directives! {
    /// Settings for reading request heads, from the default server of the connection's address.
    #[derive(Debug)]
    module "core";
    pub struct HeadConf with HeadConfLayer;

    /// Maximum time for reading the complete request head; after that the request fails with 408.
    client_header_timeout: Msec = "60s", in HTTP | SERVER, args "time";
    /// Size of the buffer for the request head. Longer heads use `large_client_header_buffers`.
    client_header_buffer_size: Size = "1k", in HTTP | SERVER, args "size";
    /// Number and size of the buffers for large request heads. A request line that exceeds one
    /// buffer is refused with 414, a header line with 400.
    large_client_header_buffers: Buffers = "4 8k", in HTTP | SERVER, args "number size";
    /// Maximum number of header lines in a request; more are refused with 400.
    max_headers: u32 = "1000", in HTTP | SERVER, args "number";
    /// Controls whether header lines with invalid names are ignored, with a message in the error
    /// log at level `info`. Valid names consist of letters, digits, dashes and, depending on
    /// `underscores_in_headers`, underscores.
    ignore_invalid_headers: bool = "on", in HTTP | SERVER, args "on | off";
    /// Allows or forbids underscores in names of header fields. If they are forbidden, such names
    /// are invalid (see `ignore_invalid_headers`).
    underscores_in_headers: bool = "off", in HTTP | SERVER, args "on | off";
    /// Controls whether adjacent slashes in a URI are merged before a location is selected.
    merge_slashes: bool = "on", in HTTP | SERVER, args "on | off";
    /// Accepted for compatibility: memory is not pooled per connection.
    connection_pool_size: Size = "512", in HTTP | SERVER, args "size";
    /// Accepted for compatibility: memory is not pooled per request.
    request_pool_size: Size = "4k", in HTTP | SERVER, args "size";
}

nowait_conf::directives! {
    /// Settings for keeping connections and sending responses.
    #[derive(Debug)]
    module "core";
    pub struct ClientConf with ClientConfLayer;

    /// How long an idle connection is kept open; optionally, the value of the `Keep-Alive` field.
    /// Zero closes connections after each request.
    keepalive_timeout: KeepaliveTimeout = "75s", in HTTP | SERVER | LOCATION, args "timeout [header_timeout]";
    /// Minimum time an idle connection is kept open when connections become scarce or at shutdown.
    keepalive_min_timeout: Msec = "0", in HTTP | SERVER | LOCATION, args "timeout";
    /// Maximum number of requests per connection; the connection is closed after the last one.
    keepalive_requests: u32 = "1000", in HTTP | SERVER | LOCATION, args "number";
    /// Maximum time during which a connection accepts requests.
    keepalive_time: Msec = "1h", in HTTP | SERVER | LOCATION, args "time";
    /// Browsers that do not get keep-alive connections: `msie6` after a POST, `safari` on macOS.
    /// `none` disables no browser.
    keepalive_disable: KeepaliveDisable = "msie6", in HTTP | SERVER | LOCATION, args "none | browser ...";
    /// Controls whether a connection is read further after the response, so that a client that is
    /// still sending receives the response before the connection is closed.
    lingering_close: LingeringClose = "on", in HTTP | SERVER | LOCATION, args "off | on | always";
    /// Maximum time for which a connection is read after its last response (see `lingering_close`).
    lingering_time: Msec = "30s", in HTTP | SERVER | LOCATION, args "time";
    /// Maximum time between two reads during `lingering_close`.
    lingering_timeout: Msec = "5s", in HTTP | SERVER | LOCATION, args "time";
    /// Controls whether connections that timed out are reset, which frees their memory at once.
    reset_timedout_connection: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Maximum time between two successful writes of a response; after that the connection is
    /// closed. The whole response may take any time.
    send_timeout: Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
    /// Accepted for compatibility: Linux has no low-water mark for sending.
    send_lowat: Size = "0", in HTTP | SERVER | LOCATION, args "size";
    /// Minimum amount of data to send while more is about to follow.
    postpone_output: Size = "1460", in HTTP | SERVER | LOCATION, args "size";
    /// Controls whether the response head and the beginning of a file are sent in one packet
    /// (TCP_CORK) with `sendfile`.
    tcp_nopush: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether small packets are sent immediately (TCP_NODELAY).
    tcp_nodelay: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Limits the rate of a response, in bytes per second; zero means no limit.
    limit_rate: Option<SizeText>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "rate";
    /// Amount of data sent before `limit_rate` applies.
    limit_rate_after: Option<SizeText>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "size";
    /// Allows or forbids `Transfer-Encoding: chunked` in responses.
    chunked_transfer_encoding: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Requires a client to pass `all` kinds of access checks, or `any` of them.
    satisfy: Satisfy = "all", in HTTP | SERVER | LOCATION, args "all | any";
    /// Runs a subrequest for this URI, or at this named location, after a response has been sent,
    /// to notify another server. It has access to the variables of the response, such as
    /// `$body_bytes_sent`, `$request_completion` and `$status`; its own response is discarded, and
    /// never waited for. A worker runs at most 512 such subrequests at a time; further ones are
    /// dropped and logged.
    post_action: Option<super::LocalUri>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "uri | @name";
    /// Delays 401 responses, to slow down password guessing.
    auth_delay: Msec = "0s", in HTTP | SERVER | LOCATION, args "time";
    /// Maximum size of a subrequest's response that is kept in memory: the SSI command `include`
    /// with `set`.
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
    /// How long an idle connection is kept open.
    pub timeout: Msec,
    /// Seconds to state in `Keep-Alive`.
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
