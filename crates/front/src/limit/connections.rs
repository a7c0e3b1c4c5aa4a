//! Concurrency limits: `limit_conn`. nginx: `ngx_http_limit_conn_module`,
//! `ngx_stream_limit_conn_module`.
//!
//! Counts the active requests or sessions per key. Called by the preaccess phase through [`ask`]; a
//! subject holds a [`CountGuard`] per limit until it has ended. Never waits.

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Scope, Span};
use nowait_variables::Namespace;

use super::zone::{EntryPin, Full, Zone};
use super::{Decision, LimitZone, key, positive};

/// Longer keys are not limited. nginx: the length of a key is stored in one byte.
pub const KEY_BYTES_MAX: usize = 255;

/// The highest number of `limit_conn`.
const CONNECTIONS_MAX: u64 = 65_535;

/// Charged to each key of a zone besides its length, as in nginx: an address of either kind takes
/// 64 bytes.
const FIXED: u64 = 36;

/// The counts of a zone: the pins of each key.
pub type PinCounts = Zone<()>;

/// Makes the counts of a zone of this many bytes.
pub fn counts(bytes: u64) -> Arc<PinCounts> {
    Arc::new(Zone::new(bytes, FIXED))
}

/// Counts a request or a session as long as it exists.
#[derive(Debug)]
pub struct CountGuard {
    counts: Arc<PinCounts>,
    /// Taken by `drop` only.
    place: Option<EntryPin>,
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.counts.unpin_and_forget(place);
        }
    }
}

/// The verdict of the limits on a subject.
#[derive(Debug)]
pub enum ConnectionVerdict<'a> {
    /// No limit applies.
    Unlimited,
    /// Within the limits; counted as long as these exist.
    Counted(Vec<CountGuard>),
    /// Refused.
    Refused {
        /// The name of the zone.
        zone: &'a Bytes,
        /// The reason.
        why: CountError,
    },
}

/// Applies the limits of a location or a server.
pub fn ask<'a, N: Namespace>(
    subject: &N::Subject,
    limits: &[ConnectionLimit],
    zones: &'a [LimitZone<N, ()>],
    dry_run: bool,
) -> ConnectionVerdict<'a> {
    let mut held = Vec::new();
    for limit in limits {
        let zone = &zones[limit.zone];
        let Some(key) = key(subject, zone, KEY_BYTES_MAX) else { continue };
        match hold(&zone.table, &key, limit.most) {
            Ok(one) => {
                zone.decisions.count(Decision::Passed);
                held.push(one);
            }
            Err(why) => {
                let decision = Decision::Rejected;
                zone.decisions.count(if dry_run { decision.dried() } else { decision });
                return ConnectionVerdict::Refused { zone: &zone.name, why };
            }
        }
    }
    if held.is_empty() { ConnectionVerdict::Unlimited } else { ConnectionVerdict::Counted(held) }
}

/// The log text of a refusal because the zone is full.
pub fn message(zone: &[u8], dry_run: bool) -> String {
    let dry = if dry_run { ", dry run," } else { "" };
    format!("limiting connections{dry} by zone \"{}\"", String::from_utf8_lossy(zone))
}

/// The reason why a request is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountError {
    /// The limit is reached.
    TooMany,
    /// There is no room for its key.
    Full,
}

/// Counts a request, if there are fewer than `most` with this key.
///
/// # Errors
/// [`CountError`].
fn hold(counts: &Arc<PinCounts>, key: &[u8], most: u32) -> Result<CountGuard, CountError> {
    let visited = counts.visit(
        key,
        |()| false,
        |entry| {
            let free = entry.pins < most;
            entry.pins += u32::from(free);
            free
        },
    );
    match visited {
        Ok((place, true)) => Ok(CountGuard { counts: counts.clone(), place: Some(place) }),
        Ok((_, false)) => Err(CountError::TooMany),
        Err(Full) => Err(CountError::Full),
    }
}

/// One `limit_conn`.
#[derive(Debug, Clone)]
pub struct ConnectionLimit {
    /// The number of the zone.
    pub zone: usize,
    /// Maximum number of concurrent requests.
    pub most: u32,
    /// Position in the configuration.
    pub span: Span,
}

/// The `limit_conn` of one block.
#[derive(Default)]
pub struct ConnectionLimits(Vec<ConnectionLimit>);

impl ConnectionLimits {
    /// The limits of the innermost block that has any.
    pub fn resolve(chain: &[&Scope]) -> Box<[ConnectionLimit]> {
        let limits = chain.iter().rev().find_map(|scope| scope.get::<Self>());
        limits.map(Self::list).unwrap_or_default()
    }

    /// The limits.
    pub fn list(&self) -> Box<[ConnectionLimit]> {
        self.0.clone().into()
    }

    /// Adds a `limit_conn` whose zone has this number.
    ///
    /// # Errors
    /// The reason why the directive is invalid.
    pub fn add(&mut self, node: &Node, zone: usize) -> Result<(), Diagnostic> {
        let most = node.args.get(1).ok_or_else(|| node.arity_error())?;
        if self.0.iter().any(|limit| limit.zone == zone) {
            return Err(node.directive_error("is duplicate"));
        }
        let count = positive(&most.text)
            .ok_or_else(|| most.error(format!("invalid number of connections \"{most}\"")))?;
        let most = u32::try_from(count)
            .ok()
            .filter(|_| count <= CONNECTIONS_MAX)
            .ok_or_else(|| most.error("connection limit must be less 65536"))?;
        self.0.push(ConnectionLimit { zone, most, span: node.span });
        Ok(())
    }
}

/// Reads a `limit_conn` whose zone has this number.
///
/// # Errors
/// The reason why the directive is invalid.
pub fn limit_conn(cx: &mut Cx<'_>, node: &Node, zone: usize) -> Result<(), Diagnostic> {
    cx.layer::<ConnectionLimits>().add(node, zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once() {
        let counts = counts(32 * 1024);
        let first = hold(&counts, b"a", 2).unwrap();
        let second = hold(&counts, b"a", 2).unwrap();
        assert_eq!(hold(&counts, b"a", 2).err(), Some(CountError::TooMany));
        let other = hold(&counts, b"b", 1).unwrap();
        drop(first);
        let third = hold(&counts, b"a", 2).unwrap();
        drop((second, third, other));
        assert!(counts.is_empty());
    }

    #[test]
    fn nobody_is_pushed_out() {
        let counts = counts(32 * 1024);
        let held: Vec<CountGuard> =
            (0..512_u32).map(|n| hold(&counts, &n.to_be_bytes(), 1).unwrap()).collect();
        assert_eq!(hold(&counts, b"more", 1).err(), Some(CountError::Full));
        drop(held);
        assert!(hold(&counts, b"more", 1).is_ok());
    }
}
