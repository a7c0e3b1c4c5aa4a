//! `fastcgi_param` and its relatives: what an application learns about a request. nginx:
//! `ngx_http_fastcgi_init_params` and the first half of `ngx_http_fastcgi_create_request`.

use std::hash::Hasher;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};
use nowait_message::{Field, Known};
use rustc_hash::FxHasher;

use crate::request::Request;
use crate::upstream::Wanted;
use crate::variables::complex::Complex;

/// What names of parameters begin with that are header fields of the client.
const HTTP: &[u8] = b"HTTP_";

/// Header fields of clients that are not passed on if the response is for a cache, which serves other
/// clients, too.
const CONDITIONS: &[Known] = &[
    Known::IfModifiedSince,
    Known::IfUnmodifiedSince,
    Known::IfNoneMatch,
    Known::IfMatch,
    Known::Range,
    Known::IfRange,
];

/// One `fastcgi_param`.
#[derive(Clone, Debug)]
pub struct Param {
    name: Bytes,
    value: Complex,
    /// It is sent only if its value is not empty.
    if_not_empty: bool,
}

impl Setting for Param {
    const ARITY: arity::Arity = arity::between(2, 3);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let (name, value, third) = match &node.args[..] {
            [name, value] => (name, value, None),
            [name, value, third] => (name, value, Some(third)),
            _ => return Err(node.arity_error()),
        };
        if let Some(word) = third
            && word.text != b"if_not_empty"
        {
            return Err(node.parameter_error(word).expected("if_not_empty"));
        }
        let name = Bytes::copy_from_slice(&name.text);
        let value = crate::conf::complex(value, cx)?;
        Ok(Self { name, value, if_not_empty: third.is_some() })
    }
}

/// The parameters of a location.
#[derive(Clone, Debug, Default)]
pub struct Params {
    list: Vec<Param>,
    /// The names after `HTTP_` that directives set: the client's fields of these names are not sent.
    fields: Vec<Bytes>,
}

impl Params {
    /// From the directives of a block.
    pub fn new(given: Vec<Param>) -> Self {
        let field = |param: &Param| match param.name.strip_prefix(HTTP) {
            Some(rest) if !rest.is_empty() => Some(param.name.slice(HTTP.len()..)),
            _ => None,
        };
        let fields = given.iter().filter_map(field).collect();
        // An empty one only removes the client's field.
        let list = given.into_iter().filter(|p| field(p).is_none() || !p.value.is_empty());
        Self { list: list.collect(), fields }
    }

    /// Whether a directive sets the parameter `HTTP_` and this.
    fn sets(&self, field: &[u8]) -> bool {
        self.fields.iter().any(|name| name.eq_ignore_ascii_case(field))
    }

    /// Hands over all parameters of a request: those of directives, ours, the client's header fields
    /// if they are passed on.
    ///
    /// nginx differs: the client's `Proxy` is passed on only by a directive, since applications take
    /// `HTTP_PROXY` for a setting of their own (CVE-2016-5385). A request that a cache has turned into
    /// another method has that method in `REQUEST_METHOD`.
    pub fn each(
        &self,
        request: &Request,
        wanted: &Wanted,
        passes_fields: bool,
        mut put: impl FnMut(&[u8], &[u8]),
    ) {
        let mut text = Vec::new();
        for param in &self.list {
            let value = match (wanted.method, param.value.literal()) {
                (Some(method), _) if param.name == "REQUEST_METHOD" => method.as_bytes(),
                (_, Some(value)) => value,
                (_, None) => {
                    text.clear();
                    param.value.append(request, &mut text);
                    &text
                }
            };
            if !(param.if_not_empty && value.is_empty()) {
                put(&param.name, value);
            }
        }
        let (range, if_range) = match &wanted.rest {
            Some((range, validator)) => (Some(range), Some(validator)),
            None => (None, None),
        };
        let host = host(request);
        for (name, value) in [
            ("HOST", Some(&host)),
            ("IF_MODIFIED_SINCE", wanted.if_modified_since.as_ref()),
            ("IF_NONE_MATCH", wanted.if_none_match.as_ref()),
            ("RANGE", range),
            ("IF_RANGE", if_range),
        ] {
            if let Some(value) = value
                && !value.is_empty()
                && !self.sets(name.as_bytes())
            {
                put(&[HTTP, name.as_bytes()].concat(), value);
            }
        }
        if passes_fields {
            self.fields(request, wanted, put);
        }
    }

    /// Hands over the client's header fields. Those of one name are joined.
    fn fields(&self, request: &Request, wanted: &Wanted, mut put: impl FnMut(&[u8], &[u8])) {
        let fields: Vec<(u64, Field<'_>)> =
            request.head.fields().iter().map(|field| (hash(field.name), field)).collect();
        let same = |a: &(u64, Field<'_>), b: &(u64, Field<'_>)| {
            a.0 == b.0 && a.1.name.eq_ignore_ascii_case(b.1.name)
        };
        let mut name = Vec::with_capacity(64);
        for (n, one) in fields.iter().enumerate() {
            let (_, field) = one;
            match field.known {
                Some(Known::Host) => continue,
                Some(known) if wanted.for_cache && CONDITIONS.contains(&known) => continue,
                None if field.name.eq_ignore_ascii_case(b"proxy") => continue,
                _ => {}
            }
            name.clear();
            name.extend_from_slice(HTTP);
            name.extend(field.name.iter().map(|b| match b {
                b'-' => b'_',
                other => other.to_ascii_uppercase(),
            }));
            if self.sets(&name[HTTP.len()..]) || fields[..n].iter().any(|other| same(other, one)) {
                continue;
            }
            let mut others = fields[n + 1..].iter().filter(|other| same(other, one)).peekable();
            if others.peek().is_none() {
                put(&name, field.value);
                continue;
            }
            // RFC 9110 section 5.3; RFC 6265 section 5.4 for cookies.
            let separator = if field.known == Some(Known::Cookie) { b"; " } else { b", " };
            let mut value = field.value.to_vec();
            for (_, other) in others {
                value.extend_from_slice(separator);
                value.extend_from_slice(other.value);
            }
            put(&name, &value);
        }
    }
}

/// The requested host with its port, if the client has named one.
pub(super) fn host(request: &Request) -> Bytes {
    let host = match request.host() {
        [] => request.server_name(),
        host => host,
    };
    let mut text = host.to_vec();
    if let Some(port) = request.host_port {
        text.extend_from_slice(format!(":{port}").as_bytes());
    }
    text.into()
}

/// A name without regard to case.
fn hash(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    name.iter().for_each(|b| hasher.write_u8(b.to_ascii_lowercase()));
    hasher.finish()
}
