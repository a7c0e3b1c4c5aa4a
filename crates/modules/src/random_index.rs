//! `random_index`: serves a random file of a directory. nginx: `ngx_http_random_index_module`.

use nowait_conf::{Cx, Scope};
use nowait_http::directories::{ENTRIES_MAX, refuse};
use nowait_http::files;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::{Outcome, RedirectTarget};
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::trace::Trace;
use nowait_runtime::fs::{self, FileKind, Name, ReadDirOptions};

nowait_conf::directives! {
    /// A randomly chosen file of a directory.
    #[derive(Debug)]
    module "random_index";
    pub struct RandomIndexConf with RandomIndexConfLayer;

    /// Serves a random file of a directory. Takes precedence over `index`.
    random_index: bool = "off", in LOCATION, args "on | off";
}

/// This module.
pub static MODULE: Module =
    Module { rows: &[RandomIndexConf::ROWS], build: Some(build), ..Module::EMPTY };

/// Chooses a file.
struct RandomIndex;

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    if RandomIndexConf::resolve(cx, chain).random_index {
        parts.handler(Phase::Content, RandomIndex);
    }
}

impl Handler for RandomIndex {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        if request.uri().path.last() != Some(&b'/') {
            return Step::Next(request);
        }
        Step::wait(async move {
            let outcome = run(request).await;
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

/// Redirects internally to a randomly chosen regular file of the directory; declines if there is
/// none. Hidden files are left out.
async fn run(request: &mut Request) -> Option<Outcome> {
    let mut path = Vec::new();
    request.append_file(&mut path);
    let symlinks = files::symlinks(request, &path);
    let name = Name { path, symlinks };
    let io = request.io();
    let options = ReadDirOptions { entries_max: ENTRIES_MAX, metadata: true };
    let listing = match fs::read_dir(&io, &name, &options).await {
        Ok(listing) => listing,
        Err(error) => return Some(refuse(request, &name.path, &error)),
    };
    let files: Vec<&[u8]> = listing
        .entries
        .iter()
        .filter(|entry| {
            // Symbolic links count as their targets.
            let kind = entry.metadata.as_ref().map_or(entry.kind, |meta| meta.kind);
            kind == FileKind::File && !entry.name.starts_with(b".")
        })
        .map(|entry| &entry.name[..])
        .collect();
    let chance = u128::from_le_bytes(nowait_http::random::bytes());
    let at = usize::try_from(chance % files.len().max(1) as u128).unwrap_or_default();
    let name = files.get(at)?;
    let mut to = request.uri().path.clone();
    to.extend_from_slice(name);
    Some(Outcome::Redirect(RedirectTarget::Uri { path: to, args: request.uri().args.clone() }))
}
