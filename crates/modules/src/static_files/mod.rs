//! Files of the document root. nginx: `ngx_http_static_module`.

pub mod conf;
mod precompressed;

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::files::{self, OpenError, OpenedFile};
use nowait_http::log::Level;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::trace::Trace;
use nowait_message::Method;
use nowait_message::escape;
use nowait_runtime::fs::FileKind;

use self::conf::{BrotliStaticConf, GzipStaticConf, ZstdStaticConf};

/// This module.
pub static MODULE: Module = Module {
    rows: &[GzipStaticConf::ROWS, BrotliStaticConf::ROWS, ZstdStaticConf::ROWS],
    build: Some(build),
    ..Module::EMPTY
};

/// Responds with the request's file; declines URIs that end with a slash.
struct StaticFile;

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    precompressed::build(cx, chain, parts);
    parts.handler(Phase::Content, StaticFile);
}

impl Handler for StaticFile {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if !matches!(request.method(), Method::Get | Method::Head | Method::Post) {
            return Step::Done(request, Outcome::status(405));
        }
        if request.uri().path.last() == Some(&b'/') {
            return Step::Next(request);
        }
        let mut path = request.take_path();
        request.append_file(&mut path);
        if let Some(found) = files::resident(request, &path) {
            let outcome = answer(request, path, found);
            return Step::Done(request, outcome);
        }
        Step::start(async move {
            let opened = files::get_other(request, &path).await;
            let outcome = answer(request, path, opened);
            Step::Done(request, outcome)
        })
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        Box::pin(async move {
            trace.by = "root alias";
            if request.uri().path.last() != Some(&b'/') {
                let mut path = Vec::new();
                request.append_file(&mut path);
                let found = files::stat(request, &path).await.is_ok();
                trace.file(&path, found);
            }
            HandlerExplanation::Run
        })
    }
}

fn answer(request: &mut Request, path: Vec<u8>, opened: Result<OpenedFile, OpenError>) -> Outcome {
    let outcome = match opened {
        Ok(file) => respond(request, &path, file),
        Err(error) => error.answer(request, &path),
    };
    request.give_path(path);
    outcome
}

fn respond(request: &mut Request, path: &[u8], file: OpenedFile) -> Outcome {
    match kind(&file) {
        FileKind::Directory => return Outcome::moved(301, with_slash(request)),
        FileKind::File => {}
        _ => return not_regular(request, path),
    }
    if request.method() == Method::Post {
        return Outcome::status(405);
    }
    files::whole(request, file).into()
}

fn kind(opened: &OpenedFile) -> FileKind {
    opened.metadata().map_or(FileKind::Other, |metadata| metadata.kind)
}

/// The response for a path that is neither a file nor a directory.
fn not_regular(request: &Request, path: &[u8]) -> Outcome {
    let path = String::from_utf8_lossy(path);
    request.log(Level::Crit, format_args!("\"{path}\" is not a regular file"));
    Outcome::status(404)
}

/// The URI with a slash at its end, escaped, and the query string.
fn with_slash(request: &Request) -> Bytes {
    let mut to = Vec::with_capacity(request.uri().path.len() + 1);
    escape::push_uri(&mut to, escape::Set::Uri, &request.uri().path);
    to.push(b'/');
    if !request.uri().query().is_empty() {
        to.push(b'?');
        to.extend_from_slice(request.uri().query());
    }
    to.into()
}
