//! `flv`: Flash videos from a position on. nginx: `ngx_http_flv_module`.

use std::collections::VecDeque;

use bytes::Bytes;
use nowait_conf::{Cx, Diagnostic, Node};
use nowait_http::files;
use nowait_http::module::{Handler, HandlerExplanation, Module, Step, set_content};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Body, FileBody, LocalFuture, Part, Response};
use nowait_http::trace::Trace;
use nowait_http::variables::core::argument_value;
use nowait_message::Method;
use nowait_runtime::fs::{File, FileKind};

/// This module.
pub static MODULE: Module = Module { rows: &[FLV_ROWS], ..Module::EMPTY };

nowait_conf::rows! {
    static FLV_ROWS, module "flv";

    /// Responds with files. With the argument `start`, a number of bytes, the response is the header of a
    /// Flash video and the rest of the file from there on; players ask for the position of a key frame.
    /// A position that is not in the file is ignored.
    "flv" => flv, in LOCATION, take none(), inheritance Own, args "";
}

fn flv(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    set_content(cx, node, |_, _, _| Flv);
    Ok(())
}

/// The header of a file with sound and pictures, and the empty tag before the first one.
const HEADER: [u8; 13] = *b"FLV\x01\x05\0\0\0\x09\0\0\0\0";

/// Responds with the request's file.
struct Flv;

impl Handler for Flv {
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
                Ok(file) if file.metadata().kind == FileKind::File => {
                    Some(respond(request, file).into())
                }
                Ok(_) => None,
                Err(error) => Some(error.answer(request, &path)),
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

fn respond(request: &Request, file: File) -> Response {
    let size = file.metadata().size;
    let start = argument_value(request, b"start").and_then(position).filter(|&start| start < size);
    let mut response = files::whole(request, file);
    let Some(start @ 1..) = start else { return response };
    if let Body::File(file) = response.body {
        let rest = FileBody { offset: start, len: size - start, ..file };
        response.head.content_length = Some(HEADER.len() as u64 + rest.len);
        let header = Part::Bytes(Bytes::from_static(&HEADER));
        response.body = Body::Parts(VecDeque::from([header, Part::File(rest)]));
    }
    response
}

/// A number of bytes.
fn position(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}
