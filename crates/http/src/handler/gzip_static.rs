//! Files that are compressed already. nginx: `ngx_http_gzip_static_module`.
//!
//! Asked before [`static_file`]. As there, names that the system has in memory are opened at once,
//! and only the others wait for the pool.

use bytes::Bytes;
use nowait_h1::Method;
use nowait_runtime::fs::{File, Kind};

use super::static_file;
use crate::conf::gzip::GzipStatic;
use crate::files::{self, OpenError};
use crate::gzip;
use crate::log::Level;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::response::Head;

/// What is known without waiting for a disk.
pub enum Tried {
    /// The answer.
    Answered(Outcome),
    /// The next handler's turn.
    Declined,
    /// [`run`] has to be asked.
    Waits,
}

/// Answers with the compressed file if it can be opened without waiting for a disk.
pub fn try_run(request: &mut Request) -> Tried {
    if !is_wanted(request) {
        return Tried::Declined;
    }
    if !request.location().path.is_usable(request) {
        return Tried::Waits;
    }
    let path = take_path(request);
    let tried = match files::try_open(request, &path) {
        Some(opened) => match respond(request, &path, opened) {
            Some(outcome) => Tried::Answered(outcome),
            None => Tried::Declined,
        },
        None => Tried::Waits,
    };
    request.give_path(path);
    tried
}

/// Answers with the compressed file if the client may have it and there is one.
pub async fn run(request: &mut Request) -> Option<Outcome> {
    if !is_wanted(request) {
        return None;
    }
    let path = take_path(request);
    let opened = files::open(request, &path).await;
    let outcome = respond(request, &path, opened);
    request.give_path(path);
    outcome
}

/// Whether it has to be looked whether there is a file.
fn is_wanted(request: &mut Request) -> bool {
    let kind = request.location().gzip_static.gzip_static;
    kind != GzipStatic::Off
        && matches!(request.method, Method::Get | Method::Head)
        && request.uri.path.last() != Some(&b'/')
        // With `gzip_vary` those who don't get the file are told that there is one.
        && (is_allowed(request) || request.location().gzip.gzip_vary)
}

fn is_allowed(request: &mut Request) -> bool {
    match request.location().gzip_static.gzip_static {
        GzipStatic::Off => false,
        GzipStatic::On => gzip::is_accepted(request, &Head::default()),
        GzipStatic::Always => true,
    }
}

fn take_path(request: &mut Request) -> Vec<u8> {
    let mut path = request.take_path();
    request.location().path.append_file(request, &mut path);
    path.extend_from_slice(b".gz");
    path
}

fn respond(request: &mut Request, path: &[u8], opened: Result<File, OpenError>) -> Option<Outcome> {
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
    if request.location().gzip_static.gzip_static == GzipStatic::On {
        request.gzip.vary = true;
    }
    if !is_allowed(request) {
        return None;
    }
    match file.metadata().kind {
        Kind::File => {}
        Kind::Directory => return None,
        _ => return Some(static_file::not_regular(request, path)),
    }
    let mut response = static_file::whole(request, file);
    response.head.content_encoding = Some(Bytes::from_static(b"gzip"));
    Some(response.into())
}
