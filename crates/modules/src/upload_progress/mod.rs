//! `upload_progress`, `track_uploads` and `report_uploads`: how much of an upload has been received, for the page
//! that sends it. The third-party module `nginx-upload-progress` has these directives; its documentation and
//! behaviour are the source of facts.
//!
//! A handler before rewriting wraps the reader of the content, so every version of HTTP is counted, whether the
//! content is received as a whole or passed on while it arrives. The upload ends with its request.

mod conf;
mod report;
mod zone;

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::conf::HttpConf;
use nowait_http::log::Level;
use nowait_http::module::{
    Handler, HandlerExplanation, LocationBuilder, Module, Observer, Phase, Step,
};
use nowait_http::request::{BodyLength, BodyReader, ReadError, Request, RequestBody};
use nowait_http::response::LocalFuture;
use nowait_http::slots::Key;
use nowait_http::trace::{Trace, TraceSubject};
use nowait_http::variables::Builtin;
use nowait_http::variables::core::{argument_value, builtins, number, query_value};
use nowait_message::Method;

use self::conf::{ProgressConf, Tracking, UnresolvedZones, UploadZone, UploadZones};
use self::zone::{ID_BYTES_MAX, Progress, TrackedUpload, Untracked, Upload};

/// This module.
pub static MODULE: Module = Module {
    rows: &[conf::PROGRESS_ROWS, ProgressConf::ROWS],
    build: Some(build),
    variables: BUILTINS,
    finish: Some(finish),
    adopt: Some(adopt),
    ..Module::EMPTY
};

/// The zones of the configuration.
static ZONES: Key<UploadZones> = Key::new();

/// The argument of a location that names the function of a report, unless it is the usual one.
static PARAMETER: Key<String> = Key::new();

/// The upload that a request is.
static TRACKED: Key<TrackedUpload> = Key::new();

/// The upload that a report is about.
static REPORTED: Key<Progress> = Key::new();

/// The usual argument that names the function of a report.
const CALLBACK: &str = "callback";

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    if cx.global::<UnresolvedZones>().is_empty() {
        return;
    }
    let conf = ProgressConf::resolve(cx, chain);
    if conf.upload_progress_jsonp_parameter != CALLBACK {
        parts.settings.set(&PARAMETER, conf.upload_progress_jsonp_parameter.clone());
    }
    let tracking = conf::tracking(chain);
    if let Some(tracking) = tracking {
        parts.handler(Phase::Rewrite, Track { tracking, conf: conf.clone() });
    }
    // A tracked request may end in any location.
    parts.observer(End { tracking, conf });
}

/// Locations may name zones that are defined later: at the end, all must be defined.
fn finish(cx: &mut Cx<'_>, conf: &mut HttpConf) {
    let zones = cx.take_global::<UnresolvedZones>().resolve(cx);
    conf.settings.set(&ZONES, zones);
}

fn adopt(conf: &mut HttpConf, previous: &HttpConf) {
    if let (Some(zones), Some(previous)) =
        (conf.settings.get_mut(&ZONES), previous.settings.get(&ZONES))
    {
        zones.adopt(previous);
    }
}

/// The variables of this module.
const BUILTINS: &[Builtin] = builtins! {
    /// Bytes of the upload's content received so far. This and the next variables are about the upload that
    /// `report_uploads` reports; in a tracked request, about itself.
    "uploadprogress_received" => |r, out| show(r, |upload| upload.received, out);
    /// Bytes of the upload's content still to come; 0 if its length is unknown.
    "uploadprogress_remaining" => |r, out| {
        show(r, |upload| upload.length.saturating_sub(upload.received), out)
    };
    /// Length of the upload's content; 0 if it is unknown.
    "uploadprogress_length" => |r, out| show(r, |upload| upload.length, out);
    /// Status of the upload's response if it is a redirect or an error, otherwise 0.
    "uploadprogress_status" => |r, out| show(r, |upload| upload.status.into(), out);
    /// The function that the argument `callback` names (`upload_progress_jsonp_parameter`). Empty if it is no
    /// name in JavaScript.
    "uploadprogress_callback" => |r, out| {
        let parameter = r.location().settings.get(&PARAMETER).map_or(CALLBACK, String::as_str);
        let Some(callback) = callback(r, parameter.as_bytes()) else { return false };
        out.extend_from_slice(callback);
        true
    };
};

fn show(request: &Request, of: impl Fn(Progress) -> u64, out: &mut Vec<u8>) -> bool {
    let state = request.state();
    let tracked = || Some(state.get(&TRACKED)?.progress());
    match state.get(&REPORTED).copied().or_else(tracked) {
        Some(progress) => number(of(progress), out),
        None => false,
    }
}

/// The function that an argument names, if it can be one: the client of a report is a browser that runs it.
// nginx differs: the module sends every text.
fn callback<'a>(request: &'a Request, parameter: &[u8]) -> Option<&'a [u8]> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$.[]".contains(byte);
    argument_value(request, parameter).filter(|name| name.iter().all(is_part))
}

/// The identifier of an upload in a request: a header field, or an argument.
fn identifier<'a>(request: &'a Request, conf: &ProgressConf) -> Option<&'a [u8]> {
    let name = conf.upload_progress_header.as_bytes();
    let field = request.head().fields().named(name).next();
    field.or_else(|| argument_value(request, name)).filter(|id| !id.is_empty())
}

/// Calls a function with a zone.
fn zone<R>(request: &Request, number: usize, with: impl FnOnce(&UploadZone) -> R) -> Option<R> {
    let UploadZones(zones) = request.current().conf.settings.get(&ZONES)?;
    zones.get(number).map(with)
}

/// The identifier of a request whose content may be tracked.
fn upload_identifier<'a>(request: &'a Request, conf: &ProgressConf) -> Option<&'a [u8]> {
    // Those of an error page may be others.
    let method = request.head().method();
    if !matches!(method, Method::Post | Method::Put | Method::Patch) || request.is_nested() {
        return None;
    }
    let id = identifier(request, conf).or_else(|| {
        let uri = request.head().uri();
        let query = &uri[uri.iter().position(|&byte| byte == b'?')? + 1..];
        query_value(query, conf.upload_progress_header.as_bytes()).filter(|id| !id.is_empty())
    })?;
    if id.len() > ID_BYTES_MAX {
        let text = format_args!(
            "the identifier of an upload is longer than {ID_BYTES_MAX} bytes: it is not tracked"
        );
        request.log(Level::Info, text);
        return None;
    }
    Some(id)
}

/// Logs why an upload is not tracked.
fn log_untracked(request: &Request, zone: &UploadZone, why: Untracked) {
    let name = String::from_utf8_lossy(&zone.name);
    match why {
        Untracked::Duplicate => request.log(
            Level::Info,
            format_args!(
                "an upload with the same identifier is in progress in upload_progress zone \
                 \"{name}\": this one is not tracked"
            ),
        ),
        Untracked::Full => request.log(
            Level::Warn,
            format_args!(
                "upload_progress zone \"{name}\" is full of uploads in progress: this one is not \
                 tracked"
            ),
        ),
    }
}

/// Begins to track uploads.
struct Track {
    tracking: Tracking,
    conf: Arc<ProgressConf>,
}

impl Handler for Track {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        // Internal redirects do not begin another upload.
        if request.state().get(&TRACKED).is_none()
            && let Some(tracked) = self.begin(request)
        {
            count_content(request, tracked.upload());
            request.state_mut().set(&TRACKED, tracked);
        }
        Step::Next(request)
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        if upload_identifier(request, &self.conf).is_some() {
            zone(request, self.tracking.zone, |zone| {
                let name = String::from_utf8_lossy(&zone.name);
                trace.by = "track_uploads";
                let text = format!("track_uploads: in zone \"{name}\"");
                trace.add(TraceSubject::Handler, None, text);
            });
        }
        Box::pin(async { HandlerExplanation::Next })
    }
}

impl Track {
    fn begin(&self, request: &Request) -> Option<TrackedUpload> {
        let id = upload_identifier(request, &self.conf)?;
        let length = match request.body_length() {
            BodyLength::None => Some(0),
            BodyLength::Known(length) => Some(length),
            BodyLength::Unknown => None,
        };
        zone(request, self.tracking.zone, |zone| {
            let begun = zone.uploads.begin(id, length, self.tracking.timeout_ms);
            begun.map_err(|why| log_untracked(request, zone, why)).ok()
        })?
    }
}

/// Counts the content of a request from now on.
fn count_content(request: &mut Request, upload: &Arc<Upload>) {
    let body = match request.take_body() {
        RequestBody::Unread(reader) => {
            RequestBody::Unread(Box::new(TrackedReader { reader, upload: upload.clone() }))
        }
        RequestBody::Memory(bytes) => {
            upload.count(bytes.len() as u64);
            RequestBody::Memory(bytes)
        }
        RequestBody::File(file) => {
            upload.count(file.len());
            RequestBody::File(file)
        }
        RequestBody::None => RequestBody::None,
    };
    request.set_body(body);
}

/// Counts the content that is read.
struct TrackedReader {
    reader: Box<dyn BodyReader>,
    upload: Arc<Upload>,
}

impl BodyReader for TrackedReader {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Bytes>, ReadError>> {
        Box::pin(async move {
            let piece = self.reader.next().await;
            if let Ok(Some(piece)) = &piece {
                self.upload.count(piece.len() as u64);
            }
            piece
        })
    }

    fn limit(&mut self, bytes: Option<usize>) {
        self.reader.limit(bytes);
    }

    fn wanted(&mut self) -> LocalFuture<'_, Result<(), ReadError>> {
        self.reader.wanted()
    }
}

/// Notes the statuses of uploads, and which ones were refused before they were tracked: their heads already say
/// that they are too large.
struct End {
    tracking: Option<Tracking>,
    conf: Arc<ProgressConf>,
}

impl Observer for End {
    fn ended(&self, request: &Request) {
        let status = request.log_status();
        if let Some(tracked) = request.state().get(&TRACKED) {
            tracked.set_status(status);
            return;
        }
        let Some(tracking) = self.tracking.filter(|_| status >= 400) else { return };
        let Some(id) = upload_identifier(request, &self.conf) else { return };
        zone(request, tracking.zone, |zone| {
            // An upload in progress with the same identifier is not the one that was refused.
            let _ = zone.uploads.refuse(id, status, tracking.timeout_ms);
        });
    }
}
