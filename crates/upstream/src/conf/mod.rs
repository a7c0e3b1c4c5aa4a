//! The `upstream` block: its rows, and the plain structs they become.
//!
//! `http` and `stream` have the block's own row, call [`read`] for what is in it, and evaluate the
//! texts with variables (kept as [`Template`]); everything else of a group is in this crate. nginx:
//! `ngx_http_upstream.c`, and the modules `ngx_http_upstream_*`.

mod balance_methods;
mod keepalive;
mod resolver;
mod server;
mod state;
mod sticky;

use bytes::Bytes;
use nowait_conf::{
    Context, Cx, Diagnostic, Level, Msec, Node, Row, Setting, Size, Template, Value,
};
use nowait_runtime::net::Address;

pub use balance_methods::{BalanceCriterion, Balancer, Time};
pub use keepalive::Keepalive;
pub use resolver::ResolverSetting;
pub use server::{ROUTE_MAX, ServerConf, ServerLocation, ServerMode, target, target_error};
pub use state::{SERVERS_MAX, StateFile};
pub use sticky::{Expires, LearnConf, Sticky, StickyCookie, is_samesite};

pub(crate) use server::Supports;

/// The smallest size of a zone: 8 pages, as nginx has it.
const ZONE_BYTES_MIN: u64 = 8 * 4096;

/// The default time that a request waits in the queue.
const QUEUE_TIMEOUT: Msec = Msec(60_000);

nowait_conf::rows! {
    pub static ROWS, module "upstream";

    /// A server of the group: an address with an optional port (80 by default), a name, or the path
    /// of a Unix-domain socket (`unix:/run/app.sock`). A name with several addresses stands for
    /// that many servers.
    ///
    /// nginx differs: it resolves names when it reads the configuration. Nowait resolves them at
    /// run time, with `resolve` by the applicable `resolver`, otherwise by the system configuration
    /// (the hosts file, the servers in resolv.conf), and again whenever the answer expires.
    /// Requests that arrive before the first answer wait for it.
    ///
    /// * `weight=number`: its share of the requests; 1 by default.
    /// * `max_conns=number`: maximum number of concurrent requests, of all workers; 0 (default)
    ///   means no limit.
    /// * `max_fails=number`: number of failures within `fail_timeout` that make the server
    ///   unavailable for `fail_timeout`; 1 by default, 0 means never. `proxy_next_upstream` and its
    ///   relatives define what a failure is. The only server of a group is never unavailable.
    /// * `fail_timeout=time`: 10 seconds by default.
    /// * `backup`: used only if the others are unavailable. Not with `hash`, `ip_hash` and
    ///   `random`.
    /// * `down`: never used. `drain`: used only for requests that `sticky` binds to it.
    /// * `slow_start=time`: a server that has become available again regains its share gradually
    ///   within this time. Not with `hash`, `ip_hash` and `random`.
    /// * `route=text`: its name for `sticky`.
    /// * `resolve`: the name is resolved by the `resolver` of the group, or else that of `http`. If
    ///   the name no longer exists, it has no servers; without `resolve`, the last addresses are
    ///   kept.
    /// * `service=name`: the servers come from the SRV records of this service. Those with the best
    ///   priority are used first, the others are backups. Requires `resolve`.
    "server" => server::server, in UPSTREAM | STREAM_UPSTREAM, take at_least(1), args "address [weight=number] [max_conns=number] [max_fails=number] [fail_timeout=time] [slow_start=time] [backup] [down] [drain] [resolve] [service=name] [route=text]";
    /// Status pages and `api` show the group, and with `api write=on` its servers can be changed while it is in use.
    /// All workers always share the state of the servers, which needs no reserved memory: the size is accepted for
    /// compatibility.
    "zone" => zone, in UPSTREAM | STREAM_UPSTREAM, take between(1, 2), args "name [size]";
    /// A file with the servers of the group, in place of `server`: one `server …;` per line, with the same parameters.
    /// It is read with the configuration, may be missing, and is replaced whenever the API (`api write=on`) changes a
    /// server, so that changes survive reloads and restarts. Requires `zone`. The directory has to be writable for
    /// the `user` of the server.
    ///
    /// Nowait differs: a reload uses what the API has made of the servers rather than an older text of the file. If an
    /// operator has written the file, a reload uses that text.
    "state" => state::state, in UPSTREAM | STREAM_UPSTREAM, take exactly(1), args "file";
    /// Selects the server with the fewest active requests, by weight.
    "least_conn" => balance_methods::least_conn, in UPSTREAM | STREAM_UPSTREAM, take none(), args "";
    /// Selects the server by the hash of the text. With `consistent`, adding or removing a server
    /// moves only a small part of all texts to other servers (ketama). Both select as nginx does.
    "hash" => balance_methods::hash, in UPSTREAM | STREAM_UPSTREAM, take between(1, 2), args "key [consistent]";
    /// Selects a random server, by weight; with `two`, the better one of two such servers: the one
    /// with fewer active requests, or with the shorter of the times known from `least_time`.
    "random" => balance_methods::random, in UPSTREAM | STREAM_UPSTREAM, take between(0, 2), args "[two [least_conn | least_time=time]]";
    /// The resolver for the names of the group. Parameters are those of `resolver` in other blocks.
    "resolver" => resolver, in UPSTREAM | STREAM_UPSTREAM, take at_least(1), args "address ... [valid=time] [ipv4=on|off] [ipv6=on|off] [status_zone=zone]";
    /// Maximum time for resolving a name.
    "resolver_timeout" => resolver_timeout, in UPSTREAM | STREAM_UPSTREAM, take exactly(1), default "30s", args "time";
}

nowait_conf::rows! {
    pub static HTTP_ROWS, module "upstream";

    /// Sends requests of a client to the same server, selected by the first three bytes of an IPv4
    /// address or the whole IPv6 address.
    "ip_hash" => balance_methods::ip_hash, in UPSTREAM, take none(), args "";
    /// Selects the server with the lowest average time and the fewest active requests, by weight:
    /// the time until the `header` or the end of the response (`last_byte`). With `inflight`,
    /// requests without a response count too.
    "least_time" => balance_methods::least_time, in UPSTREAM, take between(1, 2), args "header | last_byte [inflight]";
    /// Binds the requests of a session to a server.
    ///
    /// * `sticky cookie name [expires=time|max] [domain=text] [httponly]
    ///   [samesite=strict|lax|none|$variable] [secure] [path=path]`: the response sets a cookie
    ///   that names the server.
    /// * `sticky route $variable ...`: the first non-empty variable is the `route` of the server.
    /// * `sticky learn create=$variable lookup=$variable zone=name:size [timeout=time] [header]`:
    ///   sessions that servers create (a variable of the response, usually `$upstream_cookie_name`)
    ///   are remembered with their server for `timeout`, 10 minutes by default, and found by
    ///   `lookup`. With `header`, a session is known as soon as the response header has arrived.
    "sticky" => sticky::sticky, in UPSTREAM, take at_least(2), args "cookie name [expires=time | expires=max] [domain=text] [path=path] [httponly] [secure] [samesite=strict | lax | none] | route $variable ... | learn create=$variable lookup=$variable zone=name:size [timeout=time] [header]";
    /// Maximum number of idle connections to the servers of the group that each worker keeps for
    /// later requests; 32 by default. The least recently used ones are closed first. 0 disables
    /// keep-alive. With `local` (and without the directive), a connection is reused only by the
    /// location that opened it.
    ///
    /// A worker without an idle connection borrows one from another worker before it opens a new
    /// one.
    "keepalive" => keepalive::keepalive, in UPSTREAM, take between(1, 2), args "connections [local]";
    /// Maximum number of requests per connection.
    "keepalive_requests" => keepalive::requests, in UPSTREAM, take exactly(1), default "1000", args "number";
    /// Maximum age at which a connection is reused.
    "keepalive_time" => keepalive::time, in UPSTREAM, take exactly(1), default "1h", args "time";
    /// How long an idle connection is kept open.
    "keepalive_timeout" => keepalive::timeout, in UPSTREAM, take exactly(1), default "60s", args "timeout";
    /// Requests for which no server is available wait, at most this many, and at most for `timeout`
    /// (60 seconds by default); after that they fail with 502. Without the directive they fail at
    /// once.
    "queue" => queue, in UPSTREAM, take between(1, 2), args "number [timeout=time]";
}

nowait_conf::rows! {
    pub static STREAM_ROWS, module "upstream";

    /// Selects the server with the lowest average time and the fewest active sessions, by weight:
    /// the time until the connection is established (`connect`), until the `first_byte` arrives,
    /// or until the session ends (`last_byte`). With `inflight`, sessions that have not reached
    /// this point count too.
    "least_time" => balance_methods::least_time, in STREAM_UPSTREAM, take between(1, 2), args "connect | first_byte | last_byte [inflight]";
}

/// A group as described by its block.
#[derive(Clone, Debug)]
pub struct GroupConf {
    /// The name of the block, as written.
    pub name: Bytes,
    /// The servers, in order.
    pub servers: Vec<ServerConf>,
    /// The balancing method.
    pub balancer: Balancer,
    /// `sticky`
    pub sticky: Option<Sticky>,
    /// Idle connections.
    pub keepalive: Keepalive,
    /// `queue`
    pub queue: Option<QueueConf>,
    /// The name of `zone`.
    pub zone: Option<Bytes>,
    /// `state`
    pub state: Option<StateFile>,
    /// `resolver`
    pub resolver: Option<ResolverSetting>,
    /// `resolver_timeout`
    pub resolver_timeout: Option<Msec>,
}

/// `queue`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConf {
    /// Requests that may wait at once.
    pub length: usize,
    /// Maximum waiting time.
    pub timeout: Msec,
}

impl GroupConf {
    /// A group of these addresses, with nginx's defaults for everything that a block would set:
    /// round robin, unavailable for 10 seconds after one failure, no idle connections.
    pub fn of_addresses(name: impl Into<Bytes>, addresses: Vec<Address>) -> GroupConf {
        let name = name.into();
        let server = ServerConf::new(name.clone(), ServerLocation::Addresses(addresses));
        GroupConf::of_servers(name, vec![server])
    }

    /// A group of these servers, else as [`of_addresses`](Self::of_addresses).
    pub fn of_servers(name: impl Into<Bytes>, servers: Vec<ServerConf>) -> GroupConf {
        GroupConf {
            name: name.into(),
            servers,
            balancer: Balancer::RoundRobin,
            sticky: None,
            keepalive: Keepalive { connections: 0, ..Keepalive::default() },
            queue: None,
            zone: None,
            state: None,
            resolver: None,
            resolver_timeout: None,
        }
    }

    /// The text that `hash` evaluates.
    pub fn hash_key(&self) -> Option<&Template> {
        match &self.balancer {
            Balancer::Hash { key } | Balancer::ConsistentHash { key } => Some(key),
            _ => None,
        }
    }
}

/// The state of the block being read.
#[derive(Default)]
struct UpstreamLayer {
    servers: Vec<ServerConf>,
    balancer: Option<Balancer>,
    /// The `server` parameters that the selected method supports.
    supports: Supports,
    sticky: Option<Sticky>,
    keepalive: keepalive::KeepaliveLayer,
    queue: Option<QueueConf>,
    zone: Option<Bytes>,
    state: Option<StateFile>,
    resolver: Option<ResolverSetting>,
    resolver_timeout: Option<Msec>,
}

/// Reads the block of an `upstream NAME { … }`. The name is not checked for duplicates.
///
/// # Errors
/// A block without servers; those of its directives are reported to `cx`.
pub fn read(cx: &mut Cx<'_>, node: &Node, context: Context) -> Result<GroupConf, Diagnostic> {
    let name = node.args.first().ok_or_else(|| node.arity_error())?;
    let errors = errors_of(cx);
    let mut scope = cx.block(context, node.children());
    let layer = scope.take::<UpstreamLayer>();
    if let Some(file) = &layer.state
        && layer.zone.is_none()
        && errors_of(cx) == errors
    {
        let path = String::from_utf8_lossy(&file.path);
        return Err(node
            .error(format!("\"state {path}\" requires \"zone\""))
            .hint("add \"zone NAME 64k;\""));
    }
    if layer.servers.is_empty() && layer.state.is_none() && errors_of(cx) == errors {
        return Err(node.error("no servers are inside upstream"));
    }
    // nginx: backup servers alone do not suffice.
    if layer.state.is_none()
        && !layer.servers.is_empty()
        && layer.servers.iter().all(|server| server.backup)
    {
        return Err(node.error(format!("no servers in upstream \"{name}\"")));
    }
    Ok(GroupConf {
        name: Bytes::copy_from_slice(&name.text),
        servers: layer.servers,
        balancer: layer.balancer.unwrap_or(Balancer::RoundRobin),
        sticky: layer.sticky,
        keepalive: layer.keepalive.resolve(),
        queue: layer.queue,
        zone: layer.zone,
        state: layer.state,
        resolver: layer.resolver,
        resolver_timeout: layer.resolver_timeout,
    })
}

fn errors_of(cx: &Cx<'_>) -> usize {
    cx.diagnostics().iter().filter(|found| found.level() == Level::Emerg).count()
}

fn zone(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let name = node.args.first().ok_or_else(|| node.arity_error())?;
    if name.text.is_empty() {
        return Err(name.error(format!("invalid zone name \"{name}\"")));
    }
    if let Some(size) = node.args.get(1) {
        let Size(bytes) = Size::from_word(&size.text)
            .map_err(|_| size.error(format!("invalid zone size \"{size}\"")))?;
        if bytes < ZONE_BYTES_MIN {
            return Err(size
                .error(format!("zone \"{name}\" is too small"))
                .expected(format!("{}k or more", ZONE_BYTES_MIN / 1024)));
        }
    }
    cx.layer::<UpstreamLayer>().zone = Some(Bytes::copy_from_slice(&name.text));
    Ok(())
}

fn queue(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let (length, rest) = node.args.split_first().ok_or_else(|| node.arity_error())?;
    let number =
        nowait_conf::number(&length.text).filter(|number| *number > 0).ok_or_else(|| {
            length.error(format!("invalid value \"{length}\" in \"queue\" directive"))
        })?;
    let mut timeout = QUEUE_TIMEOUT;
    for word in rest {
        let Some(text) = word.text.strip_prefix(b"timeout=") else {
            return Err(node.parameter_error(word));
        };
        timeout = Msec::from_word(text).map_err(|invalid| invalid.in_parameter(word))?;
    }
    let length = usize::try_from(number).unwrap_or(usize::MAX);
    cx.layer::<UpstreamLayer>().queue = Some(QueueConf { length, timeout });
    Ok(())
}

fn resolver(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let setting = ResolverSetting::parse(node, cx)?;
    cx.layer::<UpstreamLayer>().resolver = Some(setting);
    Ok(())
}

fn resolver_timeout(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    let timeout = Msec::from_word(&word.text).map_err(|invalid| invalid.in_node(node, word))?;
    cx.layer::<UpstreamLayer>().resolver_timeout = Some(timeout);
    Ok(())
}

/// Rows of an `upstream` block in `http`.
pub fn http_rows() -> [&'static [Row]; 2] {
    [ROWS, HTTP_ROWS]
}
