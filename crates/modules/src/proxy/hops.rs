//! Duties of intermediaries (RFC 9110 sections 7.6.2 and 7.6.3): count `Max-Forwards` down, and append to
//! `Via`. Enabled by `proxy_via`.

use std::borrow::Cow;

use nowait_backend::request_head::Writer;
use nowait_backend::response::via;
use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};
use nowait_http::request::Request;
use nowait_http::variables::complex::Complex;
use nowait_message::scan::decimal;
use nowait_message::{Known, Method};

use super::conf::ProxyConf;

/// The name under which it is known to be this program.
const PSEUDONYM: &str = "nowait";

const MAX_FORWARDS: &[u8] = b"max-forwards";

/// `proxy_via`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Via(Option<Complex>);

impl Via {
    /// The name in `Via`; `None`: messages are forwarded as they are. `strict`: the location follows RFCs.
    pub fn name(said: Option<Via>, strict: bool) -> Option<Complex> {
        match said {
            Some(Via(name)) => name,
            None => strict.then(|| Complex::from_literal(PSEUDONYM)),
        }
    }
}

impl Setting for Via {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        if *word == *"off" {
            return Ok(Self(None));
        }
        if *word == *"on" {
            return Ok(Self(Some(Complex::from_literal(PSEUDONYM))));
        }
        let name = nowait_http::conf::complex(word, cx)?;
        // "received-by = pseudonym [ ":" port ]; pseudonym = token", or an address in brackets.
        let odd = |octet: &u8| !octet.is_ascii_graphic() || b",;()\"<>\\".contains(octet);
        if name.literal().is_some_and(|name| name.is_empty() || name.iter().any(odd)) {
            let error = word.error(format!("invalid name \"{word}\" in \"{}\"", node.name));
            return Err(error.expected("on, off, or a host name with or without a port"));
        }
        Ok(Self(Some(name)))
    }
}

/// Whether the request must not be forwarded: "If the received value is zero (0), the intermediary MUST NOT
/// forward the request; instead, the intermediary MUST respond as the final recipient."
pub fn ends_here(request: &Request, conf: &ProxyConf) -> bool {
    conf.backend.via.is_some() && forwards_left(request) == Some(0)
}

/// `Max-Forwards`, if it has meaning for the request. TRACE is refused before it gets here.
fn forwards_left(request: &Request) -> Option<u64> {
    if request.method() != Method::Options {
        return None;
    }
    decimal(request.head().fields().named(MAX_FORWARDS).next()?)
}

/// Passes fields on, and counts this hop.
pub struct Forwarded<'a, W> {
    writer: &'a mut W,
    left: Option<u64>,
}

impl<'a, W: Writer> Forwarded<'a, W> {
    pub fn new(request: &Request, conf: &ProxyConf, writer: &'a mut W) -> Self {
        let counts = conf.backend.via.is_some();
        Self { writer, left: counts.then(|| forwards_left(request)).flatten() }
    }

    /// Appends this hop to `Via`, unless `proxy_set_header` sets the field.
    pub fn finish(self, request: &Request, conf: &ProxyConf) {
        if let Some(name) = &conf.backend.via
            && !conf.headers.sets(Known::Via)
            && let Some(value) = via(request.head().version(), &request.evaluate(name))
        {
            self.writer.field(b"Via", &value);
        }
    }
}

impl<W: Writer> Writer for Forwarded<'_, W> {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let value = match self.left {
            Some(left) if name.eq_ignore_ascii_case(MAX_FORWARDS) => {
                Cow::Owned(left.saturating_sub(1).to_string().into_bytes())
            }
            _ => Cow::Borrowed(value),
        };
        self.writer.field(name, &value);
    }
}
