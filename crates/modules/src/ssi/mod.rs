//! Server-side includes: commands in a page that are executed as it is sent. nginx:
//! `ngx_http_ssi_filter_module`.
//!
//! The [`filter`] wraps bodies in a [`SsiBody`]. A page is pulled; it finds
//! commands ([`scan`]), executes them ([`commands`]) and starts subrequests for includes. Several
//! subrequests run concurrently, and their responses are sent in order. Variables and blocks belong to
//! the main request ([`SsiState`]). Of a page it keeps only the command being read, the data ready to be
//! sent, and its blocks.
//!
//! nginx differs: it starts all includes of a buffer at once; here up to [`AHEAD_MAX`] are in flight.

mod commands;
pub mod conf;
mod filter;
mod scan;
mod text;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use commands::CommandEffect;
use nowait_conf::{Cx, Scope};
use nowait_http::body::{Piece, Sequence, collect};
use nowait_http::filter::Pull;
use nowait_http::log::Level;
use nowait_http::module::{FilterStage, LocationBuilder, Module};
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, BodySource, LocalFuture, Part};
use nowait_http::slots::Key;
use nowait_http::subrequest::{self, Answer, SubrequestError};
use nowait_http::variables::Builtin;
use nowait_http::variables::core::builtins;
use nowait_message::strftime;
use nowait_runtime::yield_now;
use nowait_variables::Captures;
use scan::{ScanItem, Scanner};

use self::conf::SsiConf;

/// Subrequests of one page in flight at a time.
const AHEAD_MAX: usize = 16;

/// Text up to this size is copied behind other text instead of becoming a separate piece.
const COPY_BYTES_MAX: usize = 1024;

/// Maximum number of bytes in all blocks of a main request. nginx has no limit.
const BLOCK_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of variables that the pages of a main request may set. nginx has no limit.
const VARIABLES_MAX: usize = 4096;

/// The text that replaces a failed command, unless `config` sets another one.
const ERROR_MESSAGE: &[u8] = b"[an error occurred while processing the directive]";

/// The format of `$date_local` and `$date_gmt`, unless `config` sets another one.
const TIME_FORMAT: &[u8] = b"%A, %d-%b-%Y %H:%M:%S %Z";

/// Time format set by a page's commands.
static TIME_FORMAT_SET: Key<Option<Bytes>> = Key::new();

/// State set by the commands of the pages of a main request.
static COMMON: Key<RefCell<SsiState>> = Key::new();

/// This module.
pub static MODULE: Module =
    Module { rows: &[SsiConf::ROWS], build: Some(build), variables: BUILTINS, ..Module::EMPTY };

/// Settings of a location with SSI, for the content of `stub` blocks.
static SETTINGS: Key<Arc<SsiConf>> = Key::new();

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = SsiConf::resolve(cx, chain);
    if conf.ssi {
        parts.filter(FilterStage::Content, filter::HeadFilter(conf.clone()));
        parts.filter(FilterStage::Inclusion, filter::BodyFilter(conf.clone()));
        parts.settings.set(&SETTINGS, conf);
    }
}

/// The variables of this module.
const BUILTINS: &[Builtin] = builtins! {
    /// Current local time, in the format set by the SSI command `config`.
    "date_local" => |r, out| date(r, false, out);
    /// Current time in GMT, in the format set by the SSI command `config`.
    "date_gmt" => |r, out| date(r, true, out);
};

fn date(request: &Request, gmt: bool, out: &mut Vec<u8>) -> bool {
    let clock = nowait_runtime::clock();
    let now = i64::try_from(clock.unix_seconds()).unwrap_or(i64::MAX);
    let format =
        request.state().get(&TIME_FORMAT_SET).and_then(Option::as_deref).unwrap_or(TIME_FORMAT);
    let text = if gmt {
        strftime::format(format, now, 0, "GMT")
    } else {
        let zone = nowait_sys::localtime::zone_name(now);
        strftime::format(format, now, clock.utc_offset_seconds(), &zone)
    };
    out.extend_from_slice(&text);
    true
}

/// A command failed; the reason is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CommandError;

/// State shared by all pages of a main request.
#[derive(Default)]
pub struct SsiState {
    variables: Vec<(Vec<u8>, Bytes)>,
    blocks: Vec<(Vec<u8>, BytesMut)>,
    block_bytes: usize,
    /// Groups of the last expression that matched.
    captures: Captures,
}

/// A limit of [`SsiState`] that was reached.
#[derive(Debug, Clone, Copy)]
struct LimitExceeded(&'static str, usize);

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} {} of SSI commands", self.1, self.0)
    }
}

impl SsiState {
    /// Appends the value of a variable or of a group; false if there is none.
    fn append(&self, name: &[u8], out: &mut Vec<u8>) -> bool {
        if let [digit @ b'0'..=b'9'] = name
            && let Some(group) = self.captures.group(usize::from(digit - b'0'))
        {
            out.extend_from_slice(group);
            return true;
        }
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| out.extend_from_slice(value)).is_some()
    }

    fn set(&mut self, name: Vec<u8>, value: Bytes) -> Result<(), LimitExceeded> {
        if let Some((_, old)) = self.variables.iter_mut().find(|(known, _)| *known == name) {
            *old = value;
            return Ok(());
        }
        if self.variables.len() == VARIABLES_MAX {
            return Err(LimitExceeded("variables", VARIABLES_MAX));
        }
        self.variables.push((name, value));
        Ok(())
    }

    fn begin_block(&mut self, name: Vec<u8>) -> Result<(), LimitExceeded> {
        self.count_block(name.len() + 1)?;
        self.blocks.push((name, BytesMut::new()));
        Ok(())
    }

    fn extend_block(&mut self, text: &[u8]) -> Result<(), LimitExceeded> {
        self.count_block(text.len())?;
        if let Some((_, block)) = self.blocks.last_mut() {
            block.extend_from_slice(text);
        }
        Ok(())
    }

    fn count_block(&mut self, bytes: usize) -> Result<(), LimitExceeded> {
        if self.block_bytes + bytes > BLOCK_BYTES_MAX {
            return Err(LimitExceeded("bytes in blocks", BLOCK_BYTES_MAX));
        }
        self.block_bytes += bytes;
        Ok(())
    }

    /// The first block of this name.
    fn block(&self, name: &[u8]) -> Option<Bytes> {
        let found = self.blocks.iter().find(|(known, _)| known == name);
        found.map(|(_, text)| Bytes::copy_from_slice(text))
    }
}

/// How `echo` writes values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    None,
    Url,
    Entity,
}

/// Part of a condition that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BranchKind {
    /// `if` or `elif`
    If,
    /// `else`
    Else,
}

/// A body whose commands are executed while it is sent.
pub struct SsiBody {
    pull: Pull,
    scanner: Scanner,
    /// The rest of the last piece.
    input: Bytes,
    ended: bool,
    /// The request in its state at the page's beginning, for variables and subrequests.
    request: Box<Request>,
    silent: bool,
    error_message: Bytes,
    encoding: Encoding,
    /// Whether text is output; otherwise a condition does not hold, or the text belongs to a block.
    writes: bool,
    /// Whether a part of the condition has held.
    chosen: bool,
    condition: Option<BranchKind>,
    in_block: bool,
    out: VecDeque<PendingOutput>,
    /// A response that a variable waits for.
    keeping: Option<PendingVariable>,
}

/// A variable that will receive the response of a subrequest.
struct PendingVariable {
    name: Vec<u8>,
    answer: LocalFuture<'static, Result<CapturedResponse, BodyError>>,
}

/// Result of such a subrequest.
enum CapturedResponse {
    Value(Bytes),
    /// The response is longer than this many bytes.
    TooLong(usize),
}

/// Pending output.
enum PendingOutput {
    /// Text that can still be extended.
    Copied(BytesMut),
    Text(Bytes),
    Include(Box<Include>),
}

impl SsiBody {
    /// Executes the commands of this body; `request` is a shadow of its request.
    fn new(conf: &SsiConf, request: Box<Request>, body: Body) -> Self {
        let value_bytes_max = usize::try_from(conf.ssi_value_length.0).unwrap_or(usize::MAX);
        Self {
            pull: Pull::new(body.safe(&*request)),
            scanner: Scanner::new(value_bytes_max),
            input: Bytes::new(),
            ended: false,
            silent: conf.ssi_silent_errors,
            request,
            error_message: Bytes::from_static(ERROR_MESSAGE),
            encoding: Encoding::Entity,
            writes: true,
            chosen: false,
            condition: None,
            in_block: false,
            out: VecDeque::new(),
            keeping: None,
        }
    }

    /// Writes a line to the error log.
    fn fail(&self, message: fmt::Arguments<'_>) -> CommandError {
        self.request.log(Level::Error, message);
        CommandError
    }

    /// Accesses the state shared by all pages of the main request.
    fn common<T>(
        &self,
        with: impl FnOnce(&mut SsiState) -> Result<T, LimitExceeded>,
    ) -> Result<T, CommandError> {
        let result = with(&mut self.request.shared().state.of(&COMMON).borrow_mut());
        result.map_err(|full| self.fail(format_args!("{full}")))
    }

    fn extend_block(&self, text: &[u8]) -> Result<(), CommandError> {
        self.common(|common| common.extend_block(text))
    }

    /// Appends a short text.
    fn write(&mut self, text: &[u8]) {
        match self.out.back_mut() {
            Some(PendingOutput::Copied(copied)) => copied.extend_from_slice(text),
            _ => self.out.push_back(PendingOutput::Copied(text.into())),
        }
    }

    fn push_include(&mut self, include: Include) {
        self.out.push_back(PendingOutput::Include(Box::new(include)));
    }

    fn includes(&self) -> usize {
        self.out.iter().filter(|out| matches!(out, PendingOutput::Include(_))).count()
    }

    /// Text of the page itself.
    fn text(&mut self, text: Bytes) {
        if !self.writes {
            if self.in_block {
                // Text that does not fit is dropped, with one message per piece.
                let _ = self.extend_block(&text);
            }
        } else if text.len() <= COPY_BYTES_MAX {
            self.write(&text);
        } else {
            self.out.push_back(PendingOutput::Text(text));
        }
    }

    /// Executes commands until one has to wait or the piece ends.
    fn scan(&mut self) {
        while self.includes() < AHEAD_MAX {
            let then = match self.scanner.next(&mut self.input) {
                None => return,
                Some(ScanItem::Text(text)) => {
                    self.text(text);
                    continue;
                }
                Some(ScanItem::Command(command)) => self.command(&command),
                Some(ScanItem::Broken(what)) => Err(self.fail(format_args!("{what}"))),
            };
            match then {
                Ok(CommandEffect::Continue) => {}
                Ok(CommandEffect::Wait) => return,
                Ok(CommandEffect::Set { name, request }) => {
                    let answer = Box::pin(kept(request));
                    self.keeping = Some(PendingVariable { name, answer });
                    return;
                }
                Err(CommandError) if self.silent => {}
                Err(CommandError) => {
                    let message = self.error_message.clone();
                    self.write(&message);
                }
            }
        }
    }

    /// Sets the variable that waits for a response, if any.
    async fn keep(&mut self) -> Result<(), BodyError> {
        let Some(keeping) = &mut self.keeping else { return Ok(()) };
        // The future stays in its place when this one is dropped.
        let kept = (&mut keeping.answer).await;
        let Some(PendingVariable { name, .. }) = self.keeping.take() else { return Ok(()) };
        let value = match kept? {
            CapturedResponse::Value(value) => value,
            CapturedResponse::TooLong(max) => {
                let shown = String::from_utf8_lossy(&name);
                let _ = self.fail(format_args!(
                    "too big subrequest response for the variable \"{shown}\", more than {max} bytes"
                ));
                Bytes::new()
            }
        };
        // Errors were logged already.
        let _ = self.common(|common| common.set(name, value));
        Ok(())
    }

    /// The next part of the first pending output; meanwhile the responses of all other subrequests
    /// progress. `None` when the first one has ended.
    async fn first(&mut self) -> Result<Option<Part>, BodyError> {
        let Some((first, others)) = self.out.make_contiguous().split_first_mut() else {
            return Ok(None);
        };
        let PendingOutput::Include(include) = first else { return Ok(None) };
        let mut part = pin!(include.next());
        poll_fn(|cx| {
            if let Poll::Ready(part) = part.as_mut().poll(cx) {
                return Poll::Ready(part);
            }
            for other in &mut *others {
                if let PendingOutput::Include(include) = other {
                    include.advance(cx);
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl BodySource for SsiBody {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            loop {
                match self.out.front_mut() {
                    Some(PendingOutput::Copied(text)) => {
                        let text = text.split().freeze();
                        self.out.pop_front();
                        return Ok(Some(Part::Bytes(text)));
                    }
                    Some(PendingOutput::Text(text)) => {
                        let text = std::mem::take(text);
                        self.out.pop_front();
                        return Ok(Some(Part::Bytes(text)));
                    }
                    Some(PendingOutput::Include(_)) => match self.first().await? {
                        Some(part) => return Ok(Some(part)),
                        None => {
                            self.out.pop_front();
                            // Many empty responses must not monopolise the loop.
                            yield_now().await;
                        }
                    },
                    None if self.keeping.is_some() => self.keep().await?,
                    None if self.ended => return Ok(None),
                    None => {
                        if self.input.is_empty() {
                            match self.pull.next().await? {
                                Some(piece) => self.input = piece,
                                None => {
                                    self.ended = true;
                                    let rest = self.scanner.finish();
                                    if !rest.is_empty() {
                                        self.text(rest);
                                    }
                                }
                            }
                        }
                        self.scan();
                        if self.out.is_empty() {
                            // Nor must a long text that produces no output.
                            yield_now().await;
                        }
                    }
                }
            }
        })
    }

    fn is_urgent(&self) -> bool {
        self.out.is_empty() && self.input.is_empty() && self.pull.is_urgent()
    }
}

/// The response of a subrequest; empty if it is an error.
async fn kept(request: Box<Request>) -> Result<CapturedResponse, BodyError> {
    let answer = subrequest::run(request).await?;
    if answer.status() >= 300 {
        return Ok(CapturedResponse::Value(Bytes::new()));
    }
    let location = answer.request().location();
    let max = location.client.subrequest_output_buffer_size.bytes();
    let value = collect(answer.into_body(), max).await?;
    Ok(value.map_or(CapturedResponse::TooLong(max), CapturedResponse::Value))
}

/// A subrequest whose response is inserted into a page.
struct Include {
    state: State,
    /// The text that replaces an empty response.
    stub: Option<Bytes>,
}

enum State {
    Running(LocalFuture<'static, Result<Answer, SubrequestError>>),
    Answered(Result<Box<Answer>, SubrequestError>),
    Body(Sequence),
}

impl Include {
    fn new(request: Box<Request>, stub: Option<Bytes>) -> Self {
        Self { state: State::Running(subrequest::run(request)), stub }
    }

    /// Advances the response.
    fn advance(&mut self, cx: &mut Context<'_>) {
        if let State::Running(running) = &mut self.state
            && let Poll::Ready(answer) = running.as_mut().poll(cx)
        {
            self.state = State::Answered(answer.map(Box::new));
        }
    }

    async fn next(&mut self) -> Result<Option<Part>, BodyError> {
        loop {
            match &mut self.state {
                State::Running(running) => {
                    let answer = running.await;
                    self.state = State::Answered(answer.map(Box::new));
                }
                State::Answered(answer) => {
                    let answer = std::mem::replace(answer, Err(SubrequestError::Closed))?;
                    self.state = State::Body(self.open(*answer));
                }
                State::Body(body) => return body.next().await,
            }
        }
    }

    /// The body of the response, or the text that replaces an empty one.
    fn open(&mut self, answer: Answer) -> Sequence {
        let Some(stub) = self.stub.take() else {
            return Sequence::new([Piece::Body(answer.into_body())]);
        };
        let shadow = subrequest::shadow(answer.request());
        let stub = Body::Bytes(stub);
        let stub = match shadow.location().settings.get(&SETTINGS).cloned() {
            Some(conf) => Body::Stream(Box::new(SsiBody::new(&conf, shadow, stub))),
            None => stub,
        };
        Sequence::new([Piece::Body(answer.into_body()), Piece::IfEmpty(stub)])
    }
}
