//! The methods of balancing: `hash`, `ip_hash`, `least_conn`, `least_time`, `random`.

use nowait_conf::{Context, Cx, Diagnostic, Node, Template};

use super::UpstreamLayer;
use super::server::Supports;

/// The method of choosing the next server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balancer {
    /// Smooth weighted round robin, as without a directive.
    RoundRobin,
    /// `least_conn`
    LeastConn,
    /// `least_time`
    LeastTime {
        /// The time that is measured.
        time: Time,
        /// Whether requests in flight count.
        inflight: bool,
    },
    /// `ip_hash`
    IpHash,
    /// `hash KEY`
    Hash {
        /// The text to hash, evaluated by the caller.
        key: Template,
    },
    /// `hash KEY consistent`
    ConsistentHash {
        /// The text to hash, evaluated by the caller.
        key: Template,
    },
    /// `random`
    Random,
    /// `random two`
    RandomTwo(BalanceCriterion),
}

/// A time that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Until the response header.
    Header,
    /// Until the connection is established.
    Connect,
    /// Until the first byte.
    FirstByte,
    /// Until the end of the response.
    LastByte,
}

/// The criterion by which one of two servers is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalanceCriterion {
    /// Fewer requests in flight.
    Connections,
    /// Less time, requests in flight included.
    Time(Time),
}

/// Notes the method.
fn set(cx: &mut Cx<'_>, node: &Node, balancer: Balancer, supports: Supports) {
    if cx.layer::<UpstreamLayer>().balancer.is_some() {
        let warning = Diagnostic::warn("load balancing method redefined").at(node.name.span);
        cx.report(warning);
    }
    let layer = cx.layer::<UpstreamLayer>();
    layer.balancer = Some(balancer);
    layer.supports = supports;
}

pub(super) fn least_conn(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set(cx, node, Balancer::LeastConn, Supports::All);
    Ok(())
}

pub(super) fn ip_hash(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set(cx, node, Balancer::IpHash, Supports::NoBackup);
    Ok(())
}

pub(super) fn hash(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let (key, rest) = node.args.split_first().ok_or_else(|| node.arity_error())?;
    let key = Template::parse(key)?;
    let balancer = match rest {
        [] => Balancer::Hash { key },
        [word] if *word == "consistent" => Balancer::ConsistentHash { key },
        [word, ..] => return Err(node.parameter_error(word)),
    };
    set(cx, node, balancer, Supports::NoBackup);
    Ok(())
}

pub(super) fn least_time(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let (what, rest) = node.args.split_first().ok_or_else(|| node.arity_error())?;
    let times = times(cx);
    let word = what.text.to_ascii_lowercase();
    let known = times.iter().find(|(name, _)| name.as_bytes() == word.as_slice());
    let Some((_, time)) = known.copied() else {
        let names: Vec<String> = times.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let error = what.error(format!("invalid value \"{what}\""));
        return Err(error.expected(names.join(" or ")));
    };
    let inflight = match rest {
        [] => false,
        [word] if *word == "inflight" => true,
        [word, ..] => return Err(node.parameter_error(word)),
    };
    set(cx, node, Balancer::LeastTime { time, inflight }, Supports::All);
    Ok(())
}

/// The times by which servers of the block being read can be measured.
fn times(cx: &Cx<'_>) -> &'static [(&'static str, Time)] {
    match cx.context() {
        Context::STREAM_UPSTREAM => &[
            ("connect", Time::Connect),
            ("first_byte", Time::FirstByte),
            ("last_byte", Time::LastByte),
        ],
        _ => &[("header", Time::Header), ("last_byte", Time::LastByte)],
    }
}

pub(super) fn random(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let balancer = match &node.args[..] {
        [] => Balancer::Random,
        [two, ..] if *two != "two" => return Err(node.parameter_error(two)),
        [_] => Balancer::RandomTwo(BalanceCriterion::Connections),
        [_, method, ..] if *method == "least_conn" => {
            Balancer::RandomTwo(BalanceCriterion::Connections)
        }
        [_, method, ..] => {
            let named = method.strip_prefix("least_time=");
            let known = named.and_then(|word| {
                times(cx).iter().find(|(name, _)| word == *name).map(|(_, time)| *time)
            });
            Balancer::RandomTwo(BalanceCriterion::Time(
                known.ok_or_else(|| node.parameter_error(method))?,
            ))
        }
    };
    set(cx, node, balancer, Supports::NoBackup);
    Ok(())
}
