//! The FastCGI codec of the upstream engine. nginx: `ngx_http_fastcgi_create_request`.
//!
//! Made for one try of a request; sans-IO. The records are those of `nowait-gateway`.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use nowait_backend::cgi::{self, plain};
use nowait_backend::protocol::Protocol;
use nowait_backend::upstream::{
    BodyEvent, BodyStep, Codec, CodecFactory, Content, Fault, HeadEvent, HeadStep, Remark,
    UpstreamRequest, UpstreamStream,
};
use nowait_gateway::fastcgi::{
    self, CONTENT_BYTES_MAX, FastCgiContext, FastCgiResponse, RecordType,
};
use nowait_gateway::{BodyEvent as Body, HeadEvent as Head};
use nowait_http::log::Level;
use nowait_http::request::{Request, RequestBody};
use nowait_message::ResponseBuilder;
use nowait_runtime::buf::{Chain, Chunk, OutBuf};
use nowait_spare::LocalSpares;

use super::conf::{ErrorPattern, FastcgiConf};

/// Content up to this size is sent together with the parameters.
const SMALL_BYTES_MAX: usize = 8 * 1024;

/// Maximum number of bytes logged of one error-stream record; nginx logs 2 KB.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Maximum number of bytes of the error stream that are logged for one request.
const STDERR_LOGGED_MAX: usize = 128 * 1024;

/// Maximum number of unused codecs that a worker keeps; the memory of a large request or head is not kept.
const SPARE_MAX: usize = 128;

thread_local! {
    /// Codecs of finished requests: their memory is reused for the next ones.
    static SPARE: LocalSpares<Box<Fastcgi>> = const { LocalSpares::new(SPARE_MAX) };
}

/// FastCGI towards servers.
pub(super) struct FastcgiFactory;

impl CodecFactory for FastcgiFactory {
    fn codec(&self, _: &Request, _: Option<&Rc<UpstreamStream>>) -> Box<dyn Codec> {
        LocalSpares::take_local(&SPARE).unwrap_or_else(|| {
            Box::new(Fastcgi {
                catches: None,
                response: FastCgiResponse::new(FastCgiContext::default()),
                head: ResponseBuilder::new(),
                frames: false,
                logged: 0,
            })
        })
    }
}

/// One request to a FastCGI server.
struct Fastcgi {
    /// The settings of the request's location, if texts of the error stream make responses invalid.
    catches: Option<Arc<FastcgiConf>>,
    response: FastCgiResponse,
    head: ResponseBuilder,
    /// The content is still to be sent, in records.
    frames: bool,
    /// Bytes of the error stream that were logged.
    logged: usize,
}

impl Codec for Fastcgi {
    fn begin(
        &mut self,
        request: &Request,
        order: &UpstreamRequest,
        out: &mut OutBuf,
    ) -> Result<Content, u16> {
        let conf = FastcgiConf::of_location(request.location()).ok_or(500u16)?;
        if !conf.catch_stderr.is_empty() {
            self.catches = Some(conf.clone());
        }
        self.response.begin(FastCgiContext {
            head: cgi::is_head(request, order),
            keep: conf.keep_conn,
            head_bytes_max: conf.backend.settings.buffer_size,
        });
        // Allocates the buffer.
        let out: &mut Vec<u8> = out;
        fastcgi::begin(conf.keep_conn, out);
        let params = fastcgi::Params::begin(out);
        let passes = conf.backend.pass_request_headers;
        let Ok(()) = conf.params.append(request, &order.wanted, passes, out);
        params.end(out);
        let (content, _) = cgi::content(request, &conf.backend);
        let small: &[u8] = match (&content, request.body()) {
            (Content::None, _) => &[],
            (_, RequestBody::Memory(bytes)) if bytes.len() <= SMALL_BYTES_MAX => bytes,
            _ => {
                self.frames = true;
                return Ok(content);
            }
        };
        fastcgi::write(RecordType::Stdin, small, out);
        fastcgi::end(RecordType::Stdin, out);
        Ok(Content::None)
    }

    fn frames_content(&self) -> bool {
        self.frames
    }

    fn encode_body(&mut self, mut piece: Bytes, chain: &mut Chain) {
        while !piece.is_empty() {
            let part = piece.split_to(piece.len().min(CONTENT_BYTES_MAX));
            let length = part.len();
            chain.push(Chunk::from(Bytes::copy_from_slice(&fastcgi::head(
                RecordType::Stdin,
                length,
            ))));
            chain.push(Chunk::from(part));
            let padding = fastcgi::padding(length);
            if !padding.is_empty() {
                chain.push(Chunk::from(Bytes::from_static(padding)));
            }
        }
    }

    fn encode_end(&mut self, chain: &mut Chain) {
        chain.push(Chunk::from(Bytes::copy_from_slice(&fastcgi::head(RecordType::Stdin, 0))));
    }

    fn receive_head(&mut self, input: &[u8]) -> Result<HeadStep, Fault> {
        let step = self.response.receive_head(&mut self.head, input).map_err(plain::fault)?;
        let event = match step.event {
            Head::NeedMore => HeadEvent::NeedMore,
            Head::StderrPart => HeadEvent::Apart(None),
            Head::Done => HeadEvent::Final(self.head.share()),
            Head::Stderr(text) if self.catches(&text) => {
                return Err(Fault::Malformed(stderr(&text)));
            }
            Head::Stderr(text) => HeadEvent::Apart(self.remark(&text)),
        };
        Ok(HeadStep { consumed: step.consumed, event })
    }

    fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, Fault> {
        let step = self.response.receive_body(input).map_err(plain::fault)?;
        let event = match step.event {
            Body::NeedMore => BodyEvent::NeedMore,
            Body::Data(range) => BodyEvent::Data(range),
            Body::Stderr(text) => BodyEvent::Apart(self.remark(&text)),
            Body::Excess => BodyEvent::Apart(Some(cgi::excess())),
            Body::End => BodyEvent::End,
        };
        Ok(BodyStep { consumed: step.consumed, event })
    }

    fn receive_eof(&mut self) -> Result<(), Fault> {
        self.response.receive_eof().map_err(plain::fault)
    }

    fn body_left(&self) -> Option<u64> {
        self.response.body_left()
    }

    fn is_reusable(&self, leftover: bool) -> bool {
        self.response.is_reusable(leftover)
    }

    fn retire(mut self: Box<Self>) {
        (self.catches, self.frames, self.logged) = (None, false, 0);
        self.head.clear();
        self.response.end();
        LocalSpares::keep_local(&SPARE, self);
    }
}

/// Logs a text of the error stream. nginx: `ngx_http_fastcgi_process_header`.
fn stderr(text: &[u8]) -> Cow<'static, str> {
    let end = text.iter().rposition(|b| !b"\r\n. ".contains(b)).map_or(0, |at| at + 1);
    let shown = String::from_utf8_lossy(&text[..end.min(LINE_BYTES_MAX)]);
    let more = if end > LINE_BYTES_MAX { "..." } else { "" };
    format!("FastCGI sent in stderr: \"{shown}{more}\"").into()
}

impl Fastcgi {
    /// The log entry for a text. The first text beyond the limit is replaced by a remark; further texts are
    /// not logged.
    fn remark(&mut self, text: &[u8]) -> Option<Remark> {
        let had_room = self.logged <= STDERR_LOGGED_MAX;
        self.logged += text.len().min(LINE_BYTES_MAX);
        let text = match self.logged <= STDERR_LOGGED_MAX {
            true => stderr(text),
            false if had_room => "FastCGI sent more in stderr, which is not logged".into(),
            false => return None,
        };
        Some(Remark { level: Level::Error, text })
    }

    /// Whether a text of the error stream makes the response invalid.
    fn catches(&self, text: &[u8]) -> bool {
        let patterns = self.catches.as_ref().map_or(&[][..], |conf| &conf.catch_stderr);
        patterns.iter().any(|ErrorPattern(pattern)| memchr::memmem::find(text, pattern).is_some())
    }
}
