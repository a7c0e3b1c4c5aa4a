//! `mp4`: parts of MP4 files by time. nginx: `ngx_http_mp4_module`.
//!
//! The `moov` atom is read into memory and shortened there (`nowait-mp4`); the content is sent from the
//! file.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Msec, Node, Size, Value, ValueError};
use nowait_http::files::{self, OpenError};
use nowait_http::log::Level;
use nowait_http::module::{Handler, HandlerExplanation, Module, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, FileBody, LocalFuture, Part, Response};
use nowait_http::trace::Trace;
use nowait_http::variables::core::argument_value;
use nowait_message::Method;
use nowait_mp4::{Clip, Layout, MovieHead, Scan, ScanStep as Next};
use nowait_runtime::fs::{File, FileKind};
use nowait_runtime::pool::{Class, Op, PoolError};

/// This module.
pub static MODULE: Module = Module { rows: &[MP4_ROWS, Mp4Conf::ROWS], ..Module::EMPTY };

nowait_conf::rows! {
    static MP4_ROWS, module "mp4";

    /// Responds with files. With the arguments `start` and `end`, times in seconds with an optional
    /// fraction, the response is the part of an MP4 file between them; each may be absent. Players then
    /// seek without having the whole file, and `start=0` moves the table of contents to the beginning
    /// of files that have it at the end. An `end` that is not after `start` is ignored. Parts support
    /// ranges. Metadata and edit lists of the file are not in parts.
    "mp4" => mp4, in LOCATION, take none(), inheritance Own, args "";
}

nowait_conf::directives! {
    /// Limits for reading MP4 files.
    #[derive(Debug)]
    module "mp4";
    pub struct Mp4Conf with Mp4ConfLayer;

    /// Number of bytes read at once from an MP4 file in search of its table of contents (the `moov`
    /// atom).
    mp4_buffer_size: Size = "512k", in HTTP | SERVER | LOCATION, args "size";
    /// Maximum size of the table of contents, which is read into memory. If a larger one is needed, the
    /// response is 500.
    mp4_max_buffer_size: Size = "10m", in HTTP | SERVER | LOCATION, args "size";
    /// Makes parts begin with a key frame. Frames between it and the start time are sent, but an edit
    /// list hides them. With `off`, players may show nothing, or broken pictures, until the next key
    /// frame.
    mp4_start_key_frame: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Limits the rate of responses with MP4 files to the average rate of the file times the factor;
    /// `on` is the factor 1.1. It replaces `limit_rate`. If the file's rate can't be determined, there
    /// is no limit.
    mp4_limit_rate: Factor = "off", in HTTP | SERVER | LOCATION, args "on | off | factor";
    /// Playing time that is sent before `mp4_limit_rate` applies.
    mp4_limit_rate_after: Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
}

/// A factor in thousandths; `None`: off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Factor(Option<NonZeroU64>);

impl Value for Factor {
    fn from_word(text: &[u8]) -> Result<Self, ValueError> {
        let factor = match text {
            b"off" => return Ok(Self(None)),
            b"on" => Some(1100),
            text => thousandths(text),
        };
        let factor = factor.and_then(NonZeroU64::new).map(Some).map(Self);
        factor
            .ok_or_else(|| ValueError::value().expected("\"on\", \"off\" or a factor such as 1.5"))
    }
}

fn mp4(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set_content(cx, node, |cx, chain, _| Mp4(Mp4Conf::resolve(cx, chain)));
    Ok(())
}

/// Maximum size of a `moov` atom that is cut on the loop, in about 0.1 ms; larger atoms are cut in the pool
/// `compute`.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Responds with the request's file, or a part of it.
struct Mp4(Arc<Mp4Conf>);

impl Handler for Mp4 {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Step::Done(request, Outcome::status(405));
        }
        if request.uri().path.last() == Some(&b'/') {
            return Step::Next(request);
        }
        Step::start(async move {
            let mut path = request.take_path();
            request.append_file(&mut path);
            let outcome = match files::open(request, &path).await {
                Ok(file) if self.needs_nothing(request) => {
                    is_file(&file).then(|| files::whole(request, file).into())
                }
                // Boxed: most requests don't need it.
                opened => Box::pin(self.answer(request, &path, opened)).await,
            };
            request.give_path(path);
            Step::of(request, outcome)
        })
    }

    fn explain<'a>(
        &'a self,
        _: &'a mut Request,
        _: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        HandlerExplanation::run()
    }
}

fn is_file(file: &File) -> bool {
    file.metadata().kind == FileKind::File
}

impl Mp4 {
    /// The file is sent as it is.
    fn needs_nothing(&self, request: &Request) -> bool {
        self.0.mp4_limit_rate.0.is_none() && self.clip(request).is_none()
    }

    /// The requested part; `None` is the whole file.
    fn clip(&self, request: &Request) -> Option<Clip> {
        let argument = |name| argument_value(request, name).and_then(thousandths);
        let (start, end) = (argument(b"start"), argument(b"end").filter(|&end| end > 0));
        let start_ms = start.or(end.map(|_| 0))?;
        let length_ms = end.and_then(|end| NonZeroU64::new(end.checked_sub(start_ms)?));
        Some(Clip { start_ms, length_ms, start_key_frame: self.0.mp4_start_key_frame })
    }

    async fn answer(
        &self,
        request: &Request,
        path: &[u8],
        opened: Result<File, OpenError>,
    ) -> Option<Outcome> {
        let file = match opened {
            Ok(file) => file,
            Err(error) => return Some(error.answer(request, path)),
        };
        if !is_file(&file) {
            return None;
        }
        let clip = self.clip(request);
        let whole = files::whole(request, file.clone());
        Some(match self.head(request, &file, clip.as_ref()).await {
            Ok(None) => whole.into(),
            Ok(Some(head)) => part(whole, head).into(),
            // The rate of such a file is not known.
            Err(Failure::File(_)) if clip.is_none() => whole.into(),
            Err(failure) => {
                failure.log(request, path);
                Outcome::status(500)
            }
        })
    }

    /// The beginning of the part; `None` if the file is sent as it is. Limits the rate of the response.
    async fn head(
        &self,
        request: &Request,
        file: &File,
        clip: Option<&Clip>,
    ) -> Result<Option<MovieHead>, Failure> {
        let limit = self.0.mp4_limit_rate.0.filter(|_| request.limit_rate().is_none());
        if limit.is_none() && clip.is_none() {
            return Ok(None);
        }
        let (layout, window) = self.scan(request, file).await?;
        // Without a start time, the client gets such a file unchanged.
        let clip =
            clip.filter(|clip| !layout.moov_first || clip.start_ms > 0 || clip.length_ms.is_some());
        if limit.is_none() && clip.is_none() {
            return Ok(None);
        }
        let moov = window.moov(request, file, &layout).await?;
        if let Some(factor) = limit
            && let Some(duration_ms) = nowait_mp4::duration_ms(&moov)
        {
            self.limit(request, layout.size, duration_ms, factor);
        }
        let Some(clip) = clip else { return Ok(None) };
        if moov.len() <= INLINE_BYTES_MAX {
            return Ok(Some(nowait_mp4::cut(&layout, &moov, clip)?));
        }
        let clip = *clip;
        let work = move || nowait_mp4::cut(&layout, &moov, &clip);
        let pool = request.current().compute_pool();
        let cut = pool.run(Class::Bulk, request.client().number, Op::Blocking, work);
        Ok(Some(cut.await.map_err(Failure::Pool)??))
    }

    /// Finds the parts of a file.
    async fn scan(&self, request: &Request, file: &File) -> Result<(Layout, Window), Failure> {
        let moov_bytes_max = self.0.mp4_max_buffer_size.max(self.0.mp4_buffer_size).0;
        let mut scan = Scan::new(file.metadata().size, moov_bytes_max);
        // Data read when the file was opened.
        let mut window = Window { at: 0, bytes: file.head().clone() };
        loop {
            match scan.step(window.at, &window.bytes)? {
                Next::Found(layout) => return Ok((layout, window)),
                Next::Read { offset, len } => {
                    let len = len.max(self.0.mp4_buffer_size.bytes());
                    window = Window { at: offset, bytes: read(request, file, offset, len).await? };
                }
            }
        }
    }

    /// Limits the rate of the response.
    fn limit(&self, request: &Request, size: u64, duration_ms: u64, factor: NonZeroU64) {
        let per_ms = |ms: u64| u128::from(size) * u128::from(ms) / u128::from(duration_ms.max(1));
        let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        // Thousandths of what is played in a second, and the milliseconds of a second: no division.
        request.set_limit_rate(Some(bytes(per_ms(factor.get())).max(1)));
        request.set_limit_rate_after(Some(bytes(per_ms(self.0.mp4_limit_rate_after.0))));
    }
}

/// Bytes of a file.
struct Window {
    at: u64,
    bytes: Bytes,
}

impl Window {
    /// The data of the `moov` atom; it is read unless it is here.
    async fn moov(self, request: &Request, file: &File, layout: &Layout) -> Result<Bytes, Failure> {
        let len = usize::try_from(layout.moov.end - layout.moov.start).unwrap_or(usize::MAX);
        let at = layout.moov.start.checked_sub(self.at).and_then(|at| usize::try_from(at).ok());
        if let Some(at) = at
            && let Some(end) = at.checked_add(len)
            && end <= self.bytes.len()
        {
            return Ok(self.bytes.slice(at..end));
        }
        drop(self);
        let moov = read(request, file, layout.moov.start, len).await?;
        if moov.len() < len { Err(nowait_mp4::Mp4Error::Truncated.into()) } else { Ok(moov) }
    }
}

async fn read(request: &Request, file: &File, offset: u64, len: usize) -> Result<Bytes, Failure> {
    let io = request.io().for_client(request.client().number);
    file.read_at(&io, offset, len).await.map_err(Failure::Read)
}

/// A part of a file in place of the whole.
fn part(mut response: Response, head: MovieHead) -> Response {
    if let Body::File(file) = response.body {
        let (offset, len) = (head.content.start, head.content.end - head.content.start);
        response.head.content_length = Some(head.bytes.len() as u64 + len);
        let content = FileBody { offset, len, ..file };
        let parts = [Part::Bytes(head.bytes.into()), Part::File(content)];
        response.body = Body::Parts(VecDeque::from(parts));
    }
    response
}

/// The reason why a file could not be cut.
enum Failure {
    /// The disk's error.
    Read(io::Error),
    /// The thread pool refused the work.
    Pool(PoolError),
    /// The file, or the times.
    File(nowait_mp4::Mp4Error),
}

impl From<nowait_mp4::Mp4Error> for Failure {
    fn from(error: nowait_mp4::Mp4Error) -> Self {
        Self::File(error)
    }
}

impl Failure {
    fn log(&self, request: &Request, path: &[u8]) {
        let shown = String::from_utf8_lossy(path);
        match self {
            Self::Read(error) => match PoolError::of(error) {
                Some(overflow) => request.log(Level::Error, format_args!("{overflow}")),
                None => {
                    let errno = files::errno(error);
                    request.log(Level::Crit, format_args!("read() \"{shown}\" failed {errno}"));
                }
            },
            Self::Pool(error) => request.log(Level::Error, format_args!("{error}")),
            Self::File(error) => request.log(Level::Error, format_args!("{}", error.of(&shown))),
        }
    }
}

/// A decimal number in thousandths; further digits are ignored. nginx: `ngx_http_mp4_atofp`.
fn thousandths(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = match text.iter().position(|&byte| byte == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b""[..]),
    };
    if text.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let places = [0, 1, 2].map(|place| fraction.get(place).unwrap_or(&b'0'));
    let digit = |value: i64, digit: &u8| value.checked_mul(10)?.checked_add((digit - b'0').into());
    let value = whole.iter().chain(places).try_fold(0_i64, digit)?;
    u64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_decimal_places() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("1.5", Some(1500)),
            (".25", Some(250)),
            ("7.", Some(7000)),
            (".", Some(0)),
            ("12.3456789", Some(12345)),
            ("9223372036854775.807", Some(i64::MAX as u64)),
            ("9223372036854775.808", None),
            ("99999999999999999999999", None),
            ("", None),
            ("-1", None),
            ("1.2.3", None),
            ("1e3", None),
        ] {
            assert_eq!(thousandths(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn factors_are_positive() {
        let factor = |text: &[u8]| Factor::from_word(text).ok().map(|factor| factor.0);
        assert_eq!(factor(b"off"), Some(None));
        assert_eq!(factor(b"on"), Some(NonZeroU64::new(1100)));
        assert_eq!(factor(b"2.5"), Some(NonZeroU64::new(2500)));
        for wrong in [&b"0"[..], b"", b"-1", b"x"] {
            assert_eq!(factor(wrong), None);
        }
    }
}
