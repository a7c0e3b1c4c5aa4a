//! gRPC as a [`Protocol`](nowait_backend::protocol::Protocol) of backends, and the head of its requests. nginx:
//! `ngx_http_grpc_create_request`.

use std::rc::Rc;
use std::sync::Arc;

use nowait_backend::conf::Backend;
use nowait_backend::http2::{Http2Codec, Http2Protocol, Opened};
use nowait_backend::pass::{Addressed, Pass};
use nowait_backend::request_head::{Writer, pass};
use nowait_backend::response::Rewriter;
use nowait_backend::upstream::{
    Codec, CodecFactory, Content, Line, UpstreamRequest, UpstreamStream,
};
use nowait_http::request::{Request, RequestBody};
use nowait_http::slots::Key;
use nowait_http::upstream_state::LogUri;
use nowait_message::Known;
use nowait_message::escape::{self, Set};

use super::accepts_trailers;
use super::conf::{CONF, GrpcConf};

fn conf(request: &Request) -> Option<&GrpcConf> {
    request.location().settings.get(&CONF).map(|conf| &**conf)
}

/// gRPC towards servers.
pub(super) struct GrpcFactory;

impl CodecFactory for GrpcFactory {
    fn codec(&self, _: &Request, lane: Option<&Rc<UpstreamStream>>) -> Box<dyn Codec> {
        let lane = lane.expect("requests share connections");
        Http2Codec::new(lane.clone(), WAY)
    }
}

const WAY: Http2Protocol = Http2Protocol {
    open,
    asks_for_socket: |_| false,
    backend: |request| Some(&conf(request)?.backend),
};

/// Opens the stream of a call.
fn open(request: &Request, order: &UpstreamRequest, lane: &Rc<UpstreamStream>) -> Opened {
    let conf = conf(request).ok_or(500u16)?;
    let destination = conf.pass.destination(request).ok_or(500u16)?;
    let given = conf.headers.host.as_ref().map(|text| request.evaluate(text));
    let authority = given.filter(|host| !host.is_empty());
    let authority = authority.unwrap_or_else(|| destination.host_header.clone());
    let line = Line {
        method: order.wanted.method.map_or_else(|| request.method_name(), str::as_bytes),
        scheme: if destination.tls { b"https" } else { b"http" },
        authority: &authority,
        path: match &order.uri {
            LogUri::Unparsed => request.head().uri(),
            LogUri::Text(text) => text,
        },
        protocol: None,
    };
    let has_content = match request.body() {
        RequestBody::None => false,
        RequestBody::Memory(bytes) => !bytes.is_empty(),
        RequestBody::File(_) | RequestBody::Unread(_) => true,
    };
    lane.open(&line, !has_content, |fields| {
        let headers = &conf.headers;
        if accepts_trailers(request) && !headers.sets(Known::Te) {
            fields.field(b"te", b"trailers");
        }
        if let Some(length) = request.head().content_length()
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
        pass(request.head().fields(), headers.replaced(false), fields);
    });
    Ok((Content::Request, has_content))
}

impl Rewriter for GrpcConf {}

impl Addressed for GrpcConf {
    const CODECS: &'static dyn CodecFactory = &GrpcFactory;
    const SETTINGS: &'static Key<Arc<Self>> = &CONF;
    const IS_GRPC: bool = true;

    fn pass(&self) -> &Pass {
        &self.pass
    }

    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn uri(&self, request: &Request) -> Result<LogUri, u16> {
        if request.rewriting().unparsed {
            return Ok(LogUri::Unparsed);
        }
        let mut uri =
            Vec::with_capacity(request.uri().path.len() + request.uri().query().len() + 16);
        escape::push_uri(&mut uri, Set::Uri, &request.uri().path);
        if !request.uri().query().is_empty() {
            uri.push(b'?');
            uri.extend_from_slice(request.uri().query());
        }
        Ok(LogUri::Text(uri.into()))
    }

    fn streams(&self, _: &Request) -> bool {
        true
    }

    fn default_key(&self, request: &Request, out: &mut Vec<u8>) {
        out.extend_from_slice(request.head().uri());
    }

    fn passes_trailers(&self) -> bool {
        true
    }
}
