//! `report_uploads`: the response that describes an upload.

use std::sync::Arc;

use bytes::Bytes;
use nowait_http::module::{Handler, Step};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, Head, Response};
use nowait_http::variables::complex::Complex;
use nowait_message::Method;

use super::conf::ProgressConf;
use super::zone::Progress;
use super::{REPORTED, callback, identifier, zone};

/// The state of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadState {
    Starting,
    Uploading,
    Error,
    Done,
}

/// All states, in their order.
pub(super) const STATES: [UploadState; 4] =
    [UploadState::Starting, UploadState::Uploading, UploadState::Error, UploadState::Done];

impl UploadState {
    /// The name in reports and in the configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Uploading => "uploading",
            Self::Error => "error",
            Self::Done => "done",
        }
    }

    fn of(progress: Option<Progress>) -> Self {
        match progress {
            None => Self::Starting,
            Some(progress) if progress.status >= 400 => Self::Error,
            Some(progress) if progress.finished => Self::Done,
            Some(progress) if progress.length == 0 && progress.received == 0 => Self::Starting,
            Some(_) => Self::Uploading,
        }
    }
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgressFormat {
    /// JavaScript.
    Java,
    /// JSON.
    Json,
    /// JSON in a function call.
    Jsonp,
}

/// The report for a state.
#[derive(Clone)]
pub(super) enum Template {
    /// In one of the formats.
    Standard(ProgressFormat),
    /// As the configuration says.
    Own(Complex),
}

/// Responds with the state of an upload.
pub(super) struct ProgressReport {
    pub zone: usize,
    pub conf: Arc<ProgressConf>,
    /// By state.
    pub templates: [Template; STATES.len()],
    pub content_type: Bytes,
}

impl Handler for ProgressReport {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let outcome = self.respond(request);
        Step::of(request, outcome)
    }
}

impl ProgressReport {
    /// The response; `None`: the request has no identifier.
    fn respond(&self, request: &mut Request) -> Option<Outcome> {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Some(Outcome::status(405));
        }
        let id = identifier(request, &self.conf)?;
        let progress = zone(request, self.zone, |zone| zone.uploads.progress(id)).flatten();
        let state = UploadState::of(progress);
        let progress = progress.unwrap_or_default();
        request.state_mut().set(&REPORTED, progress);
        let text = match &self.templates[state as usize] {
            Template::Own(text) => request.evaluate(text),
            Template::Standard(format) => {
                let parameter = &self.conf.upload_progress_jsonp_parameter;
                let callback = callback(request, parameter.as_bytes()).unwrap_or_default();
                write(*format, state, progress, callback).into()
            }
        };
        let mut head = Head::new(200);
        head.set_content_type(self.content_type.clone());
        head.content_length = Some(text.len() as u64);
        head.set("Expires", Bytes::from_static(b"Thu, 01 Jan 1970 00:00:01 GMT"));
        head.set("Cache-Control", Bytes::from_static(b"no-cache"));
        Some(Response { head, body: Body::Bytes(text) }.into())
    }
}

/// A report in one of the formats, with the spaces of the module: some programs take it apart by patterns.
fn write(
    format: ProgressFormat,
    state: UploadState,
    progress: Progress,
    callback: &[u8],
) -> Vec<u8> {
    let (before, after) = match format {
        ProgressFormat::Java => (&b"new Object"[..], ")\r\n"),
        ProgressFormat::Json => (&b""[..], "\r\n"),
        ProgressFormat::Jsonp => (callback, ");\r\n"),
    };
    let (open, quote) = match format {
        ProgressFormat::Java => ("(", '\''),
        ProgressFormat::Json => ("", '"'),
        ProgressFormat::Jsonp => ("(", '"'),
    };
    let member = |name: &str, value: u64| format!(", {quote}{name}{quote} : {value}");
    let members = match state {
        UploadState::Starting | UploadState::Done => String::new(),
        UploadState::Error => member("status", progress.status.into()),
        UploadState::Uploading => {
            member("received", progress.received) + &member("size", progress.length)
        }
    };
    let mut out = before.to_vec();
    let name = state.name();
    let object = format!("{open}{{ {quote}state{quote} : {quote}{name}{quote}{members} }}{after}");
    out.extend_from_slice(object.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let progress = Progress { length: 20, received: 10, status: 413, finished: false };
        let text = |format, state| {
            String::from_utf8(write(format, state, progress, b"tell")).expect("it is text")
        };
        assert_eq!(
            text(ProgressFormat::Java, UploadState::Starting),
            "new Object({ 'state' : 'starting' })\r\n"
        );
        assert_eq!(
            text(ProgressFormat::Java, UploadState::Error),
            "new Object({ 'state' : 'error', 'status' : 413 })\r\n"
        );
        let json: serde_json::Value =
            serde_json::from_str(&text(ProgressFormat::Json, UploadState::Uploading))
                .expect("it is JSON");
        let expected = serde_json::json!({ "state": "uploading", "received": 10, "size": 20 });
        assert_eq!(json, expected);
        assert_eq!(text(ProgressFormat::Json, UploadState::Done), "{ \"state\" : \"done\" }\r\n");
        assert_eq!(
            text(ProgressFormat::Jsonp, UploadState::Done),
            "tell({ \"state\" : \"done\" });\r\n"
        );
    }

    #[test]
    fn states() {
        let state = |length, received, status, finished| {
            UploadState::of(Some(Progress { length, received, status, finished }))
        };
        assert_eq!(UploadState::of(None), UploadState::Starting);
        assert_eq!(state(0, 0, 0, false), UploadState::Starting);
        assert_eq!(state(0, 1, 0, false), UploadState::Uploading);
        assert_eq!(state(1, 0, 0, false), UploadState::Uploading);
        assert_eq!(state(1, 0, 413, true), UploadState::Error);
        assert_eq!(state(1, 1, 302, true), UploadState::Done);
    }
}
