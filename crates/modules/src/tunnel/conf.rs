//! Directives of the tunnel module.

use std::sync::Arc;

use nowait_backend::conf::{self, Backend, SendLowat, bytes32, no_lowat, page};
use nowait_backend::pass::{Pass, set_pass_to};
use nowait_backend::upstream::Settings;
use nowait_backend::url::Schemes;
use nowait_conf::{Cx, Diagnostic, Node, Scope, Word};
use nowait_front::bind::BindOrOff;
use nowait_http::slots::Key;
use nowait_http::variables::complex::HttpVariables;

/// Addresses have no scheme.
pub(super) const SCHEMES: Schemes = Schemes { plain: "tunnel://", tls: None, bare: true };

/// The destination that the client names.
const ASKED_FOR: &[u8] = b"$host:$request_port";

nowait_conf::setting_flags! {
    /// `tunnel_next_upstream`
    pub struct TunnelNextUpstream {
        /// The connection could not be made.
        ERROR = "error",
        /// The server was too slow.
        TIMEOUT = "timeout",
        /// Never.
        OFF = "off",
    }
}

impl TunnelNextUpstream {
    /// Converts to the conditions of other modules.
    fn conditions(self) -> conf::NextUpstream {
        use conf::NextUpstream;
        let same = [
            (Self::ERROR, NextUpstream::ERROR),
            (Self::TIMEOUT, NextUpstream::TIMEOUT),
            (Self::OFF, NextUpstream::OFF),
        ];
        let given = same.into_iter().filter(|(own, _)| self.contains(*own));
        given.fold(NextUpstream::default(), |all, (_, one)| all.or(one))
    }
}

nowait_conf::directives! {
    /// Connections to the destinations of CONNECT.
    #[derive(Debug)]
    module "tunnel", prefix "tunnel_";
    pub struct TunnelConf with TunnelLayer;

    /// Size of a buffer for each direction in nginx. Accepted without effect: a silent tunnel has no
    /// buffers, and a busy one borrows those of its worker.
    buffer_size: nowait_conf::Size = "4k" => page, in HTTP | SERVER | LOCATION, args "size";
    /// Maximum time for connecting to a server.
    connect_timeout: nowait_conf::Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
    /// Maximum time for which a server accepts no data, although the client has sent some; then the
    /// tunnel ends.
    send_timeout: nowait_conf::Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
    /// Maximum time without data in either direction; then the tunnel ends.
    read_timeout: nowait_conf::Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
    /// When to try another server, or another address of a name: if the connection fails, or takes
    /// longer than `tunnel_connect_timeout`.
    next_upstream: TunnelNextUpstream = "error timeout", in HTTP | SERVER | LOCATION, args "error | timeout | off ...";
    /// Maximum number of servers to try per request; zero means all of them.
    next_upstream_tries: u32 = "0", in HTTP | SERVER | LOCATION, args "number";
    /// Maximum time for trying servers per request; zero means no limit.
    next_upstream_timeout: nowait_conf::Msec = "0", in HTTP | SERVER | LOCATION, args "time";
    /// Local address, optionally with a port, of connections to servers. With `transparent` it may be
    /// a non-local address, such as `$remote_addr`. Variables are allowed; an empty value means `off`.
    bind: Option<BindOrOff<HttpVariables>>, in HTTP | SERVER | LOCATION, args "address [transparent] | off";
    /// Enables or disables TCP keepalive probes on connections to servers (`SO_KEEPALIVE`).
    socket_keepalive: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Receive buffer of connections to servers (`SO_RCVBUF`); zero leaves the choice to the kernel.
    socket_rcvbuf: nowait_conf::Size = "0", in HTTP | SERVER | LOCATION, args "size";
    /// Send buffer of connections to servers (`SO_SNDBUF`); zero leaves the choice to the kernel.
    socket_sndbuf: nowait_conf::Size = "0", in HTTP | SERVER | LOCATION, args "size";
    /// Has no effect on Linux.
    send_lowat: SendLowat = "0" => no_lowat, in HTTP | SERVER | LOCATION, args "size";
}

nowait_conf::rows! {
    pub static PASS_ROWS, module "tunnel";

    /// Connects clients that send CONNECT, by HTTP/1.1 or HTTP/2, to a server: an address with a port, a
    /// name, a Unix-domain socket or an `upstream`. Without an argument, to the destination that the client
    /// names: `$host:$request_port`. With variables, the server is looked up among the `upstream`s and
    /// then resolved by `resolver`. Other methods get 405 there. A client's destination must be
    /// restricted, by `allow`, `auth_basic` and a `map` of hosts and ports: see
    /// [the guide](../tunnel.md). A server without `tunnel_pass` refuses CONNECT with 405.
    "tunnel_pass" => tunnel_pass, in SERVER | LOCATION | LOCATION_IF, take between(0, 1), inheritance Own, args "[address]";
}

/// nginx: `ngx_http_tunnel_pass`.
fn tunnel_pass(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let asked_for = Word { text: ASKED_FOR.to_vec(), ..node.name.clone() };
    let address = node.args.first().unwrap_or(&asked_for);
    set_pass_to(cx, node, address, SCHEMES, None, Tunnel::resolve)
}

/// A location's settings for tunnels.
#[derive(Debug)]
pub(super) struct Tunnel {
    /// The destination.
    pub(super) pass: Pass,
    /// Settings shared with other modules.
    pub(super) backend: Backend,
}

/// The settings of locations with tunnels.
pub(super) static CONF: Key<Arc<Tunnel>> = Key::new();

impl Tunnel {
    /// Resolves a chain of blocks.
    fn resolve(cx: &mut Cx<'_>, chain: &[&Scope], pass: Pass) -> Self {
        let own = Arc::unwrap_or_clone(TunnelConf::resolve(cx, chain));
        let settings = Settings {
            connect_timeout: own.connect_timeout.duration(),
            send_timeout: own.send_timeout.duration(),
            read_timeout: own.read_timeout.duration(),
            request_buffering: false,
            next_upstream: own.next_upstream.conditions().causes(),
            next_upstream_tries: own.next_upstream_tries,
            next_upstream_timeout: own.next_upstream_timeout.duration(),
            socket_keepalive: own.socket_keepalive,
            socket_rcvbuf: bytes32(own.socket_rcvbuf.0),
            socket_sndbuf: bytes32(own.socket_sndbuf.0),
            ..Settings::default()
        };
        let backend = Backend {
            settings: Arc::new(settings),
            bind: own.bind.and_then(|bind| bind.0),
            adds_fields: true,
            ..Backend::new("tunnel")
        };
        Self { pass, backend }
    }
}
