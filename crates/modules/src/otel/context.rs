//! The context of a trace: identifiers, and the fields `traceparent` and `tracestate` (W3C Trace Context).
//!
//! Pure data, but for new identifiers, which are random.

use std::cell::Cell;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use nowait_message::RequestHead;

/// Longest `tracestate` that is passed on, bytes: what the specification asks for. A longer one is dropped.
const STATE_BYTES_MAX: usize = 512;

/// Most members of a `tracestate`; one with more is dropped: "There can be a maximum of 32 list-members in a list."
const STATE_MEMBERS_MAX: usize = 32;

/// The length of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;

/// The context of a request.
#[derive(Debug)]
pub struct SpanContext {
    trace: [u8; 16],
    span: [u8; 8],
    parent: Option<Parent>,
    sampled: Cell<bool>,
}

/// The client's context.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Parent {
    trace: [u8; 16],
    span: [u8; 8],
    sampled: bool,
    state: Bytes,
}

impl SpanContext {
    /// A new one; that of the client is in the head, if it counts.
    pub fn new(head: Option<&RequestHead>) -> Self {
        let parent = head.and_then(|head| {
            let mut parents = head.fields().named(b"traceparent");
            let (parent, more) = (parents.next()?, parents.next());
            let states: Vec<&[u8]> = head.fields().named(b"tracestate").collect();
            // Two parents are none.
            more.is_none().then(|| Parent::parse(parent, &states))?
        });
        let mut span = [0; 8];
        span.copy_from_slice(&nowait_http::random::bytes()[..8]);
        let trace = parent.as_ref().map_or_else(nowait_http::random::bytes, |parent| parent.trace);
        Self { trace, span, parent, sampled: Cell::new(false) }
    }

    /// The trace is recorded.
    pub fn set_sampled(&self, sampled: bool) {
        self.sampled.set(sampled);
    }

    /// Whether the trace is recorded.
    pub fn is_sampled(&self) -> bool {
        self.sampled.get()
    }

    /// Whether the client says that the trace is recorded.
    pub fn is_parent_sampled(&self) -> bool {
        self.parent.as_ref().is_some_and(|parent| parent.sampled)
    }

    /// The identifier of the trace.
    pub fn trace_id(&self) -> &[u8; 16] {
        &self.trace
    }

    /// The identifier of the request's span.
    pub fn span_id(&self) -> &[u8; 8] {
        &self.span
    }

    /// The identifier of the client's span.
    pub fn parent_id(&self) -> Option<&[u8; 8]> {
        self.parent.as_ref().map(|parent| &parent.span)
    }

    /// The client's `tracestate`.
    pub fn state(&self) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        self.parent.as_ref().map_or(&NONE, |parent| &parent.state)
    }

    /// The `traceparent` of the request's span.
    pub fn traceparent(&self) -> Vec<u8> {
        let mut out = b"00-".to_vec();
        hex(&self.trace, &mut out);
        out.push(b'-');
        hex(&self.span, &mut out);
        out.extend_from_slice(if self.sampled.get() { b"-01" } else { b"-00" });
        out
    }

    /// Appends it in hexadecimal.
    pub fn append_trace_id(&self, out: &mut Vec<u8>) -> bool {
        hex(&self.trace, out)
    }

    /// Appends it in hexadecimal.
    pub fn append_span_id(&self, out: &mut Vec<u8>) -> bool {
        hex(&self.span, out)
    }

    /// Appends it in hexadecimal; false: there is none.
    pub fn append_parent_id(&self, out: &mut Vec<u8>) -> bool {
        self.parent_id().is_some_and(|parent| hex(parent, out))
    }
}

fn hex(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(HEXLOWER.encode(bytes).as_bytes());
    true
}

impl Parent {
    /// Reads `traceparent`. Versions above 00 may go on behind what version 00 has.
    fn parse(text: &[u8], states: &[&[u8]]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(PARENT_BYTES)?;
        let &[a, b, b'-', ref trace @ .., _, _, _] = known else { return None };
        let version = decode::<1>(&[a, b])?[0];
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let (trace, span) = (trace.get(..32)?, trace.get(33..)?);
        let is_separated = known[35] == b'-' && known[52] == b'-';
        let flags = decode::<1>(&known[53..])?[0];
        let (trace, span) = (decode::<16>(trace)?, decode::<8>(span)?);
        if !is_whole || !is_separated || trace == [0; 16] || span == [0; 8] {
            return None;
        }
        let state = states.join(&b","[..]);
        let is_usable = state.len() <= STATE_BYTES_MAX
            && state.split(|byte| *byte == b',').count() <= STATE_MEMBERS_MAX
            && state.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        let state = if is_usable { state.into() } else { Bytes::new() };
        Some(Self { trace, span, sampled: flags & 1 != 0, state })
    }
}

/// Reads bytes in hexadecimal, in lower case.
fn decode<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (text.len() == 2 * N).then_some(())?;
    HEXLOWER.decode_mut(text, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01";

    #[test]
    fn parents() {
        let parent = Parent::parse(GOOD, &[b"a=1", b"b=2"]).unwrap();
        assert_eq!((parent.sampled, &parent.state[..]), (true, &b"a=1,b=2"[..]));
        assert_eq!(parent.trace[..2], [0x0a, 0xf7]);
        assert_eq!(parent.span, [0xb9, 0xc7, 0xc9, 0x89, 0xf9, 0x79, 0x18, 0xe1]);
        let later = [b"42", &GOOD[2..], b"-more"].concat();
        assert!(Parent::parse(&later, &[]).is_some());
        let unsampled = [&GOOD[..53], b"02"].concat();
        assert!(!Parent::parse(&unsampled, &[]).unwrap().sampled);
        let long = vec![b'a'; STATE_BYTES_MAX + 1];
        let members = |count| vec!["a=1"; count].join(",");
        assert_eq!(Parent::parse(GOOD, &[members(32).as_bytes()]).unwrap().state.len(), 127);
        for state in [&long[..], b"a=\xff", b"a=\0", members(33).as_bytes()] {
            assert!(Parent::parse(GOOD, &[state]).unwrap().state.is_empty());
        }
    }

    #[test]
    fn no_parents() {
        let text = |text: &str| text.as_bytes().to_vec();
        for bad in [
            text(""),
            text("00"),
            [GOOD, b"-more"].concat(),
            [GOOD, b" "].concat(),
            [b"ff", &GOOD[2..]].concat(),
            [b"42", &GOOD[2..], b"more"].concat(),
            GOOD.to_ascii_uppercase(),
            text("00-00000000000000000000000000000000-b9c7c989f97918e1-01"),
            text("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"),
            text("00-0af7651916cd43dd8448eb211c80319c.b9c7c989f97918e1-01"),
            text("00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1.01"),
            text("00-0af7651916cd43dd8448eb211c80319g-b9c7c989f97918e1-01"),
        ] {
            assert_eq!(Parent::parse(&bad, &[]), None, "{}", bad.escape_ascii());
        }
        for at in 0..GOOD.len() {
            assert_eq!(Parent::parse(&GOOD[..at], &[]), None);
        }
    }

    #[test]
    fn contexts_are_handed_on() {
        let context = SpanContext::new(None);
        context.set_sampled(true);
        let text = context.traceparent();
        let parent = Parent::parse(&text, &[]).unwrap();
        assert_eq!((&parent.trace, &parent.span), (context.trace_id(), context.span_id()));
        assert!(parent.sampled && context.parent_id().is_none() && !context.is_parent_sampled());
    }
}
