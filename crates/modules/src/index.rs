//! `index`: the file served for a directory. nginx: `ngx_http_index_module`.

use std::sync::Arc;

use nowait_conf::{Cx, Diagnostic, Node, Scope, Setting, arity};
use nowait_http::conf::complex;
use nowait_http::files::{self, OpenError};
use nowait_http::log::Level;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::{Outcome, RedirectTarget};
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::trace::Trace;
use nowait_http::variables::complex::Complex;
use nowait_message::Method;
use nowait_runtime::fs::FileKind;

nowait_conf::directives! {
    /// The index file of a directory.
    #[derive(Debug)]
    module "index";
    pub struct IndexConf with IndexConfLayer;

    /// Files to look for in a directory, in this order. A last entry that begins with a slash is
    /// used without a check.
    index: IndexNames = "index.html", in HTTP | SERVER | LOCATION, args "file ...";
}

/// `index`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexNames(pub Vec<Complex>);

impl Setting for IndexNames {
    const ARITY: arity::Arity = arity::at_least(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let last = node.args.len().saturating_sub(1);
        let mut files = Vec::with_capacity(node.args.len());
        for (n, word) in node.args.iter().enumerate() {
            if word.text.is_empty() {
                return Err(word.error("index \"\" in \"index\" directive is invalid"));
            }
            if word.text.first() == Some(&b'/') && n != last {
                cx.report(
                    Diagnostic::warn(
                        "only the last index in \"index\" directive should be absolute",
                    )
                    .at(word.span),
                );
            }
            files.push(complex(word, cx)?);
        }
        Ok(Self(files))
    }

    /// Several `index` directives of one block add up.
    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        self.0.extend(Self::parse(node, cx)?.0);
        Ok(())
    }
}

/// This module.
pub static MODULE: Module =
    Module { rows: &[IndexConf::ROWS], build: Some(build), ..Module::EMPTY };

/// The index files of a location.
struct IndexFiles(Arc<IndexConf>);

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    parts.handler(Phase::Content, IndexFiles(IndexConf::resolve(cx, chain)));
}

impl Handler for IndexFiles {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if !wanted(request) {
            return Step::Next(request);
        }
        Step::wait(async move {
            let outcome = run(request, &self.0, |_, _| ()).await;
            Step::of(request, outcome)
        })
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        Box::pin(async move {
            trace.by = "index";
            if !wanted(request) {
                return HandlerExplanation::Next;
            }
            match run(request, &self.0, |path, found| trace.file(path, found)).await {
                Some(outcome) => HandlerExplanation::Done(outcome),
                None => HandlerExplanation::Next,
            }
        })
    }
}

/// Whether the request is for a directory.
fn wanted(request: &Request) -> bool {
    request.uri().path.last() == Some(&b'/')
        && matches!(request.method(), Method::Get | Method::Head | Method::Post)
}

/// Redirects internally to the first index file that exists; declines if there is none. `tried` is called
/// with each file and whether it exists.
async fn run(
    request: &mut Request,
    conf: &IndexConf,
    mut tried: impl FnMut(&[u8], bool),
) -> Option<Outcome> {
    let mut directory = Vec::new();
    request.append_file(&mut directory);
    let mut directory_tested = false;
    for index in &conf.index.0 {
        let mut name = Vec::new();
        index.append(request, &mut name);
        if name.first() == Some(&b'/') {
            return Some(to(request, name));
        }
        let mut path = directory.clone();
        path.extend_from_slice(&name);
        let error = match files::stat(request, &path).await {
            Ok(_) => {
                tried(&path, true);
                let mut uri = request.uri().path.clone();
                uri.extend_from_slice(&name);
                return Some(to(request, uri));
            }
            Err(error) => error,
        };
        tried(&path, false);
        if error.is_symlink() {
            return Some(Outcome::status(403));
        }
        if error.is_denied() || error.is_bad_name() {
            return Some(refuse(request, &path, &error));
        }
        if !directory_tested {
            if let Some(outcome) = test_directory(request, &directory, &path).await {
                return Some(outcome);
            }
            directory_tested = true;
        }
        if !error.is_not_found() {
            return Some(error.answer(request, &path));
        }
    }
    None
}

fn to(request: &Request, path: Vec<u8>) -> Outcome {
    Outcome::Redirect(RedirectTarget::Uri { path, args: request.uri().args.clone() })
}

/// Distinguishes a missing index file from a missing directory. nginx: `ngx_http_index_test_dir`.
async fn test_directory(request: &mut Request, directory: &[u8], file: &[u8]) -> Option<Outcome> {
    let shown = match directory {
        [rest @ .., b'/'] if !rest.is_empty() => rest,
        all => all,
    };
    match files::stat(request, shown).await {
        Ok(found) if found.kind == FileKind::Directory => None,
        Ok(_) => {
            request.log(
                Level::Alert,
                format_args!("\"{}\" is not a directory", String::from_utf8_lossy(shown)),
            );
            Some(Outcome::status(500))
        }
        Err(error) if error.is_symlink() => Some(Outcome::status(403)),
        // The directory may be searched: requests for its files would be allowed.
        Err(error) if error.is_denied() => None,
        Err(error) if error.is_not_found() => Some(refuse(request, file, &error)),
        Err(error) => Some(error.answer(request, shown)),
    }
}

fn refuse(request: &Request, path: &[u8], error: &OpenError) -> Outcome {
    let path = String::from_utf8_lossy(path);
    if error.is_denied() {
        request.log(Level::Error, format_args!("\"{path}\" is forbidden {}", error.errno()));
        return Outcome::status(403);
    }
    if request.location().pages.log_not_found {
        request.log(Level::Error, format_args!("\"{path}\" is not found {}", error.errno()));
    }
    Outcome::status(404)
}
