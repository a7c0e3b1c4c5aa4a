//! `limit_req` and `limit_conn`. nginx: `ngx_http_limit_req_module`, `ngx_http_limit_conn_module`.
//!
//! A limit may name a zone that is defined later, so zones are numbered when they are first named and
//! resolved when `http` ends.

use std::sync::Arc;

use nowait_conf::{BoundedNumber, Cx, Diagnostic, Node, Scope, Span, Word};
use nowait_front::limit::connections::{self, ConnectionLimit, ConnectionLimits};
use nowait_front::limit::decisions::ZoneUse;
use nowait_front::limit::{self, LimitLevel, LimitZone, Milli, ONE, Parameters, Slots, positive};
use nowait_http::variables::complex::HttpVariables;

use super::requests::{self, Bucket};

/// The parameter of limits that count requests to upstream servers.
const FETCHES: &[u8] = b"fetches";

nowait_conf::rows! {
    pub static LIMIT_REQ_ROWS, module "limit_req";

    /// A zone that tracks the request rate for each value of the key, and the allowed rate. An
    /// address takes 128 bytes, so `1m` holds 8192 addresses; when the zone is full, the least
    /// recently used key is dropped. Reloads keep the zone while its name, size and key stay the
    /// same. Requests with an empty key are not limited.
    "limit_req_zone" => limit_req_zone, in HTTP, take exactly(3), args "key zone=name:size rate=number(r/s|r/m)";
    /// Limits the request rate. Requests above the rate are delayed, up to `burst` of them; with
    /// `delay`, only those beyond that number are delayed, with `nodelay` none. Further requests
    /// are refused. Several limits must all agree.
    ///
    /// With `fetches`, the limit applies to requests to upstream servers rather than to the
    /// client's request. Cache hits, and waiting for an object that is being fetched, cost nothing;
    /// fetches, revalidations, background updates and each part of a `slice` count. For
    /// `proxy_cache_use_stale`, a refused fetch counts as a response with that status. Refusing a
    /// part of a response that has begun cuts the response off; a sufficient `burst` delays such
    /// fetches instead. Limits with `fetches` are inherited independently of those without.
    "limit_req" => limit_req, in HTTP | SERVER | LOCATION, take between(1, 4), inheritance List, args "zone=name [burst=number] [nodelay | delay=number] [fetches]";
}

nowait_conf::rows! {
    pub static LIMIT_CONN_ROWS, module "limit_conn";

    /// A zone that counts requests in progress for each value of the key. An address takes 64
    /// bytes, so `1m` holds 16384 addresses; when the zone is full, requests with new keys are
    /// refused. A request counts until its response is complete. Requests with an empty key are not
    /// limited.
    "limit_conn_zone" => limit_conn_zone, in HTTP, take exactly(2), args "key zone=name:size";
    /// Limits the number of concurrent requests for each value of the zone's key. Several limits
    /// must all agree.
    ///
    /// With `fetches`, the limit applies to concurrent requests to upstream servers, as described
    /// for [`limit_req`](#limit_req-limit_req): each counts until its response has been received.
    "limit_conn" => limit_conn, in HTTP | SERVER | LOCATION, take between(2, 3), inheritance List, args "zone number [fetches]";
}

nowait_conf::directives! {
    /// Settings of `limit_req`.
    #[derive(Debug)]
    module "limit_req";
    pub struct LimitReqConf with LimitReqConfLayer;

    /// Status of refused requests.
    limit_req_status: BoundedNumber<400, 599> = "503", in HTTP | SERVER | LOCATION, args "code";
    /// Log level for refused requests; delayed requests are logged one level lower.
    limit_req_log_level: LimitLevel = "error", in HTTP | SERVER | LOCATION, args "info | notice | warn | error";
    /// Enables or disables the dry run: requests are counted and logged, but neither refused nor
    /// delayed.
    limit_req_dry_run: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
}

nowait_conf::directives! {
    /// Settings of `limit_conn`.
    #[derive(Debug)]
    module "limit_conn";
    pub struct LimitConnConf with LimitConnConfLayer;

    /// Status of refused requests.
    limit_conn_status: BoundedNumber<400, 599> = "503", in HTTP | SERVER | LOCATION, args "code";
    /// Log level for refused requests.
    limit_conn_log_level: LimitLevel = "error", in HTTP | SERVER | LOCATION, args "info | notice | warn | error";
    /// Enables or disables the dry run: requests are counted and logged, but not refused.
    limit_conn_dry_run: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
}

/// The limits of a location.
#[derive(Debug)]
pub struct Limits {
    /// Limits of the request rate.
    pub requests: Box<[RequestLimit]>,
    /// Other settings of `limit_req`.
    pub request_conf: Arc<LimitReqConf>,
    /// Limits of concurrent requests.
    pub connections: Box<[ConnectionLimit]>,
    /// Other settings of `limit_conn`.
    pub connection_conf: Arc<LimitConnConf>,
    /// Limits of the rate of requests to upstream servers.
    pub fetches: Box<[RequestLimit]>,
    /// Limits of concurrent requests to upstream servers.
    pub fetches_at_once: Box<[ConnectionLimit]>,
}

/// One `limit_req`.
#[derive(Debug, Clone)]
pub struct RequestLimit {
    /// Position in [`LimitZones::requests`].
    pub zone: usize,
    /// Accepted excess.
    pub burst: Milli,
    /// Excess that need not wait.
    pub delay: Milli,
    /// Position in the configuration.
    pub span: Span,
}

impl Limits {
    /// The limits of the innermost blocks that have any; `None` if there are none.
    pub fn resolve(cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Self> {
        let requests = chain.iter().rev().find_map(|scope| scope.get::<RequestLimits>());
        let connections = ConnectionLimits::resolve(chain);
        let fetches = chain.iter().rev().find_map(|scope| scope.get::<FetchLimits>());
        let at_once = chain.iter().rev().find_map(|scope| scope.get::<ConcurrentFetchLimits>());
        let some = requests.is_some() || !connections.is_empty();
        if !some && fetches.is_none() && at_once.is_none() {
            return None;
        }
        Some(Self {
            requests: requests.map(|limits| limits.0.clone()).unwrap_or_default().into(),
            request_conf: LimitReqConf::resolve(cx, chain),
            connections,
            connection_conf: LimitConnConf::resolve(cx, chain),
            fetches: fetches.map(|limits| limits.0.clone()).unwrap_or_default().into(),
            fetches_at_once: at_once.map(|limits| limits.0.list()).unwrap_or_default(),
        })
    }
}

/// The `limit_req` of one block.
#[derive(Default)]
struct RequestLimits(Vec<RequestLimit>);

/// The `limit_req ... fetches` of one block.
#[derive(Default)]
struct FetchLimits(Vec<RequestLimit>);

/// The `limit_conn ... fetches` of one block.
#[derive(Default)]
struct ConcurrentFetchLimits(ConnectionLimits);

/// The zones of a configuration.
#[derive(Default)]
pub struct LimitZones {
    /// For `limit_req`.
    pub requests: Box<[LimitZone<HttpVariables, Bucket>]>,
    /// For `limit_conn`.
    pub connections: Box<[LimitZone<HttpVariables, ()>]>,
}

impl LimitZones {
    /// Takes over the contents of the previous configuration's zones if name, size and key are the
    /// same.
    // nginx differs: it refuses to reload a configuration in which a zone has another key.
    pub fn adopt(&mut self, previous: &Self) {
        limit::adopt(&mut self.requests, &previous.requests);
        limit::adopt(&mut self.connections, &previous.connections);
    }
}

/// The zones named until now.
#[derive(Default)]
pub struct UnresolvedLimitZones {
    requests: Slots<HttpVariables, Bucket>,
    connections: Slots<HttpVariables, ()>,
}

impl UnresolvedLimitZones {
    /// The zones; at this point all of them must be defined.
    pub fn resolve(self, cx: &mut Cx<'_>) -> LimitZones {
        LimitZones {
            requests: self.requests.resolve(cx, "limit_req_zone"),
            connections: self.connections.resolve(cx, "limit_conn_zone"),
        }
    }

    fn request_zone(&mut self, name: &[u8], word: &Word) -> Result<usize, Diagnostic> {
        if self.connections.has(name) {
            return Err(used_otherwise(name, word));
        }
        Ok(self.requests.position(name, word.span))
    }

    fn connection_zone(&mut self, name: &[u8], word: &Word) -> Result<usize, Diagnostic> {
        if self.requests.has(name) {
            return Err(used_otherwise(name, word));
        }
        Ok(self.connections.position(name, word.span))
    }
}

fn used_otherwise(name: &[u8], word: &Word) -> Diagnostic {
    word.error(format!(
        "the shared memory zone \"{}\" is already declared for a different use",
        String::from_utf8_lossy(name)
    ))
}

fn limit_req_zone(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let parameters = Parameters::read(cx, node, true)?;
    let (name, size, word) = parameters.zone(node)?;
    let named = cx.global::<UnresolvedLimitZones>();
    let at = named.request_zone(name, word)?;
    parameters.define(node, &mut named.requests, at, requests::buckets(size), ZoneUse::Requests)
}

fn limit_conn_zone(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let parameters = Parameters::read(cx, node, false)?;
    let (name, size, word) = parameters.zone(node)?;
    let named = cx.global::<UnresolvedLimitZones>();
    let at = named.connection_zone(name, word)?;
    parameters.define(
        node,
        &mut named.connections,
        at,
        connections::counts(size),
        ZoneUse::Connections,
    )
}

fn limit_req(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let mut zone = None;
    let (mut burst, mut delay) = (0, 0);
    let mut fetches = false;
    for word in &node.args {
        if let Some(name) = word.text.strip_prefix(b"zone=") {
            zone = Some(cx.global::<UnresolvedLimitZones>().request_zone(name, word)?);
        } else if let Some(text) = word.text.strip_prefix(b"burst=") {
            burst = positive(text).ok_or_else(|| {
                word.error(format!("invalid burst value \"{word}\"")).expected("a number above 0")
            })?;
        } else if let Some(text) = word.text.strip_prefix(b"delay=") {
            delay = positive(text).ok_or_else(|| {
                word.error(format!("invalid delay value \"{word}\"")).expected("a number above 0")
            })?;
        } else if word.text == b"nodelay" {
            delay = u64::MAX;
        } else if word.text == FETCHES {
            fetches = true;
        } else {
            return Err(node.parameter_error(word));
        }
    }
    let zone = zone.ok_or_else(|| limit::lacks_zone(node))?;
    let limits = match fetches {
        true => &mut cx.layer::<FetchLimits>().0,
        false => &mut cx.layer::<RequestLimits>().0,
    };
    if limits.iter().any(|limit| limit.zone == zone) {
        return Err(node.directive_error("is duplicate"));
    }
    let (burst, delay) = (burst.saturating_mul(ONE), delay.saturating_mul(ONE));
    limits.push(RequestLimit { zone, burst, delay, span: node.span });
    Ok(())
}

fn limit_conn(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let name = node.args.first().ok_or_else(|| node.arity_error())?;
    let zone = cx.global::<UnresolvedLimitZones>().connection_zone(&name.text, name)?;
    match node.args.get(2) {
        None => connections::limit_conn(cx, node, zone),
        Some(word) if word.text == FETCHES => cx.layer::<ConcurrentFetchLimits>().0.add(node, zone),
        Some(word) => Err(node.parameter_error(word)),
    }
}
