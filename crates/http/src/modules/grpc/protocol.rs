//! gRPC as a [`Protocol`] of backends, and the head of its requests. nginx:
//! `ngx_http_grpc_create_request`.

use std::rc::Rc;
use std::sync::Arc;

use nowait_message::Known;
use nowait_message::escape::{self, Set};

use super::accepts_trailers;
use super::conf::{CONF, GrpcConf, Pass, SCHEMES};
use crate::backend::conf::Backend;
use crate::backend::http2::{Http2, Opened, Way};
use crate::backend::protocol::{Protocol, Server, Transport};
use crate::backend::request_head::{Writer, pass};
use crate::backend::response::Rewriter;
use crate::backend::url::{self, Destination, Url, UrlError};
use crate::conf::Location;
use crate::conf::upstream::GroupId;
use crate::log::Level;
use crate::request::{Request, RequestBody};
use crate::slots::Key;
use crate::upstream::{Codec, CodecFactory, Content, Lane, Line, LogUri, Order};

/// The destination of a request that a `grpc_pass` with variables names; dropped at internal redirects.
static DESTINATION: Key<Option<Rc<Destination>>> = Key::reusing(|destination| {
    *destination = None;
    true
});

/// The destination of a request.
fn destination<'a>(conf: &'a GrpcConf, request: &'a Request) -> Option<&'a Destination> {
    match &conf.pass {
        Pass::Static { destination, .. } => Some(destination),
        Pass::Variable(_) => request.round.get(&DESTINATION)?.as_deref(),
    }
}

fn conf(request: &Request) -> Option<&GrpcConf> {
    GrpcConf::of_location(request.location()).map(|conf| &**conf)
}

/// gRPC towards servers.
pub(super) struct GrpcFactory;

impl CodecFactory for GrpcFactory {
    fn codec(&self, _: &Request, lane: Option<&Rc<Lane>>) -> Box<dyn Codec> {
        let lane = lane.expect("requests share connections");
        Http2::new(lane.clone(), WAY)
    }

    fn shares(&self, _: &Request) -> bool {
        true
    }
}

const WAY: Way = Way { open, backend: |request| Some(&conf(request)?.backend) };

/// Opens the stream of a call.
fn open(request: &Request, order: &Order, lane: &Rc<Lane>) -> Opened {
    let conf = conf(request).ok_or(500u16)?;
    let destination = destination(conf, request).ok_or(500u16)?;
    let given = conf.headers.host.as_ref().map(|text| request.evaluate(text));
    let authority = given.filter(|host| !host.is_empty());
    let authority = authority.unwrap_or_else(|| destination.host_header.clone());
    let line = Line {
        method: order.wanted.method.map_or_else(|| request.method_name(), str::as_bytes),
        scheme: if destination.tls { b"https" } else { b"http" },
        authority: &authority,
        path: match &order.uri {
            LogUri::Unparsed => request.head.uri(),
            LogUri::Text(text) => text,
        },
    };
    let has_content = match &request.body {
        RequestBody::None => false,
        RequestBody::Memory(bytes) => !bytes.is_empty(),
        RequestBody::File(_) | RequestBody::Unread(_) => true,
    };
    lane.open(&line, !has_content, |fields| {
        let headers = &conf.headers;
        if accepts_trailers(request) && !headers.sets(Known::Te) {
            fields.field(b"te", b"trailers");
        }
        if let Some(length) = request.head.content_length()
            && !headers.sets(Known::ContentLength)
        {
            fields.field_number(b"content-length", length);
        }
        for line in &headers.lines {
            let value = request.evaluate(&line.value);
            if !value.is_empty() {
                Writer::field(fields, &line.name, &value);
            }
        }
        pass(request.head.fields(), headers.replaced(false), fields);
    });
    Ok((Content::Request, has_content))
}

impl Rewriter for GrpcConf {}

impl Protocol for GrpcConf {
    const CODECS: &'static dyn CodecFactory = &GrpcFactory;
    const IS_GRPC: bool = true;

    fn of_location(location: &Location) -> Option<&Arc<Self>> {
        location.settings.get(&CONF)
    }

    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn group(&self) -> Option<GroupId> {
        match self.pass {
            Pass::Static { group, .. } => Some(group),
            Pass::Variable(_) => None,
        }
    }

    fn settle(&self, _: &mut Request) {}

    fn evaluate(&self, request: &mut Request) -> Result<Server, u16> {
        let Pass::Variable(text) = &self.pass else { return Err(500) };
        let text = request.evaluate(text);
        let parsed = Url::parse(&text, SCHEMES).map_err(|error| {
            let server = match url::after_scheme(&text) {
                [] => String::from_utf8_lossy(&text),
                server => String::from_utf8_lossy(server),
            };
            let problem = match error {
                UrlError::Server(problem) => problem,
                UrlError::Prefix => "invalid URL prefix",
            };
            request.log(Level::Error, format_args!("{problem} in upstream \"{server}\""));
            500u16
        })?;
        *request.round.of_mut(&DESTINATION) = Some(Rc::new(parsed.destination));
        let Url { server, host, port, .. } = parsed;
        Ok(Server::Named { server, host, port, default_port: None })
    }

    fn transport(&self, request: &Request) -> Transport {
        match (destination(self, request), &self.backend.settings.tls) {
            (Some(destination), Some(tls)) if destination.tls => {
                let wish = Box::new(tls.wish(request, &destination.host));
                Transport { scheme: SCHEMES.tls, tls: Some(wish) }
            }
            _ => Transport { scheme: SCHEMES.plain, tls: None },
        }
    }

    fn uri(&self, request: &Request) -> Result<LogUri, u16> {
        if request.rewriting.unparsed {
            return Ok(LogUri::Unparsed);
        }
        let mut uri = Vec::with_capacity(request.uri.path.len() + request.uri.query().len() + 16);
        escape::push_uri(&mut uri, Set::Uri, &request.uri.path);
        if !request.uri.query().is_empty() {
            uri.push(b'?');
            uri.extend_from_slice(request.uri.query());
        }
        Ok(LogUri::Text(uri.into()))
    }

    fn streams(&self, _: &Request) -> bool {
        true
    }

    fn default_key(&self, request: &Request, out: &mut Vec<u8>) {
        out.extend_from_slice(request.head.uri());
    }

    fn passes_trailers(&self) -> bool {
        true
    }
}
