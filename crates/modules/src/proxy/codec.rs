//! The HTTP codec of the upstream engine: HTTP/1 on the client side of `h1`, and the HTTP/2 parts that are
//! specific to proxying.
//!
//! Made for one try of a request; sans-IO.

use std::borrow::Cow;
use std::rc::Rc;

use bytes::Bytes;
use nowait_backend::early_hints;
use nowait_backend::http2::{Http2Codec, Http2Protocol};
use nowait_backend::upstream::{
    BodyEvent, BodyStep, Codec, CodecFactory, Content, Fault, HeadEvent, HeadStep, UpstreamRequest,
    UpstreamStream,
};
use nowait_h1::client::{self, RequestKind};
use nowait_h1::encode::{CHUNK_END, LAST_CHUNK, chunk_start};
use nowait_h1::{Limits, ResponseError};
use nowait_http::exchange::Interim;
use nowait_http::request::{BodyLength, Request, RequestBody};
use nowait_http::response::Header;
use nowait_http::upstream_state::LogUri;
use nowait_message::{Known, Method, ResponseBuilder, ResponseHead};
use nowait_runtime::buf::{Chain, Chunk, OutBuf};
use nowait_spare::LocalSpares;

use super::context;
use super::request_head::{self, Framing, FramingCheck, StreamStart};
use crate::proxy::conf::ProxyConf;

/// Maximum number of unused codecs that a worker keeps; the memory of a large head is not kept.
const SPARE_MAX: usize = 128;

thread_local! {
    /// Codecs of finished requests: their memory is reused for the next ones.
    static SPARE: LocalSpares<Box<Http1>> = const { LocalSpares::new(SPARE_MAX) };
}

/// HTTP towards servers.
pub struct HttpFactory;

impl CodecFactory for HttpFactory {
    fn codec(&self, _: &Request, lane: Option<&Rc<UpstreamStream>>) -> Box<dyn Codec> {
        match lane {
            None => Http1::new(),
            Some(lane) => Http2Codec::new(lane.clone(), HTTP2),
        }
    }

    fn tunnels(&self, request: &Request) -> bool {
        asks_for_socket(request)
    }
}

/// HTTP/2 for this module.
const HTTP2: Http2Protocol = Http2Protocol {
    open: |request, order, lane| {
        let conf = context::conf(request).ok_or(500u16)?;
        let (content, framing) = content(request, conf);
        context::set_framing(request, framing);
        let has_content = framing.chunked || framing.length.is_some_and(|length| length > 0);
        let protocol = asks_for_socket(request).then_some(&b"websocket"[..]);
        let way = StreamStart { framing, end: !has_content && protocol.is_none(), protocol };
        let uri = uri(request, order);
        request_head::open(request, conf, &order.wanted, uri, way, lane);
        Ok((content, has_content))
    },
    asks_for_socket,
    backend: |request| Some(&context::conf(request)?.backend),
};

/// Whether a request asks for a WebSocket and the location forwards that.
fn asks_for_socket(request: &Request) -> bool {
    let asks = || {
        let protocol = request.head().header(Known::Upgrade)?;
        let sets = context::conf(request)?.headers.sets(Known::Upgrade);
        Some(sets && protocol.eq_ignore_ascii_case(b"websocket"))
    };
    request.method() == Method::Get
        && matches!(request.body(), RequestBody::None)
        && asks() == Some(true)
}

/// The URI to request.
fn uri<'a>(request: &'a Request, order: &'a UpstreamRequest) -> &'a [u8] {
    match &order.uri {
        LogUri::Unparsed => request.head().uri(),
        LogUri::Text(text) => text,
    }
}

/// One request to an HTTP server.
pub struct Http1 {
    framing: Framing,
    connection: client::ClientConnection,
    head: ResponseBuilder,
    /// The head may not announce its content correctly, so the connection can't be reused.
    doubtful: bool,
    /// Bytes of interim responses received until now.
    hints: usize,
}

impl Http1 {
    fn new() -> Box<Self> {
        LocalSpares::take_local(&SPARE).unwrap_or_else(|| {
            Box::new(Self {
                framing: Framing::default(),
                connection: client::ClientConnection::new(Limits::default()),
                head: ResponseBuilder::new(),
                doubtful: false,
                hints: 0,
            })
        })
    }
}

/// The properties of the request that its response depends on.
fn asked(request: &Request, conf: &ProxyConf, written: &[u8]) -> RequestKind {
    if written.get(..5).is_some_and(|method| method.eq_ignore_ascii_case(b"HEAD ")) {
        RequestKind::Head
    } else if request.head().header(Known::Upgrade).is_some() && conf.headers.sets(Known::Upgrade) {
        RequestKind::Upgrade
    } else {
        RequestKind::Content
    }
}

impl Codec for Http1 {
    fn begin(
        &mut self,
        request: &Request,
        order: &UpstreamRequest,
        out: &mut OutBuf,
    ) -> Result<Content, u16> {
        let conf = context::conf(request).ok_or(500u16)?;
        let (content, framing) = content(request, conf);
        context::set_framing(request, framing);
        let uri = uri(request, order);
        let start = out.len();
        let written = request_head::write(request, conf, &order.wanted, uri, framing, out);
        let asked = asked(request, conf, &out[start..]);
        // The head and the first bytes of the body share one buffer.
        let limits = Limits::one_buffer(conf.backend.settings.buffer_size);
        let limits = Limits { icy: conf.allow_icy, ..limits };
        self.doubtful = written == FramingCheck::Doubtful;
        self.framing = framing;
        self.connection = client::ClientConnection::new(limits);
        self.connection.request_sent(asked);
        self.hints = 0;
        Ok(content)
    }

    fn encode_body(&mut self, piece: Bytes, chain: &mut Chain) {
        if !self.framing.chunked {
            chain.push(Chunk::from(piece));
            return;
        }
        let mut start = Vec::with_capacity(18);
        chunk_start(&mut start, piece.len() as u64);
        chain.push(Chunk::from(Bytes::from(start)));
        chain.push(Chunk::from(piece));
        chain.push(Chunk::from(CHUNK_END));
    }

    fn encode_end(&mut self, chain: &mut Chain) {
        if self.framing.chunked {
            chain.push(Chunk::from(LAST_CHUNK));
        }
    }

    fn receive_head(&mut self, input: &[u8]) -> Result<HeadStep, Fault> {
        let step = self.connection.receive_head(&mut self.head, input).map_err(fault)?;
        let event = match step.event {
            client::HeadEvent::NeedMore => HeadEvent::NeedMore,
            client::HeadEvent::Interim => HeadEvent::Interim(self.head.share()),
            client::HeadEvent::Final => HeadEvent::Final(self.head.share()),
        };
        Ok(HeadStep { consumed: step.consumed, event })
    }

    fn interim(&mut self, request: &Request, head: &ResponseHead) -> Option<Interim> {
        self.hints += head.length;
        let backend = &context::conf(request)?.backend;
        if self.hints > backend.settings.buffer_size as usize {
            let text = format_args!("upstream sent too big early hints");
            request.log(nowait_http::log::Level::Info, text);
            return None;
        }
        early_hints::interim(request, backend, head)
    }

    fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, Fault> {
        let step = self.connection.receive_body(input).map_err(fault)?;
        let event = match step.event {
            nowait_h1::BodyEvent::NeedMore => BodyEvent::NeedMore,
            nowait_h1::BodyEvent::Data(range) => BodyEvent::Data(range),
            nowait_h1::BodyEvent::End => BodyEvent::End,
        };
        Ok(BodyStep { consumed: step.consumed, event })
    }

    fn receive_eof(&mut self) -> Result<(), Fault> {
        self.connection.receive_eof().map_err(fault)
    }

    fn body_left(&self) -> Option<u64> {
        self.connection.body().remaining()
    }

    fn unframed(&self) -> Option<u64> {
        self.connection.body().unframed()
    }

    fn skip(&mut self, bytes: u64) {
        self.connection.skip_body(bytes);
    }

    fn trailers(&mut self) -> Vec<Header> {
        let Some(trailers) = self.connection.trailers() else { return Vec::new() };
        let lines = trailers.fields().iter().map(|field| Header {
            name: Bytes::copy_from_slice(field.name),
            value: Bytes::copy_from_slice(field.value),
        });
        lines.collect()
    }

    fn is_tunnel(&self) -> bool {
        self.connection.is_switched()
    }

    fn is_reusable(&self, leftover: bool) -> bool {
        !self.doubtful && self.connection.reusable(leftover)
    }

    fn retire(mut self: Box<Self>) {
        self.head.clear();
        LocalSpares::keep_local(&SPARE, self);
    }
}

/// The content to send, and its framing.
fn content(request: &Request, conf: &ProxyConf) -> (Content, Framing) {
    let known = |length| Framing { length: Some(length), chunked: false };
    if let Some(text) = &conf.set_body {
        let bytes = request.evaluate(text);
        let framing = known(bytes.len() as u64);
        return (Content::Bytes(bytes), framing);
    }
    if !conf.backend.pass_request_body {
        // nginx differs: it announces content that it does not send, and the server waits for it,
        // unless `proxy_set_header Content-Length "";` is added.
        return (Content::None, Framing::default());
    }
    let framing = match (request.body(), request.body_length()) {
        (RequestBody::Memory(bytes), _) => known(bytes.len() as u64),
        (RequestBody::File(file), _) => known(file.len()),
        (RequestBody::Unread(_), BodyLength::Known(length)) => known(length),
        (RequestBody::Unread(_), _) => Framing { length: None, chunked: true },
        (RequestBody::None, _) => {
            Framing { length: request.head().content_length().filter(|n| *n == 0), chunked: false }
        }
    };
    (Content::Request, framing)
}

/// Converts a protocol error to the engine's form.
fn fault(error: ResponseError) -> Fault {
    match error {
        ResponseError::HeaderTooLarge => Fault::HeadTooBig,
        ResponseError::PrematureClose => Fault::PrematureClose,
        other => Fault::Malformed(Cow::Owned(other.to_string())),
    }
}
