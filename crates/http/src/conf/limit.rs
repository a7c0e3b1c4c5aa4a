//! `limit_req` and `limit_conn`. nginx: `ngx_http_limit_req_module`, `ngx_http_limit_conn_module`.
//!
//! A limit may name a zone that is defined further on, so zones are numbered when they are first
//! named and looked for when `http` ends.

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Bounded, Cx, Diagnostic, Node, Scope, Size, Span, Value, Word, number};

use crate::limit::connections::{self, Counts};
use crate::limit::requests::{self, Bucket, Milli, ONE};
use crate::limit::zone::Zone;
use crate::log::Level;
use crate::variables::complex::Complex;

/// The smallest zone, in bytes. nginx: eight pages.
const ZONE_BYTES_MIN: u64 = 8 * 4096;

/// The highest number of `limit_conn`.
const CONNECTIONS_MAX: u64 = 65_535;

nowait_conf::rows! {
    pub static LIMIT_REQ_ROWS, module "limit_req";

    /// A zone that remembers how often each value of the key came, and the rate that is allowed.
    /// An address takes 128 bytes of it, so `1m` holds 8192 of them; when it is full, one that was
    /// not seen for long is forgotten. A reload keeps what is known while name, size and key stay. Requests with an empty key are not limited.
    "limit_req_zone" => limit_req_zone, in HTTP, take exactly(3), args "key zone=name:size rate=number(r/s|r/m)";
    /// Limits how often requests come. Those above the rate wait, up to `burst` of them; with
    /// `delay` only those beyond that number wait, with `nodelay` none. Others are refused. With
    /// several limits all have to agree.
    "limit_req" => limit_req, in HTTP | SERVER | LOCATION, take between(1, 3), args "zone=name [burst=number] [nodelay | delay=number]";
}

nowait_conf::rows! {
    pub static LIMIT_CONN_ROWS, module "limit_conn";

    /// A zone that counts the requests in work for each value of the key. An address takes 64 bytes
    /// of it, so `1m` holds 16384 of them; when it is full, requests with new keys are refused. A
    /// request counts until it was answered. Requests with an empty key are not limited.
    "limit_conn_zone" => limit_conn_zone, in HTTP, take exactly(2), args "key zone=name:size";
    /// Limits how many requests are in work at once for each value of the zone's key. With several
    /// limits all have to agree.
    "limit_conn" => limit_conn, in HTTP | SERVER | LOCATION, take exactly(2), args "zone number";
}

nowait_conf::directives! {
    /// What goes with `limit_req`.
    #[derive(Debug)]
    module "limit_req";
    pub struct LimitReqConf with LimitReqConfLayer;

    /// Status of refused requests.
    limit_req_status: Bounded<400, 599> = "503", in HTTP | SERVER | LOCATION, args "code";
    /// Level at which refused requests are logged; delayed ones are logged one level lower.
    limit_req_log_level: LimitLevel = "error", in HTTP | SERVER | LOCATION, args "info | notice | warn | error";
    /// Whether requests are only counted and logged, but neither refused nor delayed.
    limit_req_dry_run: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
}

nowait_conf::directives! {
    /// What goes with `limit_conn`.
    #[derive(Debug)]
    module "limit_conn";
    pub struct LimitConnConf with LimitConnConfLayer;

    /// Status of refused requests.
    limit_conn_status: Bounded<400, 599> = "503", in HTTP | SERVER | LOCATION, args "code";
    /// Level at which refused requests are logged.
    limit_conn_log_level: LimitLevel = "error", in HTTP | SERVER | LOCATION, args "info | notice | warn | error";
    /// Whether requests are only counted and logged, but not refused.
    limit_conn_dry_run: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
}

nowait_conf::setting_enum! {
    /// A level at which limits are logged.
    pub enum LimitLevel {
        /// `info`
        Info = "info",
        /// `notice`
        Notice = "notice",
        /// `warn`
        Warn = "warn",
        /// `error`
        Error = "error",
    }
}

impl LimitLevel {
    /// For requests that are refused.
    pub fn level(self) -> Level {
        match self {
            Self::Info => Level::Info,
            Self::Notice => Level::Notice,
            Self::Warn => Level::Warn,
            Self::Error => Level::Error,
        }
    }

    /// For requests that are delayed.
    pub fn milder(self) -> Level {
        match self {
            Self::Info | Self::Notice => Level::Info,
            Self::Warn => Level::Notice,
            Self::Error => Level::Warn,
        }
    }
}

/// The limits of a location.
#[derive(Debug)]
pub struct Limits {
    /// How often.
    pub requests: Box<[RequestLimit]>,
    /// What goes with that.
    pub request_conf: LimitReqConf,
    /// How many at once.
    pub connections: Box<[ConnectionLimit]>,
    /// What goes with that.
    pub connection_conf: LimitConnConf,
}

/// One `limit_req`.
#[derive(Debug, Clone)]
pub struct RequestLimit {
    /// Position in [`LimitZones::requests`].
    pub zone: usize,
    /// Excess that is let in.
    pub burst: Milli,
    /// Excess that need not wait.
    pub delay: Milli,
}

/// One `limit_conn`.
#[derive(Debug, Clone)]
pub struct ConnectionLimit {
    /// Position in [`LimitZones::connections`].
    pub zone: usize,
    /// So many at once.
    pub most: u32,
}

impl Limits {
    /// The limits of the innermost blocks that have any; `None` when there are none.
    pub fn resolve(cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Box<Self>> {
        let requests = chain.iter().rev().find_map(|scope| scope.get::<RequestLimits>());
        let connections = chain.iter().rev().find_map(|scope| scope.get::<ConnectionLimits>());
        if requests.is_none() && connections.is_none() {
            return None;
        }
        Some(Box::new(Self {
            requests: requests.map(|limits| limits.0.clone()).unwrap_or_default().into(),
            request_conf: LimitReqConf::resolve(cx, chain),
            connections: connections.map(|limits| limits.0.clone()).unwrap_or_default().into(),
            connection_conf: LimitConnConf::resolve(cx, chain),
        }))
    }
}

/// The `limit_req` of one block.
#[derive(Default)]
struct RequestLimits(Vec<RequestLimit>);

/// The `limit_conn` of one block.
#[derive(Default)]
struct ConnectionLimits(Vec<ConnectionLimit>);

/// The zones of a configuration.
#[derive(Default)]
pub struct LimitZones {
    /// For `limit_req`.
    pub requests: Box<[LimitZone<Bucket>]>,
    /// For `limit_conn`.
    pub connections: Box<[LimitZone<()>]>,
}

/// A zone and its key.
pub struct LimitZone<S> {
    /// Name, for logs.
    pub name: Bytes,
    /// The key.
    pub key: Complex,
    /// The key as the configuration writes it.
    pub key_text: Bytes,
    /// Requests per second, in thousandths; nothing to `limit_conn`.
    pub rate: Milli,
    /// What is known per key.
    pub table: Arc<Zone<S>>,
}

impl LimitZones {
    /// Takes over what zones of the previous configuration know, if name, size and key are the
    /// same.
    // nginx differs: it refuses to reload a configuration in which a zone has another key.
    pub fn adopt(&mut self, previous: &Self) {
        adopt(&mut self.requests, &previous.requests);
        adopt(&mut self.connections, &previous.connections);
    }
}

fn adopt<S: Default>(zones: &mut [LimitZone<S>], previous: &[LimitZone<S>]) {
    for zone in zones {
        let same = previous.iter().find(|old| {
            old.name == zone.name
                && old.key_text == zone.key_text
                && old.table.size() == zone.table.size()
        });
        if let Some(old) = same {
            zone.table = old.table.clone();
        }
    }
}

/// The zones that were named so far.
#[derive(Default)]
pub struct Named {
    requests: Vec<Slot<Bucket>>,
    connections: Vec<Slot<()>>,
}

/// A zone that was named, and what it is once it was defined.
struct Slot<S> {
    name: Bytes,
    span: Span,
    zone: Option<LimitZone<S>>,
}

impl Named {
    /// The zones, all of which have to be defined now.
    pub fn resolve(self, cx: &mut Cx<'_>) -> LimitZones {
        LimitZones {
            requests: defined(cx, self.requests, "limit_req_zone"),
            connections: defined(cx, self.connections, "limit_conn_zone"),
        }
    }

    fn request_zone(&mut self, name: &[u8], word: &Word) -> Result<usize, Diagnostic> {
        if self.connections.iter().any(|slot| slot.name == name) {
            return Err(used_otherwise(name, word));
        }
        Ok(position(&mut self.requests, name, word.span))
    }

    fn connection_zone(&mut self, name: &[u8], word: &Word) -> Result<usize, Diagnostic> {
        if self.requests.iter().any(|slot| slot.name == name) {
            return Err(used_otherwise(name, word));
        }
        Ok(position(&mut self.connections, name, word.span))
    }
}

fn used_otherwise(name: &[u8], word: &Word) -> Diagnostic {
    word.error(format!(
        "the shared memory zone \"{}\" is already declared for a different use",
        String::from_utf8_lossy(name)
    ))
}

fn position<S>(slots: &mut Vec<Slot<S>>, name: &[u8], span: Span) -> usize {
    slots.iter().position(|slot| slot.name == name).unwrap_or_else(|| {
        slots.push(Slot { name: Bytes::copy_from_slice(name), span, zone: None });
        slots.len() - 1
    })
}

fn defined<S>(
    cx: &mut Cx<'_>,
    slots: Vec<Slot<S>>,
    directive: &'static str,
) -> Box<[LimitZone<S>]> {
    let mut zones = Vec::with_capacity(slots.len());
    for slot in slots {
        match slot.zone {
            Some(zone) => zones.push(zone),
            None => cx.report(
                Diagnostic::emerg(format!(
                    "zero size shared memory zone \"{}\"",
                    String::from_utf8_lossy(&slot.name)
                ))
                .at(slot.span)
                .hint(format!("define it in the http block with {directive}")),
            ),
        }
    }
    zones.into()
}

/// The parameters of a zone.
struct Parameters<'a> {
    key: Complex,
    key_word: &'a Word,
    zone: Option<(&'a [u8], u64, &'a Word)>,
    rate: Milli,
}

impl<'a> Parameters<'a> {
    fn read(cx: &mut Cx<'_>, node: &'a Node, rated: bool) -> Result<Self, Diagnostic> {
        let (key_word, rest) = node.args.split_first().ok_or_else(|| node.arity_error())?;
        let key = super::complex(key_word, cx)?;
        let mut read = Self { key, key_word, zone: None, rate: ONE };
        for word in rest {
            if let Some(text) = word.text.strip_prefix(b"zone=") {
                read.zone = Some(sized(text, word)?);
            } else if let Some(text) = word.text.strip_prefix(b"rate=").filter(|_| rated) {
                read.rate = rate(text).ok_or_else(|| {
                    word.error(format!("invalid rate \"{word}\""))
                        .expected("a rate such as 10r/s or 30r/m")
                })?;
            } else {
                return Err(node.parameter_error(word));
            }
        }
        Ok(read)
    }

    /// Name and size of the zone.
    fn zone(&self, node: &Node) -> Result<(&'a [u8], u64, &'a Word), Diagnostic> {
        self.zone.filter(|zone| !zone.0.is_empty()).ok_or_else(|| lacks_zone(node))
    }

    /// Defines the zone that was named.
    fn define<S: Default>(
        self,
        node: &Node,
        slot: &mut Slot<S>,
        table: Arc<Zone<S>>,
    ) -> Result<(), Diagnostic> {
        if let Some(zone) = &slot.zone {
            let name = String::from_utf8_lossy(&slot.name);
            let (old, new) = (zone.table.size(), table.size());
            let message = if old == new {
                let key = String::from_utf8_lossy(&zone.key_text);
                format!("{} \"{name}\" is already bound to key \"{key}\"", node.name)
            } else {
                format!(
                    "the size {new} of shared memory zone \"{name}\" conflicts with already \
                     declared size {old}"
                )
            };
            return Err(node.error(message));
        }
        slot.zone = Some(LimitZone {
            name: slot.name.clone(),
            key: self.key,
            key_text: Bytes::copy_from_slice(&self.key_word.text),
            rate: self.rate,
            table,
        });
        Ok(())
    }
}

fn lacks_zone(node: &Node) -> Diagnostic {
    node.error(format!("\"{}\" must have \"zone\" parameter", node.name))
}

/// `name:size`
fn sized<'a>(text: &'a [u8], word: &'a Word) -> Result<(&'a [u8], u64, &'a Word), Diagnostic> {
    let invalid = || {
        word.error(format!("invalid zone size \"{word}\"")).expected("a zone such as zone=name:10m")
    };
    let at = text.iter().position(|&b| b == b':').ok_or_else(invalid)?;
    let Size(size) = Size::from_word(&text[at + 1..]).map_err(|_| invalid())?;
    if size < ZONE_BYTES_MIN {
        return Err(word
            .error(format!("zone \"{word}\" is too small"))
            .expected(format!("{}k or more", ZONE_BYTES_MIN / 1024)));
    }
    Ok((&text[..at], size, word))
}

/// `10r/s` or `30r/m`, in thousandths per second. Without a unit it is per second.
fn rate(text: &[u8]) -> Option<Milli> {
    let (text, scale) = match (text.strip_suffix(b"r/s"), text.strip_suffix(b"r/m")) {
        (Some(text), _) => (text, 1),
        (_, Some(text)) => (text, 60),
        (None, None) => (text, 1),
    };
    positive(text).map(|rate| rate.saturating_mul(ONE) / scale)
}

fn positive(text: &[u8]) -> Option<u64> {
    number(text).filter(|number| *number > 0)
}

fn limit_req_zone(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let parameters = Parameters::read(cx, node, true)?;
    let (name, size, word) = parameters.zone(node)?;
    let named = cx.global::<Named>();
    let at = named.request_zone(name, word)?;
    parameters.define(node, &mut named.requests[at], requests::buckets(size))
}

fn limit_conn_zone(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let parameters = Parameters::read(cx, node, false)?;
    let (name, size, word) = parameters.zone(node)?;
    let named = cx.global::<Named>();
    let at = named.connection_zone(name, word)?;
    let counts: Arc<Counts> = connections::counts(size);
    parameters.define(node, &mut named.connections[at], counts)
}

fn limit_req(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let mut zone = None;
    let (mut burst, mut delay) = (0, 0);
    for word in &node.args {
        if let Some(name) = word.text.strip_prefix(b"zone=") {
            zone = Some(cx.global::<Named>().request_zone(name, word)?);
        } else if let Some(text) = word.text.strip_prefix(b"burst=") {
            burst = positive(text)
                .ok_or_else(|| word.error(format!("invalid burst value \"{word}\"")))?;
        } else if let Some(text) = word.text.strip_prefix(b"delay=") {
            delay = positive(text)
                .ok_or_else(|| word.error(format!("invalid delay value \"{word}\"")))?;
        } else if word.text == b"nodelay" {
            delay = u64::MAX;
        } else {
            return Err(node.parameter_error(word));
        }
    }
    let zone = zone.ok_or_else(|| lacks_zone(node))?;
    let limits = &mut cx.layer::<RequestLimits>().0;
    if limits.iter().any(|limit| limit.zone == zone) {
        return Err(node.directive_error("is duplicate"));
    }
    let (burst, delay) = (burst.saturating_mul(ONE), delay.saturating_mul(ONE));
    limits.push(RequestLimit { zone, burst, delay });
    Ok(())
}

fn limit_conn(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [name, most] = &node.args[..] else { return Err(node.arity_error()) };
    let zone = cx.global::<Named>().connection_zone(&name.text, name)?;
    let limits = &mut cx.layer::<ConnectionLimits>().0;
    if limits.iter().any(|limit| limit.zone == zone) {
        return Err(node.directive_error("is duplicate"));
    }
    let count = positive(&most.text)
        .ok_or_else(|| most.error(format!("invalid number of connections \"{most}\"")))?;
    let most = u32::try_from(count)
        .ok()
        .filter(|_| count <= CONNECTIONS_MAX)
        .ok_or_else(|| most.error("connection limit must be less 65536"))?;
    limits.push(ConnectionLimit { zone, most });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(rate(b"10r/s"), Some(10_000));
        assert_eq!(rate(b"1r/m"), Some(16));
        assert_eq!(rate(b"90r/m"), Some(1500));
        assert_eq!(rate(b"2"), Some(2000));
        assert_eq!(rate(b"0r/s"), None);
        assert_eq!(rate(b"r/s"), None);
        assert_eq!(rate(b"1r/h"), None);
    }

    #[test]
    fn delays_are_logged_one_level_lower() {
        assert_eq!(LimitLevel::Error.milder(), Level::Warn);
        assert_eq!(LimitLevel::Info.milder(), Level::Info);
    }

    fn zone(name: &'static str, key: &'static str, bytes: u64) -> LimitZone<Bucket> {
        LimitZone {
            name: Bytes::from(name),
            key: Complex::from_literal(key),
            key_text: Bytes::from(key),
            rate: ONE,
            table: requests::buckets(bytes),
        }
    }

    #[test]
    fn a_reload_keeps_zones_that_stay_the_same() {
        let zones = |list: Vec<LimitZone<Bucket>>| LimitZones {
            requests: list.into(),
            connections: Box::default(),
        };
        let old = zones(vec![zone("a", "k", 32768), zone("b", "k", 32768), zone("c", "k", 32768)]);
        let mut new =
            zones(vec![zone("c", "other", 32768), zone("b", "k", 65536), zone("a", "k", 32768)]);
        new.adopt(&old);
        assert!(Arc::ptr_eq(&new.requests[2].table, &old.requests[0].table));
        assert!(!Arc::ptr_eq(&new.requests[1].table, &old.requests[1].table));
        assert!(!Arc::ptr_eq(&new.requests[0].table, &old.requests[2].table));
    }
}
