//! The directives of the upload progress module.
//!
//! A location may name a zone that is defined later, so zones are numbered when they are first named and resolved
//! when `http` ends.

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node, Scope, Seconds, Size, Span, Value, Word};
use nowait_http::module::set_content;
use nowait_http::variables::complex::Complex;
use nowait_variables::text;

use super::report::{ProgressFormat, ProgressReport, STATES, Template};
use super::zone::Uploads;

/// The smallest zone, in bytes. nginx: eight pages.
const ZONE_BYTES_MIN: u64 = 8 * 4096;

nowait_conf::rows! {
    pub static PROGRESS_ROWS, module "upload_progress";

    /// Defines a zone that tracks uploads by their identifiers. An upload takes 256 bytes if its identifier has at
    /// most 56, so `1m` tracks 4096. If the zone is full, the finished upload whose time ends first is forgotten;
    /// while all of its uploads are in progress, further ones are received without being tracked, and the error log
    /// says so. Reloads keep the zone while its name and size stay the same.
    "upload_progress" => upload_progress, in HTTP, take exactly(2), args "zone size";
    /// Tracks the uploads of a location in a zone, and remembers them for a time after they have finished. The
    /// client gives each POST request an identifier, as the header field `X-Progress-ID` or as the argument of that
    /// name, and asks the location with `report_uploads` for it. Identifiers have at most 255 bytes. A report
    /// shows the numbers to everyone who knows the identifier, so clients should make random ones.
    ///
    /// Nowait differs: PUT and PATCH are tracked, too; all handlers are suitable, whether they receive the content
    /// as a whole or pass it on while it arrives; an identifier that another upload in progress has is not an error
    /// of the request, which is received without being tracked; and after its end an identifier can be used again.
    "track_uploads" => track_uploads, in HTTP | SERVER | LOCATION, take exactly(2), inheritance Value, args "zone timeout";
    /// Responds with the state of the upload whose identifier the request has: `starting` (or unknown), `uploading`
    /// with what was `received` and the `size` of the whole, `error` with its `status`, or `done`. A request without
    /// an identifier is handled as if the directive were absent. The location's own requests are not tracked.
    ///
    /// Nowait differs: the size of an upload whose client does not state its length is 0, rather than -1.
    "report_uploads" => report_uploads, in SERVER | LOCATION, take exactly(1), inheritance Own, args "zone";
    /// Sets the media type of reports. The directives that choose a format set it, too.
    "upload_progress_content_type" => content_type, in HTTP | SERVER | LOCATION, take exactly(1), inheritance Value, args "type";
    /// Sets the report for one state. The text can contain variables, those of the module among them. States that
    /// a block does not set are inherited.
    "upload_progress_template" => template, in HTTP | SERVER | LOCATION, take exactly(2), inheritance Value, args "starting | uploading | error | done text";
    /// Makes reports JavaScript that the client evaluates: `new Object({ 'state' : 'done' })`, as `text/javascript`.
    "upload_progress_java_output" => java_output, in HTTP | SERVER | LOCATION, take none(), inheritance Value, args "";
    /// Makes reports JSON: `{ "state" : "uploading", "received" : 1024, "size" : 4096 }`, as `application/json`.
    "upload_progress_json_output" => json_output, in HTTP | SERVER | LOCATION, take none(), inheritance Value, args "";
    /// Makes reports JSON within a call of the function that the argument `callback` names, as
    /// `application/javascript`. Without any directive reports are the same, as `text/javascript`.
    "upload_progress_jsonp_output" => jsonp_output, in HTTP | SERVER | LOCATION, take none(), inheritance Value, args "";
}

nowait_conf::directives! {
    /// Names in requests.
    #[derive(Debug)]
    module "upload_progress";
    pub struct ProgressConf with ProgressConfLayer;

    /// Sets the name of the header field, and of the argument, that has the identifier of an upload.
    upload_progress_header: String = "X-Progress-ID", in HTTP | SERVER | LOCATION, args "name";
    /// Sets the name of the argument that has the name of the function for `upload_progress_jsonp_output`.
    upload_progress_jsonp_parameter: String = "callback", in HTTP | SERVER | LOCATION, args "name";
}

/// What a location tracks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracking {
    /// The number of the zone.
    pub zone: usize,
    /// How long uploads are remembered, in milliseconds.
    pub timeout_ms: u64,
}

/// The last `track_uploads` of a block.
#[derive(Default)]
struct TrackLayer(Option<Tracking>);

/// Whether a block has `report_uploads`.
#[derive(Default)]
struct ReportLayer(bool);

/// The reports of a block.
#[derive(Default)]
struct OutputLayer {
    templates: [Option<Template>; STATES.len()],
    content_type: Option<Bytes>,
}

/// What a location tracks. One that reports tracks only by a directive of its own.
pub(super) fn tracking(chain: &[&Scope]) -> Option<Tracking> {
    for scope in chain.iter().rev() {
        if let Some(TrackLayer(tracking)) = scope.get() {
            return *tracking;
        }
        if scope.get().is_some_and(|ReportLayer(reports)| *reports) {
            return None;
        }
    }
    None
}

/// A zone.
#[derive(Debug)]
pub(super) struct UploadZone {
    /// Name, for logs.
    pub name: Bytes,
    /// Its uploads.
    pub uploads: Arc<Uploads>,
}

/// The zones of a configuration.
#[derive(Debug, Default)]
pub(super) struct UploadZones(pub Box<[UploadZone]>);

impl UploadZones {
    /// Takes over the uploads of the previous configuration's zones with the same name and size.
    pub(super) fn adopt(&mut self, previous: &Self) {
        for zone in &mut self.0 {
            let same = |old: &&UploadZone| {
                old.name == zone.name && old.uploads.size() == zone.uploads.size()
            };
            if let Some(old) = previous.0.iter().find(same) {
                zone.uploads = old.uploads.clone();
            }
        }
    }
}

/// The zones named until now: each with the place of its name, and its size once it is defined.
#[derive(Default)]
pub(super) struct UnresolvedZones(Vec<(Bytes, Span, Option<u64>)>);

impl UnresolvedZones {
    /// Whether the configuration has none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&mut self, word: &Word) -> usize {
        self.0.iter().position(|(name, ..)| *name == word.text[..]).unwrap_or_else(|| {
            self.0.push((Bytes::copy_from_slice(&word.text), word.span, None));
            self.0.len() - 1
        })
    }

    /// The zones by number; all must have been defined.
    pub(super) fn resolve(self, cx: &mut Cx<'_>) -> UploadZones {
        let mut zones = Vec::with_capacity(self.0.len());
        for (name, span, size) in self.0 {
            if let Some(size) = size {
                zones.push(UploadZone { name, uploads: Arc::new(Uploads::new(size)) });
                continue;
            }
            let text = String::from_utf8_lossy(&name);
            let error = Diagnostic::emerg(format!("zero size shared memory zone \"{text}\""));
            cx.report(error.at(span).hint("define it with upload_progress"));
        }
        UploadZones(zones.into())
    }
}

fn upload_progress(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [name, size_word] = &node.args[..] else { return Err(node.arity_error()) };
    let Size(size) = Size::from_word(&size_word.text).map_err(|_| {
        let error = size_word.error(format!("invalid size \"{size_word}\" of zone \"{name}\""));
        error.expected("a size such as 1m")
    })?;
    if size < ZONE_BYTES_MIN {
        let error = size_word.error(format!("zone \"{name}\" is too small"));
        return Err(error.expected(format!("{}k or more", ZONE_BYTES_MIN / 1024)));
    }
    let zones = cx.global::<UnresolvedZones>();
    let at = zones.position(name);
    let zone = &mut zones.0[at];
    match zone.2 {
        Some(_) => Err(name.error(format!("zone \"{name}\" is already defined"))),
        None => {
            zone.2 = Some(size);
            Ok(())
        }
    }
}

fn track_uploads(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [name, timeout] = &node.args[..] else { return Err(node.arity_error()) };
    let Seconds(seconds) = Seconds::from_word(&timeout.text).map_err(|_| {
        timeout.error(format!("invalid timeout \"{timeout}\"")).expected("a time such as 30s")
    })?;
    let zone = cx.global::<UnresolvedZones>().position(name);
    let timeout_ms = seconds.saturating_mul(1000);
    cx.layer::<TrackLayer>().0 = Some(Tracking { zone, timeout_ms });
    Ok(())
}

fn report_uploads(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let name = node.args.first().ok_or_else(|| node.arity_error())?;
    let zone = cx.global::<UnresolvedZones>().position(name);
    cx.layer::<ReportLayer>().0 = true;
    set_content(cx, node, move |cx, chain, _| ProgressReport {
        zone,
        conf: ProgressConf::resolve(cx, chain),
        templates: STATES.map(|state| {
            inherited(chain, |output| output.templates[state as usize].clone())
                .unwrap_or(Template::Standard(ProgressFormat::Jsonp))
        }),
        content_type: inherited(chain, |output| output.content_type.clone())
            .unwrap_or_else(|| Bytes::from_static(b"text/javascript")),
    });
    Ok(())
}

/// The value of the innermost block that has one.
fn inherited<T>(chain: &[&Scope], of: impl Fn(&OutputLayer) -> Option<T>) -> Option<T> {
    chain.iter().rev().find_map(|scope| of(scope.get::<OutputLayer>()?))
}

fn content_type(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    cx.layer::<OutputLayer>().content_type = Some(Bytes::copy_from_slice(&word.text));
    Ok(())
}

fn template(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [name, word] = &node.args[..] else { return Err(node.arity_error()) };
    let state = STATES.into_iter().find(|state| state.name().as_bytes() == &name.text[..]);
    let state = state.ok_or_else(|| {
        let error = name.error(format!("unknown state \"{name}\""));
        error.expected("\"starting\", \"uploading\", \"error\" or \"done\"")
    })?;
    let text: Complex = text(word, cx)?;
    cx.layer::<OutputLayer>().templates[state as usize] = Some(Template::Own(text));
    Ok(())
}

fn java_output(cx: &mut Cx<'_>, _: &Node) -> Result<(), Diagnostic> {
    output(cx, ProgressFormat::Java, "text/javascript")
}

fn json_output(cx: &mut Cx<'_>, _: &Node) -> Result<(), Diagnostic> {
    output(cx, ProgressFormat::Json, "application/json")
}

fn jsonp_output(cx: &mut Cx<'_>, _: &Node) -> Result<(), Diagnostic> {
    output(cx, ProgressFormat::Jsonp, "application/javascript")
}

/// Sets the format of all states, and the media type.
fn output(cx: &mut Cx<'_>, format: ProgressFormat, media: &'static str) -> Result<(), Diagnostic> {
    let output = cx.layer::<OutputLayer>();
    output.templates = STATES.map(|_| Some(Template::Standard(format)));
    output.content_type = Some(Bytes::from_static(media.as_bytes()));
    Ok(())
}
