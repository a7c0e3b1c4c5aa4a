//! Precompressed files: `gzip_static`, `brotli_static` and `zstd_static`. nginx:
//! `ngx_http_gzip_static_module`.
//!
//! Runs before [`static_file`]. As there, names that the kernel has cached are opened at once, and only
//! the others wait for the pool.

use bytes::Bytes;
use nowait_message::Method;
use nowait_runtime::fs::{File, Kind};

use super::static_file;
use crate::codings::{self, Coding};
use crate::conf::gzip::GzipStatic;
use crate::files::{self, OpenError};
use crate::gzip;
use crate::log::Level;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::response::Head;

/// Result of a try without waiting for a disk.
pub enum Tried {
    /// The response.
    Answered(Outcome),
    /// The next handler continues.
    Declined,
    /// [`run`] has to be called.
    Waits,
}

/// A coding for which a file may exist.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    /// `None`: gzip, which has its own rules.
    coding: Option<Coding>,
    setting: GzipStatic,
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
            (GzipStatic::Off, _) => false,
            (GzipStatic::Always, _) => true,
            (GzipStatic::On, None) => gzip::is_accepted(request, &Head::default()),
            (GzipStatic::On, Some(coding)) => codings::weight(request, coding) > 0,
        }
    }
}

/// The codings to try, in order of preference: by the client's weight, then as listed.
fn candidates(request: &Request) -> impl Iterator<Item = Candidate> + use<> {
    let location = request.location();
    let settings = [
        (Some(Coding::Brotli), location.brotli_static.brotli_static),
        (Some(Coding::Zstd), location.zstd_static.zstd_static),
        (None, location.gzip_static.gzip_static),
    ];
    let wanted = matches!(request.method, Method::Get | Method::Head)
        && request.uri.path.last() != Some(&b'/');
    let mut all = settings.map(|(coding, setting)| Candidate { coding, setting });
    if settings.iter().filter(|(_, setting)| *setting != GzipStatic::Off).count() > 1 {
        all.sort_by_key(|candidate| {
            let weight = candidate.coding.map_or(1, |coding| codings::weight(request, coding));
            std::cmp::Reverse(weight)
        });
    }
    all.into_iter().filter(move |candidate| wanted && candidate.setting != GzipStatic::Off)
}

/// Responds with the compressed file if it can be opened without waiting for a disk.
pub fn try_run(request: &mut Request) -> Tried {
    for candidate in candidates(request) {
        if !is_wanted(request, candidate) {
            continue;
        }
        if !request.location().path.is_usable(request) {
            return Tried::Waits;
        }
        let path = take_path(request, candidate);
        let tried = match files::try_open(request, &path) {
            Some(opened) => match respond(request, candidate, &path, opened) {
                Some(outcome) => Tried::Answered(outcome),
                None => Tried::Declined,
            },
            None => Tried::Waits,
        };
        request.give_path(path);
        if !matches!(tried, Tried::Declined) {
            return tried;
        }
    }
    Tried::Declined
}

/// Responds with the compressed file if the client accepts it and it exists.
pub async fn run(request: &mut Request) -> Option<Outcome> {
    for candidate in candidates(request) {
        if !is_wanted(request, candidate) {
            continue;
        }
        let path = take_path(request, candidate);
        let opened = files::open(request, &path).await;
        let outcome = respond(request, candidate, &path, opened);
        request.give_path(path);
        if outcome.is_some() {
            return outcome;
        }
    }
    None
}

/// Whether to look for the file.
fn is_wanted(request: &mut Request, candidate: Candidate) -> bool {
    // With `gzip_vary`, clients that don't get the file are told that there is one.
    candidate.is_allowed(request) || request.location().gzip.gzip_vary
}

fn take_path(request: &mut Request, candidate: Candidate) -> Vec<u8> {
    let mut path = request.take_path();
    request.location().path.append_file(request, &mut path);
    path.extend_from_slice(candidate.suffix());
    path
}

fn respond(
    request: &mut Request,
    candidate: Candidate,
    path: &[u8],
    opened: Result<File, OpenError>,
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
    if candidate.setting == GzipStatic::On {
        request.gzip.vary = true;
    }
    if !candidate.is_allowed(request) {
        return None;
    }
    match file.metadata().kind {
        Kind::File => {}
        Kind::Directory => return None,
        _ => return Some(static_file::not_regular(request, path)),
    }
    let mut response = static_file::whole(request, file);
    response.head.content_encoding = Some(Bytes::from_static(candidate.name()));
    Some(response.into())
}
