//! Limits per key: zones, their directives, and concurrency limits. nginx:
//! `ngx_http_limit_conn_module`, `ngx_stream_limit_conn_module`, and the parts that
//! `ngx_http_limit_req_module` has in common with them.
//!
//! A limit may name a zone that is defined later, so zones are numbered when first named
//! ([`Slots`]) and looked up when everything was read. Protocols have the rows.

pub mod connections;
pub mod decisions;
pub mod zone;

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Size, Span, Value, Word, number};
use nowait_variables::{Complex, Namespace, Subject};

use crate::log::Level;
use decisions::{ZoneDecisions, ZoneUse};
use zone::Zone;

/// The smallest zone, in bytes. nginx: eight pages.
const ZONE_BYTES_MIN: u64 = 8 * 4096;

/// Thousandths.
pub type Milli = u64;

/// One.
pub const ONE: Milli = 1000;

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

/// The verdict of one kind of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Within the limits.
    Passed,
    /// Delayed.
    Delayed,
    /// Refused.
    Rejected,
    /// In a dry run: it would be delayed.
    DelayedDryRun,
    /// In a dry run: it would be refused.
    RejectedDryRun,
}

impl Decision {
    /// The value of the variable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "PASSED",
            Self::Delayed => "DELAYED",
            Self::Rejected => "REJECTED",
            Self::DelayedDryRun => "DELAYED_DRY_RUN",
            Self::RejectedDryRun => "REJECTED_DRY_RUN",
        }
    }

    /// The same verdict in a dry run.
    pub fn dried(self) -> Self {
        match self {
            Self::Delayed => Self::DelayedDryRun,
            Self::Rejected => Self::RejectedDryRun,
            other => other,
        }
    }
}

/// A zone and its key.
pub struct LimitZone<N, T> {
    /// Name, for logs.
    pub name: Bytes,
    /// The key.
    pub key: Complex<N>,
    /// The key as the configuration writes it.
    pub key_text: Bytes,
    /// Where it is defined.
    pub span: Span,
    /// Requests per second; unused by `limit_conn`.
    pub rate: Milli,
    /// The state per key.
    pub table: Arc<Zone<T>>,
    /// How often its limits decided what.
    pub decisions: Arc<ZoneDecisions>,
}

/// The key of a subject in a zone; `None` if it is not limited there: the key is empty, or too long
/// (which is logged).
pub fn key<N: Namespace, T>(
    subject: &N::Subject,
    zone: &LimitZone<N, T>,
    bytes_max: usize,
) -> Option<Bytes> {
    let key = subject.evaluate(&zone.key);
    if key.len() > bytes_max {
        subject.fault(format_args!(
            "the value of the \"{}\" key is more than {bytes_max} bytes: \"{}\"",
            String::from_utf8_lossy(&zone.key_text),
            String::from_utf8_lossy(&key)
        ));
        return None;
    }
    (!key.is_empty()).then_some(key)
}

/// Takes over the state of the previous configuration's zones with the same name, size and key.
// nginx differs: it refuses to reload a configuration in which a zone has another key.
pub fn adopt<N, T: Default>(zones: &mut [LimitZone<N, T>], previous: &[LimitZone<N, T>]) {
    for zone in zones {
        let same = previous.iter().find(|old| {
            old.name == zone.name
                && old.key_text == zone.key_text
                && old.table.size() == zone.table.size()
        });
        if let Some(old) = same {
            zone.table = old.table.clone();
            zone.decisions = old.decisions.clone();
        }
    }
}

/// The zones of one kind named so far.
pub struct Slots<N, T>(Vec<ZoneSlot<N, T>>);

impl<N, T> Default for Slots<N, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// A zone that was named, with its definition once there is one.
struct ZoneSlot<N, T> {
    name: Bytes,
    span: Span,
    zone: Option<LimitZone<N, T>>,
}

impl<N, T> Slots<N, T> {
    /// Whether a zone of this name was named.
    pub fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|slot| slot.name == name)
    }

    /// The number of the zone of this name.
    pub fn position(&mut self, name: &[u8], span: Span) -> usize {
        self.0.iter().position(|slot| slot.name == name).unwrap_or_else(|| {
            self.0.push(ZoneSlot { name: Bytes::copy_from_slice(name), span, zone: None });
            self.0.len() - 1
        })
    }

    /// The zones by number; all must have been defined by `directive`.
    pub fn resolve(self, cx: &mut Cx<'_>, directive: &'static str) -> Box<[LimitZone<N, T>]> {
        let mut zones = Vec::with_capacity(self.0.len());
        for slot in self.0 {
            match slot.zone {
                Some(zone) => zones.push(zone),
                None => cx.report(
                    Diagnostic::emerg(format!(
                        "zero size shared memory zone \"{}\"",
                        String::from_utf8_lossy(&slot.name)
                    ))
                    .at(slot.span)
                    .hint(format!("define it with {directive}")),
                ),
            }
        }
        zones.into()
    }
}

/// The parameters of `limit_req_zone` and `limit_conn_zone`.
pub struct Parameters<'a, N> {
    key: Complex<N>,
    key_word: &'a Word,
    zone: Option<(&'a [u8], u64, &'a Word)>,
    rate: Milli,
}

impl<'a, N: Namespace> Parameters<'a, N> {
    /// Reads them; with a rate if they are those of `limit_req_zone`.
    ///
    /// # Errors
    /// The reason why the arguments are invalid.
    pub fn read(cx: &mut Cx<'_>, node: &'a Node, rated: bool) -> Result<Self, Diagnostic> {
        let (key_word, rest) = node.args.split_first().ok_or_else(|| node.arity_error())?;
        let key = nowait_variables::text(key_word, cx)?;
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

    /// Name and size of the zone, and their positions.
    ///
    /// # Errors
    /// There are none.
    pub fn zone(&self, node: &Node) -> Result<(&'a [u8], u64, &'a Word), Diagnostic> {
        self.zone.filter(|zone| !zone.0.is_empty()).ok_or_else(|| lacks_zone(node))
    }

    /// Defines the zone that was named.
    ///
    /// # Errors
    /// It was defined before.
    pub fn define<T: Default>(
        self,
        node: &Node,
        slots: &mut Slots<N, T>,
        at: usize,
        table: Arc<Zone<T>>,
        of: ZoneUse,
    ) -> Result<(), Diagnostic> {
        let slot = &mut slots.0[at];
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
            span: node.span,
            rate: self.rate,
            table,
            decisions: ZoneDecisions::of(of, &slot.name),
        });
        Ok(())
    }
}

/// The error of a directive without a zone.
pub fn lacks_zone(node: &Node) -> Diagnostic {
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

/// A number from 1 on.
pub fn positive(text: &[u8]) -> Option<u64> {
    number(text).filter(|number| *number > 0)
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

    fn zone(name: &'static str, key: &'static str, bytes: u64) -> LimitZone<(), ()> {
        LimitZone {
            name: Bytes::from(name),
            key: Complex::from_literal(key),
            key_text: Bytes::from(key),
            span: Span::BUILT_IN,
            rate: ONE,
            table: connections::counts(bytes),
            decisions: ZoneDecisions::of(ZoneUse::Connections, name.as_bytes()),
        }
    }

    #[test]
    fn a_reload_keeps_zones_that_stay_the_same() {
        let old = [zone("a", "k", 32768), zone("b", "k", 32768), zone("c", "k", 32768)];
        let mut new = [zone("c", "other", 32768), zone("b", "k", 65536), zone("a", "k", 32768)];
        adopt(&mut new, &old);
        assert!(Arc::ptr_eq(&new[2].table, &old[0].table));
        assert!(!Arc::ptr_eq(&new[1].table, &old[1].table));
        assert!(!Arc::ptr_eq(&new[0].table, &old[2].table));
    }
}
