//! `fastcgi_param` and similar directives: the parameters of a request for an application. nginx:
//! `ngx_http_fastcgi_init_params` and the first half of `ngx_http_fastcgi_create_request`.
//!
//! A location's parameters are prepared when the configuration is read, in the form in which they are
//! sent: names with their lengths, and all of those whose value is constant. A request adds the other
//! values ([`list`]) and the client's header fields ([`fields`]).

mod fields;
mod list;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::marker::PhantomData;

use bytes::Bytes;
use fields::ClientFields;
use list::{List, Value};
use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};
use nowait_gateway::ParamForm;
use nowait_http::request::Request;
use nowait_http::variables::complex::{Complex, Part, Table};
use nowait_http::variables::system;
use nowait_message::name::CGI_PREFIX;
use nowait_variables::Subject;

use crate::upstream::UpstreamVariation;

/// One `fastcgi_param`.
#[derive(Clone, Debug)]
pub struct Param {
    name: Bytes,
    value: Complex,
    /// Sent only if its value is not empty.
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
        let value = nowait_http::conf::complex(value, cx)?;
        let value = with_constants(&value, cx.global::<Table>());
        Ok(Self { name, value, if_not_empty: third.is_some() })
    }
}

impl Param {
    /// The name of the client's field that it replaces; a part of its own name.
    fn field(&self) -> Option<Bytes> {
        let rest = self.name.strip_prefix(CGI_PREFIX)?;
        (!rest.is_empty()).then(|| self.name.slice_ref(rest))
    }

    /// An empty one only removes the client's field.
    fn is_sent(&self) -> bool {
        self.field().is_none() || !self.value.is_empty()
    }
}

/// The text with the values of variables that never change.
fn with_constants(text: &Complex, table: &Table) -> Complex {
    let constant = |part: &Part| match part {
        Part::Variable(index) => table.name(*index).and_then(system::constant),
        _ => None,
    };
    if !text.parts().iter().any(|part| constant(part).is_some()) {
        return text.clone();
    }
    let mut parts: Vec<Part> = Vec::new();
    for part in text.parts() {
        let part = match constant(part) {
            Some(value) => Part::Literal(Bytes::from_static(value.as_bytes())),
            None => part.clone(),
        };
        match (parts.last_mut(), &part) {
            (Some(Part::Literal(last)), Part::Literal(text)) => {
                *last = [&last[..], text].concat().into()
            }
            _ => parts.push(part),
        }
    }
    Complex::new(parts)
}

/// The parameters of a location, in a form.
#[derive(Debug)]
pub struct Params<F> {
    /// Those of the directives, for an explanation.
    given: Vec<Param>,
    list: List,
    fields: ClientFields,
    form: PhantomData<fn() -> F>,
}

impl<F: ParamForm> Params<F> {
    /// From the directives of a block.
    pub fn new(given: Vec<Param>) -> Self {
        let fields = ClientFields::without(given.iter().filter_map(Param::field));
        let mut list = List::default();
        for param in given.iter().filter(|param| param.is_sent()) {
            list.add::<F>(param);
        }
        if !fields.are_without(b"HOST") {
            list.add_host::<F>();
        }
        Self { given, list, fields, form: PhantomData }
    }

    /// Whether one of the directives depends on the content of the request.
    pub fn depend_on_content(&self, request: &Request) -> bool {
        self.given.iter().any(|param| request.depends_on_content(&param.value))
    }

    /// Appends all parameters of a request: those of directives, ours, the client's header fields if
    /// they are passed on.
    ///
    /// nginx differs: the client's `Proxy` is passed on only by a directive, since applications take
    /// `HTTP_PROXY` for a setting of their own (CVE-2016-5385). A request that a cache has turned into
    /// another method has that method in `REQUEST_METHOD`.
    ///
    /// # Errors
    /// One of them cannot be sent in this form.
    pub fn append(
        &self,
        request: &Request,
        wanted: &UpstreamVariation,
        passes_fields: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), F::Error> {
        let variables = request.variables();
        self.list.write::<F>(out, |value, out| match (value, wanted.method) {
            (Value::Variable(index), _) => {
                variables.append(*index, request, out);
            }
            (Value::Method(_), Some(method)) => out.extend_from_slice(method.as_bytes()),
            (Value::Method(text) | Value::Text(text), _) => text.append(request, out),
            (Value::Host, _) => append_host(request, out),
        })?;
        if let Some(condition) = &wanted.condition {
            for (_, name, value) in condition.fields() {
                self.fields.append_own::<F>(name, value, out)?;
            }
        }
        match passes_fields {
            true => self.fields.append::<F>(request.head().fields(), wanted.for_cache, out),
            false => Ok(()),
        }
    }

    /// Hands over the parameters of a request without content, for an explanation.
    pub fn explain(
        &self,
        request: &Request,
        passes_fields: bool,
        put: &mut dyn FnMut(&[u8], &[u8]),
    ) {
        let params = Params::<ExplainForm>::new(self.given.clone());
        let mut list = Vec::new();
        let Ok(()) =
            params.append(request, &UpstreamVariation::default(), passes_fields, &mut list);
        ExplainForm::read(&list, put);
    }
}

/// A form for explanations, which is not sent: both lengths, the name, the value.
struct ExplainForm;

/// Bytes of a length.
const LENGTH_BYTES: usize = size_of::<usize>();

impl ExplainForm {
    fn read(mut list: &[u8], put: &mut dyn FnMut(&[u8], &[u8])) {
        while !list.is_empty() {
            let (name, value) = (Self::read_length(&mut list), Self::read_length(&mut list));
            let (name, rest) = list.split_at(name);
            let (value, rest) = rest.split_at(value);
            put(name, value);
            list = rest;
        }
    }

    fn read_length(list: &mut &[u8]) -> usize {
        let (length, rest) = list.split_first_chunk().expect("a list is complete");
        *list = rest;
        usize::from_ne_bytes(*length)
    }
}

impl ParamForm for ExplainForm {
    type Error = Infallible;

    fn open(list: &mut Vec<u8>, name_bytes: usize, name: impl FnOnce(&mut Vec<u8>)) {
        list.extend_from_slice(&name_bytes.to_ne_bytes());
        list.extend_from_slice(&[0; LENGTH_BYTES]);
        name(list);
    }

    fn close(list: &mut Vec<u8>, start: usize, value: usize) -> Result<(), Infallible> {
        let length = (list.len() - value).to_ne_bytes();
        list[start + LENGTH_BYTES..][..LENGTH_BYTES].copy_from_slice(&length);
        Ok(())
    }
}

/// Appends the requested host with its port, if the client has named one.
pub(super) fn append_host(request: &Request, out: &mut Vec<u8>) {
    out.extend_from_slice(match request.host() {
        [] => request.server_name(),
        host => host,
    });
    if let Some(port) = request.host_port() {
        out.push(b':');
        out.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
    }
}
