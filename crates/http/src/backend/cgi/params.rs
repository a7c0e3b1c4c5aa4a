//! `fastcgi_param` and its relatives: what an application learns about a request. nginx:
//! `ngx_http_fastcgi_init_params` and the first half of `ngx_http_fastcgi_create_request`.

use std::hash::Hasher;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};
use nowait_gateway::ParamList;
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

    /// Whether a directive sets the parameter for this field.
    fn sets(&self, field: &[u8]) -> bool {
        let is_it = |name: &Bytes| {
            name.len() == field.len() && name.iter().zip(field).all(|(a, b)| upper(*a) == upper(*b))
        };
        self.fields.iter().any(is_it)
    }

    /// Adds all parameters of a request to the list: those of directives, ours, the client's header
    /// fields if they are passed on.
    ///
    /// nginx differs: the client's `Proxy` is passed on only by a directive, since applications take
    /// `HTTP_PROXY` for a setting of their own (CVE-2016-5385). A request that a cache has turned into
    /// another method has that method in `REQUEST_METHOD`.
    pub fn append(
        &self,
        request: &Request,
        wanted: &Wanted,
        passes_fields: bool,
        list: &mut impl ParamList,
    ) {
        for param in &self.list {
            let name = |out: &mut Vec<u8>| out.extend_from_slice(&param.name);
            list.add(param.if_not_empty, name, |out| match wanted.method {
                Some(method) if param.name == "REQUEST_METHOD" => {
                    out.extend_from_slice(method.as_bytes());
                }
                _ => param.value.append(request, out),
            });
        }
        if !self.sets(b"HOST") {
            let name = |out: &mut Vec<u8>| out.extend_from_slice(b"HTTP_HOST");
            list.add(true, name, |out| append_host(request, out));
        }
        for (_, name, value) in wanted.condition.iter().flat_map(|condition| condition.fields()) {
            if !self.sets(name.as_bytes()) {
                let value = |out: &mut Vec<u8>| out.extend_from_slice(value);
                list.add(true, |out| append_name(name.as_bytes(), out), value);
            }
        }
        if passes_fields {
            self.append_fields(request, wanted, list);
        }
    }

    /// Hands over the parameters of a request without content, for an explanation.
    pub fn explain(
        &self,
        request: &Request,
        passes_fields: bool,
        put: &mut dyn FnMut(&[u8], &[u8]),
    ) {
        self.append(request, &Wanted::default(), passes_fields, &mut Told(put));
    }

    /// Adds the client's header fields. Those of one name are joined.
    fn append_fields(&self, request: &Request, wanted: &Wanted, list: &mut impl ParamList) {
        let fields = request.head.fields();
        // Most are known and not repeated, and need no comparison.
        let is_single = |field: &Field<'_>| field.known.is_some_and(|k| !fields.is_repeated(k));
        let others = fields.iter().filter(|field| !is_single(field));
        let others: Vec<(u64, Field<'_>)> = others.map(|field| (hash(field.name), field)).collect();
        let same = |a: &(u64, Field<'_>), b: &(u64, Field<'_>)| {
            a.0 == b.0 && a.1.name.eq_ignore_ascii_case(b.1.name)
        };
        let mut seen = 0;
        for field in fields.iter() {
            let following = match is_single(&field) {
                true => None,
                false => {
                    seen += 1;
                    others.get(seen..)
                }
            };
            match field.known {
                Some(Known::Host) => continue,
                Some(known) if wanted.for_cache && CONDITIONS.contains(&known) => continue,
                None if field.name.eq_ignore_ascii_case(b"proxy") => continue,
                _ => {}
            }
            if self.sets(field.name) {
                continue;
            }
            let name = |out: &mut Vec<u8>| append_name(field.name, out);
            let Some(following) = following else {
                list.add(false, name, |out| out.extend_from_slice(field.value));
                continue;
            };
            let one = &others[seen - 1];
            if others[..seen - 1].iter().any(|other| same(other, one)) {
                continue;
            }
            // RFC 9110 section 5.3; RFC 6265 section 5.4 for cookies.
            let separator = if field.known == Some(Known::Cookie) { b"; " } else { b", " };
            list.add(false, name, |out| {
                out.extend_from_slice(field.value);
                for (_, other) in following.iter().filter(|other| same(other, one)) {
                    out.extend_from_slice(separator);
                    out.extend_from_slice(other.value);
                }
            });
        }
    }
}

/// A list that is told rather than sent.
struct Told<'a>(&'a mut dyn FnMut(&[u8], &[u8]));

impl ParamList for Told<'_> {
    fn add(
        &mut self,
        if_not_empty: bool,
        name: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        let (mut name_text, mut value_text) = (Vec::new(), Vec::new());
        name(&mut name_text);
        value(&mut value_text);
        if !(if_not_empty && value_text.is_empty()) {
            (self.0)(&name_text, &value_text);
        }
    }
}

/// Appends the name of the parameter for a header field.
fn append_name(field: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(HTTP);
    let start = out.len();
    out.extend_from_slice(field);
    out[start..].iter_mut().for_each(|b| *b = upper(*b));
}

/// A byte of a field's name as it stands in that of a parameter.
fn upper(b: u8) -> u8 {
    if b == b'-' { b'_' } else { b.to_ascii_uppercase() }
}

/// Appends the requested host with its port, if the client has named one.
pub(super) fn append_host(request: &Request, out: &mut Vec<u8>) {
    out.extend_from_slice(match request.host() {
        [] => request.server_name(),
        host => host,
    });
    if let Some(port) = request.host_port {
        out.push(b':');
        out.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
    }
}

/// A name without regard to case.
fn hash(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    name.iter().for_each(|b| hasher.write_u8(b.to_ascii_lowercase()));
    hasher.finish()
}
