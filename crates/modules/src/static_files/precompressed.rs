//! Precompressed files: `gzip_static`, `brotli_static` and `zstd_static`. nginx:
//! `ngx_http_gzip_static_module`.
//!
//! Runs before [`StaticFile`](super::StaticFile). As there, names that the kernel has cached are opened at
//! once, and only the others wait for the pool.

use std::cmp::Reverse;

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_http::accept_encoding::{self, Coding};
use nowait_http::files::{self, OpenError, OpenedFile};
use nowait_http::log::Level;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Phase, Step};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::{Head, LocalFuture};
use nowait_http::trace::Trace;
use nowait_message::Method;
use nowait_runtime::fs::FileKind;

use super::conf::{BrotliStaticConf, GzipStaticConf, PrecompressedMode, ZstdStaticConf};

/// A coding for which a file may exist.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    /// `None`: gzip, which has its own rules.
    coding: Option<Coding>,
    setting: PrecompressedMode,
}

impl Candidate {
    fn suffix(self) -> &'static [u8] {
        match self.coding {
            Some(Coding::Brotli) => b".br",
            Some(Coding::Zstd) => b".zst",
            None => b".gz",
        }
    }

    fn name(self) -> &'static [u8] {
        self.coding.map_or(b"gzip", Coding::name)
    }

    /// Whether the client accepts the file.
    fn is_allowed(self, request: &mut Request) -> bool {
        match (self.setting, self.coding) {
            (PrecompressedMode::Off, _) => false,
            (PrecompressedMode::Always, _) => true,
            (PrecompressedMode::On, None) => {
                accept_encoding::is_accepted(request, &Head::default())
            }
            (PrecompressedMode::On, Some(coding)) => accept_encoding::weight(request, coding) > 0,
        }
    }
}

/// Codings to try, in this order.
type Candidates = [Option<Candidate>; 3];

/// Responds with a compressed file if the client accepts it and it exists.
struct Precompressed(Box<[Candidate]>);

pub(super) fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let settings = [
        (Some(Coding::Brotli), BrotliStaticConf::resolve(cx, chain).brotli_static),
        (Some(Coding::Zstd), ZstdStaticConf::resolve(cx, chain).zstd_static),
        (None, GzipStaticConf::resolve(cx, chain).gzip_static),
    ];
    let all = settings.map(|(coding, setting)| Candidate { coding, setting });
    let enabled: Box<[_]> =
        all.into_iter().filter(|candidate| candidate.setting != PrecompressedMode::Off).collect();
    if !enabled.is_empty() {
        parts.handler(Phase::Content, Precompressed(enabled));
    }
}

impl Handler for Precompressed {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let wanted = matches!(request.method(), Method::Get | Method::Head)
            && request.uri().path.last() != Some(&b'/');
        if !wanted {
            return Step::Next(request);
        }
        Step::start(async move {
            let outcome = self.run(request).await;
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

impl Precompressed {
    /// By the client's weight, then in the order of the list.
    fn in_order(&self, request: &Request) -> Candidates {
        let mut candidates = Candidates::default();
        for (place, candidate) in candidates.iter_mut().zip(&self.0) {
            *place = Some(*candidate);
        }
        if self.0.len() > 1 {
            candidates.sort_by_cached_key(|candidate| {
                let weight =
                    |of: Candidate| of.coding.map_or(1, |c| accept_encoding::weight(request, c));
                Reverse(candidate.map(weight))
            });
        }
        candidates
    }

    /// Responds with the first file that exists and the client accepts, if there is one.
    async fn run(&self, request: &mut Request) -> Option<Outcome> {
        for candidate in self.in_order(request).into_iter().flatten() {
            if !is_wanted(request, candidate) {
                continue;
            }
            let path = take_path(request, candidate);
            let opened = files::get(request, &path).await;
            let outcome = respond(request, candidate, &path, opened);
            request.give_path(path);
            if outcome.is_some() {
                return outcome;
            }
        }
        None
    }
}

/// Whether to look for the file.
fn is_wanted(request: &mut Request, candidate: Candidate) -> bool {
    // With `gzip_vary`, clients that get the plain file receive `Vary` only if a compressed one exists.
    candidate.is_allowed(request) || request.location().accept_encoding.gzip_vary
}

fn take_path(request: &mut Request, candidate: Candidate) -> Vec<u8> {
    let mut path = request.take_path();
    request.append_file(&mut path);
    path.extend_from_slice(candidate.suffix());
    path
}

/// The response with an opened file, if the client accepts it.
fn respond(
    request: &mut Request,
    candidate: Candidate,
    path: &[u8],
    opened: Result<OpenedFile, OpenError>,
) -> Option<Outcome> {
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return None,
        Err(error) if error.is_overflow() => return Some(error.answer(request, path)),
        Err(error) => {
            let ordinary = error.is_denied() || error.is_symlink();
            let level = if ordinary { Level::Error } else { Level::Crit };
            request.log(level, format_args!("{}", error.describe(path)));
            return None;
        }
    };
    if candidate.setting == PrecompressedMode::On {
        accept_encoding::set_varies(request);
    }
    if !candidate.is_allowed(request) {
        return None;
    }
    match super::kind(&file) {
        FileKind::File => {}
        FileKind::Directory => return None,
        _ => return Some(super::not_regular(request, path)),
    }
    let mut response = files::whole(request, file);
    response.head.content_encoding = Some(Bytes::from_static(candidate.name()));
    Some(response.into())
}
