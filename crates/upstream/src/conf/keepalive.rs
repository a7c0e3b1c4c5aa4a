//! `keepalive` and related directives.

use std::time::Duration;

use nowait_conf::{Cx, Diagnostic, Msec, Node, Value};

use super::UpstreamLayer;

/// Idle connections that a worker keeps for a group without the directive.
const CONNECTIONS: usize = 32;

/// The settings for keeping idle connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Maximum number per worker; 0: none.
    pub connections: usize,
    /// Whether only the location that opened a connection reuses it.
    pub local: bool,
    /// Maximum number of requests per connection.
    pub requests: u64,
    /// Maximum age at which a connection is reused.
    pub time: Duration,
    /// The maximum idle time of a connection.
    pub timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Keepalive {
            connections: CONNECTIONS,
            local: true,
            requests: 1000,
            time: Duration::from_secs(3600),
            timeout: Duration::from_secs(60),
        }
    }
}

/// The directives read so far.
#[derive(Default)]
pub(super) struct KeepaliveLayer {
    connections: Option<(usize, bool)>,
    requests: Option<u64>,
    time: Option<Msec>,
    timeout: Option<Msec>,
}

impl KeepaliveLayer {
    pub(super) fn resolve(self) -> Keepalive {
        let default = Keepalive::default();
        let (connections, local) = self.connections.unwrap_or((default.connections, default.local));
        Keepalive {
            connections,
            local,
            requests: self.requests.unwrap_or(default.requests),
            time: self.time.map_or(default.time, Msec::duration),
            timeout: self.timeout.map_or(default.timeout, Msec::duration),
        }
    }
}

pub(super) fn keepalive(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let (number, rest) = node.args.split_first().ok_or_else(|| node.arity_error())?;
    let connections = nowait_conf::number(&number.text).ok_or_else(|| {
        number
            .error(format!("invalid value \"{number}\" in \"keepalive\" directive"))
            .expected("a number of connections")
    })?;
    let local = match rest {
        [] => false,
        [word] if *word == "local" => true,
        [word, ..] => return Err(node.parameter_error(word)),
    };
    let connections = usize::try_from(connections).unwrap_or(usize::MAX);
    cx.layer::<UpstreamLayer>().keepalive.connections = Some((connections, local));
    Ok(())
}

fn only<T: Value>(cx: &Cx<'_>, node: &Node) -> Result<T, Diagnostic> {
    cx.once(node)?;
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    T::from_word(&word.text).map_err(|invalid| invalid.in_node(node, word))
}

pub(super) fn requests(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let requests = only(cx, node)?;
    cx.layer::<UpstreamLayer>().keepalive.requests = Some(requests);
    Ok(())
}

pub(super) fn time(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let time = only(cx, node)?;
    cx.layer::<UpstreamLayer>().keepalive.time = Some(time);
    Ok(())
}

pub(super) fn timeout(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let timeout = only(cx, node)?;
    cx.layer::<UpstreamLayer>().keepalive.timeout = Some(timeout);
    Ok(())
}
