//! Access checks for resources that a request changes besides its own: the destination of COPY and MOVE,
//! and locations below a directory.
//!
//! nginx differs: it checks only the access to the request's location, and copies into and out of any
//! location of the server.

use std::sync::Arc;

use nowait_http::files;
use nowait_http::log::Level;
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::subrequest::{self, Access};
use nowait_message::Method;
use nowait_runtime::fs::{Io, Name};

use super::{DAV, Dav, clean, file, refuse};

/// The destination of COPY and MOVE.
pub(super) struct Destination {
    /// The file, as its location has it, without slashes at its end.
    pub name: Name,
    /// The settings there.
    pub dav: Arc<Dav>,
}

/// The destination, if the client may write there by the rules of its location: as by a PUT, or, where
/// that is not allowed, by the request's own method. The error is the response.
pub(super) async fn destination(request: &Request, path: &[u8]) -> Result<Destination, Outcome> {
    let mut tried = ask(request, Method::Put, path).await?;
    if !allows(&tried, Method::Put) && allows(&tried, request.method()) {
        tried = ask(request, request.method(), path).await?;
    }
    let allowed = allows(&tried, Method::Put) || allows(&tried, request.method());
    if let Some(outcome) = tried.refused {
        return Err(refused(request, path, outcome));
    }
    let there = &tried.request;
    match there.location().settings.get(&DAV) {
        Some(dav) if allowed => {
            let path = clean(&file(there)?.path);
            let symlinks = files::symlinks(there, &path);
            Ok(Destination { name: Name { path, symlinks }, dav: dav.clone() })
        }
        _ => {
            let path = String::from_utf8_lossy(path);
            let text =
                format_args!("the location of \"{path}\" allows neither PUT nor this method");
            Err(refuse(request, 403, text))
        }
    }
}

/// Checks the client's access to all locations below a directory that have files in one of these trees.
/// `uri` is the directory's, `method` the operation on its members. Locations with regexes are not
/// checked. The error is the response.
pub(super) async fn below(
    request: &Request,
    io: &Io,
    (method, uri): (Method, &[u8]),
    trees: &[&Name],
) -> Result<(), Outcome> {
    let uri = [uri.strip_suffix(b"/").unwrap_or(uri), b"/"].concat();
    let current = request.current().clone();
    let mut texts: Vec<&[u8]> = Vec::new();
    current.conf.server(request.server_id()).locations.below(&uri, &mut |text| texts.push(text));
    for text in texts {
        let mut exists = false;
        for tree in trees {
            let path = [&tree.path, &b"/"[..], &text[uri.len()..]].concat();
            let name = Name { path, symlinks: tree.symlinks };
            exists |= name.look(io).await.is_ok();
        }
        if exists && let Some(outcome) = ask(request, method, text).await?.refused {
            return Err(refused(request, text, outcome));
        }
    }
    Ok(())
}

async fn ask(request: &Request, method: Method, path: &[u8]) -> Result<Access, Outcome> {
    let asked = subrequest::access(request, method, path).await;
    asked.map_err(|_| Outcome::status(500))
}

/// Whether the location that a request has come to allows a method.
fn allows(tried: &Access, method: Method) -> bool {
    let dav = tried.request.location().settings.get(&DAV);
    dav.is_some_and(|dav| dav.allows(method))
}

fn refused(request: &Request, path: &[u8], outcome: Outcome) -> Outcome {
    let path = String::from_utf8_lossy(path);
    request
        .log(Level::Error, format_args!("no access to \"{path}\", which would be changed or read"));
    outcome
}
