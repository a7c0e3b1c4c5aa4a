//! `try_files`: uses the first file that exists. nginx: `ngx_http_try_files_module`.

pub mod conf;

use nowait_conf::{Cx, Scope};
use nowait_http::files;
use nowait_http::log::Level;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::Outcome;
use nowait_http::path::Append;
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::special_pages::internal::CLOSE;
use nowait_http::trace::Trace;
use nowait_runtime::fs::FileKind;

use self::conf::{Candidate, Fallback, TryFiles, TryFilesConf};

/// This module.
pub static MODULE: Module =
    Module { rows: &[TryFilesConf::ROWS], build: Some(build), ..Module::EMPTY };

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    if let Some(try_files) = TryFilesConf::resolve(cx, chain).try_files.as_ref() {
        parts.handler(Phase::Precontent, try_files.clone());
    }
}

impl Handler for TryFiles {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if !request.has_file() {
            return Step::Done(request, Outcome::status(500));
        }
        Step::wait(async move {
            let outcome = run(request, self, |_, _, _| ()).await;
            Step::of(request, outcome)
        })
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        Box::pin(async move {
            trace.by = "try_files";
            if !request.has_file() {
                return HandlerExplanation::Run;
            }
            let tried = |path: &[u8], candidate: &Candidate, found: Option<FileKind>| {
                trace.file_of_kind(path, candidate.directory, found);
            };
            match run(request, self, tried).await {
                Some(outcome) => HandlerExplanation::Done(outcome),
                None => HandlerExplanation::Next,
            }
        })
    }
}

/// Tries the candidates in order; changes the URI to the first one that exists and continues, or returns
/// the fallback. `tried` is called with each candidate and its file type.
async fn run(
    request: &mut Request,
    try_files: &TryFiles,
    mut tried: impl FnMut(&[u8], &Candidate, Option<FileKind>),
) -> Option<Outcome> {
    let current = request.current().clone();
    let location = current.conf.location(request.location_id());
    let append = location.path.append;

    let mut base = Vec::new();
    location.path.append_root(request, &mut base);
    for candidate in &*try_files.candidates {
        let mut name = Vec::new();
        candidate.name.append(request, &mut name);
        if let Append::After(len) = append {
            // The name usually begins with $uri. The part of it that the location matched is not in
            // the file system.
            if candidate.name.literal().is_none()
                && request.uri().path.get(..len) == name.get(..len)
            {
                name.drain(..len);
            }
        }
        let mut path = base.clone();
        path.extend_from_slice(&name);
        let found = look_up(request, &path).await;
        tried(&path, candidate, found);
        if found.is_some_and(|kind| (kind == FileKind::Directory) == candidate.directory) {
            adopt(request, append, name, candidate);
            return None;
        }
    }
    Some(match &try_files.fallback {
        Fallback::Status(CLOSE) => Outcome::Close,
        Fallback::Status(status) => Outcome::status(*status),
        Fallback::Target(target) => Outcome::redirect(&request.evaluate(target)),
    })
}

/// The file type at a path.
async fn look_up(request: &Request, path: &[u8]) -> Option<FileKind> {
    match files::stat(request, path).await {
        Ok(found) => Some(found.kind),
        Err(error) => {
            if !error.is_not_found() {
                request.log(Level::Crit, format_args!("{}", error.describe(path)));
            }
            None
        }
    }
}

fn adopt(request: &mut Request, append: Append, mut name: Vec<u8>, candidate: &Candidate) {
    // nginx differs: without the slash, it redirects to this location again.
    if candidate.directory && candidate.name.literal().is_some_and(|name| name.is_empty()) {
        let has_slash = matches!(append, Append::After(len)
            if request.uri().path.get(..len).is_some_and(|part| part.ends_with(b"/")));
        name.extend((!has_slash).then_some(b'/'));
    }
    match append {
        Append::Uri => {
            request.replace_path(name);
        }
        Append::After(len) => {
            let mut path = request.replace_path(Vec::new());
            path.truncate(len);
            path.extend_from_slice(&name);
            request.replace_path(path);
        }
        Append::Nothing if !candidate.directory => {
            request.set_path_of_file(name);
        }
        Append::Nothing => {}
    }
}
