//! The methods of balancing: `hash`, `ip_hash`, `least_conn`, `least_time`, `random`.

use nowait_conf::{Cx, Diagnostic, Node, Template};

use super::UpstreamLayer;
use super::server::Supports;

/// How the next server is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balancer {
    /// Smooth weighted round robin, as without a directive.
    RoundRobin,
    /// `least_conn`
    LeastConn,
    /// `least_time`
    LeastTime {
        /// What is measured.
        time: Time,
        /// Whether requests under way count.
        inflight: bool,
    },
    /// `ip_hash`
    IpHash,
    /// `hash KEY`
    Hash {
        /// What is hashed; the caller evaluates it.
        key: Template,
    },
    /// `hash KEY consistent`
    ConsistentHash {
        /// What is hashed; the caller evaluates it.
        key: Template,
    },
    /// `random`
    Random,
    /// `random two`
    RandomTwo(By),
}

/// A time that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// To the header of the response.
    Header,
    /// To the end of the response.
    LastByte,
}

/// What makes one of two servers the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Fewer requests under way.
    Connections,
    /// Less time, requests under way counted in.
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
    let time = match what.text.to_ascii_lowercase().as_slice() {
        b"header" => Time::Header,
        b"last_byte" => Time::LastByte,
        _ => {
            return Err(what
                .error(format!("invalid value \"{what}\""))
                .expected("\"header\" or \"last_byte\""));
        }
    };
    let inflight = match rest {
        [] => false,
        [word] if *word == "inflight" => true,
        [word, ..] => return Err(node.parameter_error(word)),
    };
    set(cx, node, Balancer::LeastTime { time, inflight }, Supports::All);
    Ok(())
}

pub(super) fn random(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let balancer = match &node.args[..] {
        [] => Balancer::Random,
        [two, ..] if *two != "two" => return Err(node.parameter_error(two)),
        [_] => Balancer::RandomTwo(By::Connections),
        [_, method, ..] => Balancer::RandomTwo(match method.as_bytes() {
            b"least_conn" => By::Connections,
            b"least_time=header" => By::Time(Time::Header),
            b"least_time=last_byte" => By::Time(Time::LastByte),
            _ => return Err(node.parameter_error(method)),
        }),
    };
    set(cx, node, balancer, Supports::NoBackup);
    Ok(())
}
