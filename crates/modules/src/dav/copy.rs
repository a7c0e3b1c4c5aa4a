//! COPY and MOVE.

use std::io::ErrorKind;

use nowait_http::files;
use nowait_http::outcome::Outcome;
use nowait_http::path::{self, Append};
use nowait_http::request::Request;
use nowait_message::{Known, Method};
use nowait_runtime::fs::{CopyOptions, Io, Metadata, Name, Tree};

use super::access::{self, Destination};
use super::lock::{ChangeTarget, permit, seconds};
use super::lock_table::Reach;
use super::properties::ATTRIBUTE;
use super::put::replace;
use super::remove::remove;
use super::{Dav, Depth, clean, empty, failed, file, has_body, io, refuse, walk};

/// Copies or renames a file, or a directory with everything in it.
pub(super) async fn copy_or_move(request: &mut Request, dav: &Dav) -> Outcome {
    let result = async {
        let (destination, depth, overwrite) = wanted(request, dav)?;
        let from = merged(request, file(request)?);
        let to = access::destination(request, &destination).await?;
        run(request, dav, &destination, from, to, depth, overwrite).await
    };
    match result.await {
        Ok(status) => empty(status),
        Err(outcome) => outcome,
    }
}

/// Reads the header fields: the path of the destination, the depth, and whether the destination may be
/// replaced.
fn wanted(request: &Request, dav: &Dav) -> Result<(Vec<u8>, Depth, bool), Outcome> {
    if has_body(request) {
        let text = format_args!("COPY and MOVE with body are unsupported");
        return Err(refuse(request, 415, text));
    }
    let destination = destination(request, dav)?;
    let depth = match Depth::of(request, Depth::Infinity) {
        Some(Depth::Infinity) => Depth::Infinity,
        Some(Depth::Zero) if request.method() == Method::Copy => Depth::Zero,
        _ => {
            let word = if request.method() == Method::Copy { "0 or infinity" } else { "infinity" };
            let text = format_args!("\"Depth\" header must be {word}");
            return Err(refuse(request, 400, text));
        }
    };
    let overwrite = match request.head().header(Known::Overwrite) {
        None | Some(b"T" | b"t") => true,
        Some(b"F" | b"f") => false,
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            let text = format_args!("client sent invalid \"Overwrite\" header: \"{other}\"");
            return Err(refuse(request, 400, text));
        }
    };
    Ok((destination, depth, overwrite))
}

/// The reason why a `Destination` is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum DestinationError {
    /// There is no host to compare with.
    NoHost,
    /// The destination is on another host.
    OtherHost,
    /// The value is not a URI, or leads out of the root.
    Invalid,
}

/// The decoded path of a `Destination`, or of a URI in `If`, on the server with this host.
///
/// # Errors
/// [`DestinationError`].
pub fn parse_destination(text: &[u8], host: &[u8]) -> Result<Vec<u8>, DestinationError> {
    let local = if text.first() == Some(&b'/') {
        text
    } else {
        if host.is_empty() {
            return Err(DestinationError::NoHost);
        }
        // nginx differs: it requires its own scheme, in lower case. Behind a proxy that terminates TLS,
        // clients send the proxy's scheme. RFC 3986 3.1: schemes are case-insensitive.
        let is_scheme = |at: &usize| {
            [&b"http"[..], b"https"].iter().any(|known| text[..*at].eq_ignore_ascii_case(known))
        };
        let colon = text.iter().position(|byte| *byte == b':').filter(is_scheme);
        let rest = colon.and_then(|at| text[at..].strip_prefix(b"://"));
        let rest = rest.ok_or(DestinationError::Invalid)?;
        let end = rest.iter().position(|byte| *byte == b'/');
        let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
        // nginx differs: it accepts hosts that merely begin with the request's.
        let name = match authority.iter().rposition(|byte| *byte == b':') {
            Some(at) if authority[at + 1..].iter().all(u8::is_ascii_digit) => &authority[..at],
            _ => authority,
        };
        if !name.eq_ignore_ascii_case(host) {
            return Err(DestinationError::OtherHost);
        }
        path
    };
    let (path, _) = path::from_outside(local).ok_or(DestinationError::Invalid)?;
    Ok(normal(&path))
}

/// A path as that of a request would be: without empty elements and dots, which lead to the same file, but
/// may lead to another location.
fn normal(path: &[u8]) -> Vec<u8> {
    let elements = path.split(|byte| *byte == b'/');
    let mut out = Vec::with_capacity(path.len());
    for element in elements.filter(|element| !matches!(*element, b"" | b".")) {
        out.push(b'/');
        out.extend_from_slice(element);
    }
    if out.is_empty() || path.ends_with(b"/") || path.ends_with(b"/.") {
        out.push(b'/');
    }
    out
}

/// The decoded path of the request's `Destination`.
fn destination(request: &Request, dav: &Dav) -> Result<Vec<u8>, Outcome> {
    let Some(text) = request.head().header(Known::Destination) else {
        return Err(refuse(request, 400, format_args!("client sent no \"Destination\" header")));
    };
    let shown = String::from_utf8_lossy(text);
    let invalid = || {
        let text = format_args!("client sent invalid \"Destination\" header: \"{shown}\"");
        refuse(request, 400, text)
    };
    let path = match parse_destination(text, request.host()) {
        Ok(path) => path,
        Err(DestinationError::NoHost) => {
            return Err(refuse(request, 400, format_args!("client sent no \"Host\" header")));
        }
        Err(DestinationError::OtherHost) => {
            let text = format_args!(
                "\"Destination\" URI \"{shown}\" is handled by different repository than the source \
                 URI"
            );
            return Err(refuse(request, 400, text));
        }
        Err(DestinationError::Invalid) => return Err(invalid()),
    };
    let uri = &request.uri().path;
    if !dav.follows_rfc() && (uri.last() == Some(&b'/')) != (text.last() == Some(&b'/')) {
        let text = format_args!(
            "both URI \"{}\" and \"Destination\" URI \"{shown}\" should be either collections or \
             non-collections",
            String::from_utf8_lossy(uri)
        );
        return Err(refuse(request, 409, text));
    }
    // nginx differs: it compares only the lengths, and cuts off this many bytes of any text.
    if let Append::After(len) = request.location().path.append
        && (path.len() < len || path[..len] != uri[..len.min(uri.len())])
    {
        return Err(invalid());
    }
    Ok(path)
}

/// A name without repeated slashes and slashes at its end.
fn merged(request: &Request, name: Name) -> Name {
    let path = clean(&name.path);
    let symlinks = files::symlinks(request, &path);
    Name { path, symlinks }
}

impl Dav {
    /// Attributes that copies keep.
    fn copies(&self) -> CopyOptions {
        let attribute = self.keeps_properties().then_some(ATTRIBUTE);
        CopyOptions { attribute, ..CopyOptions::default() }
    }
}

/// The relation of two paths.
#[derive(Debug, PartialEq, Eq)]
enum Relation {
    Same,
    /// One is inside the other.
    Nested,
    Apart,
}

fn relation(a: &[u8], b: &[u8]) -> Relation {
    let a = a.strip_suffix(b"/").unwrap_or(a);
    let b = b.strip_suffix(b"/").unwrap_or(b);
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    match long.strip_prefix(short) {
        Some(b"") => Relation::Same,
        Some([b'/', ..]) => Relation::Nested,
        _ => Relation::Apart,
    }
}

/// Does it; the status of success.
async fn run(
    request: &mut Request,
    dav: &Dav,
    destination: &[u8],
    from: Name,
    to: Destination,
    depth: Depth,
    overwrite: bool,
) -> Result<u16, Outcome> {
    let Destination { name: to, dav: there } = to;
    let moves = request.method() == Method::Move;
    let uri = String::from_utf8_lossy(&request.uri().path).into_owned();
    let shown = String::from_utf8_lossy(destination);
    let verb = String::from_utf8_lossy(request.method_name()).into_owned();
    let into_itself = format_args!("\"{uri}\" could not be {verb}ed to collection \"{shown}\"");
    let rfc = dav.follows_rfc();
    let slash = rfc || destination.last() == Some(&b'/');
    match relation(&from.path, &to.path) {
        Relation::Same => {
            let text = format_args!(
                "both URI \"{uri}\" and \"Destination\" URI \"{shown}\" point to the same location"
            );
            return Err(refuse(request, 403, text));
        }
        Relation::Nested if slash => return Err(refuse(request, 403, into_itself)),
        _ => {}
    }
    let io = io(request);
    let target = match to.look(&io).await {
        Ok(found) if found.is_dir() && !slash => {
            return Err(refuse(request, 409, into_itself));
        }
        Ok(_) if !overwrite => {
            let path = String::from_utf8_lossy(&to.path);
            let text = format_args!("\"{path}\" could not be created (17: File exists)");
            return Err(refuse(request, 412, text));
        }
        Ok(found) => Some(found),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(request, &error, 404, "lstat()", &to.path)),
    };
    let found = from.look(&io).await;
    let found = found.map_err(|error| failed(request, &error, 404, "lstat()", &from.path))?;
    let collection = request.uri().path.last() == Some(&b'/');
    if !found.is_dir() && collection {
        let error = std::io::Error::from(ErrorKind::NotADirectory);
        return Err(failed(request, &error, 404, "lstat()", &from.path));
    }
    if found.is_dir() && !collection && !rfc {
        return Err(refuse(request, 400, format_args!("\"{uri}\" is collection")));
    }
    // The paths alone do not show symbolic links on the way.
    let removed = match target.filter(Metadata::is_dir) {
        Some(target) => inside(request, &io, &from, &target).await?,
        None => false,
    };
    if removed || moves && found.is_dir() && inside(request, &io, &to, &found).await? {
        return Err(refuse(request, 403, into_itself));
    }
    if found.is_dir() && depth == Depth::Infinity {
        let method = if moves { Method::Delete } else { Method::Get };
        access::below(request, &io, (method, &request.uri().path), &[&from]).await?;
    }
    if found.is_dir() || target.is_some_and(|target| target.is_dir()) {
        access::below(request, &io, (Method::Put, destination), &[&from, &to]).await?;
    }
    let reach = Reach { parent: target.is_none(), below: true };
    let mut changes = vec![ChangeTarget::of(request, &there, &to, reach).await];
    if moves {
        let reach = Reach { parent: true, below: true };
        changes.push(ChangeTarget::of(request, dav, &from, reach).await);
    }
    permit(request, dav, &changes).await?;
    let source = changes.pop().filter(|_| moves);
    let status = place(request, dav, &io, &from, &to, (found, target), depth).await?;
    if let Some(ChangeTarget { path, locks: Some(locks), .. }) = source {
        locks.forget(&path, seconds());
    }
    Ok(status)
}

/// Whether a name is inside a directory.
async fn inside(request: &Request, io: &Io, name: &Name, dir: &Metadata) -> Result<bool, Outcome> {
    let inside = name.is_inside(io, dir).await;
    // A directory that is missing is not inside another.
    inside.or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(false),
        _ => Err(failed(request, &error, 404, "open()", &name.path)),
    })
}

/// Performs the operation on the files found at both names.
async fn place(
    request: &Request,
    dav: &Dav,
    io: &Io,
    from: &Name,
    to: &Name,
    (found, target): (Metadata, Option<Metadata>),
    depth: Depth,
) -> Result<u16, Outcome> {
    let moves = request.method() == Method::Move;
    let (new, replaced) = if dav.follows_rfc() { (201, 204) } else { (201, 201) };
    let status = if target.is_some() { replaced } else { new };
    if !found.is_dir() {
        if target.is_some_and(|target| target.is_dir()) {
            remove(request, io, to, true).await?;
        }
        file_to(request, dav, io, from, to, moves).await?;
        return Ok(if dav.follows_rfc() { status } else { 204 });
    }
    if let Some(target) = target {
        remove(request, io, to, target.is_dir()).await?;
    }
    if moves {
        match from.rename(io, to).await {
            Ok(()) => return Ok(status),
            Err(error) if error.kind() == ErrorKind::CrossesDevices => {}
            Err(error) => {
                let call = format!("rename() \"{}\" to", String::from_utf8_lossy(&from.path));
                return Err(failed(request, &error, 409, &call, &to.path));
            }
        }
    }
    // nginx differs: it copies everything with "Depth: 0", too.
    let members = depth == Depth::Infinity;
    let tree = Tree::copy(io, from, to, members, dav.copies()).await;
    let tree = tree.map_err(|error| failed(request, &error, 409, "mkdir()", &to.path))?;
    // nginx differs: an incomplete copy is 201, and MOVE removes the original.
    walk(request, io, tree).await?;
    if moves {
        remove(request, io, from, true).await?;
    }
    Ok(status)
}

/// Copies or renames a file.
async fn file_to(
    request: &Request,
    dav: &Dav,
    io: &Io,
    from: &Name,
    to: &Name,
    moves: bool,
) -> Result<(), Outcome> {
    let options = dav.copies();
    if !moves {
        return replace(request, io, from, to, options, (None, false)).await;
    }
    let mut renamed = from.rename(io, to).await;
    if renamed.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        let made = to.make_parents(io, dav.conf.dav_access.directories()).await;
        made.map_err(|error| failed(request, &error, 409, "mkdir()", &to.path))?;
        renamed = from.rename(io, to).await;
    }
    match renamed {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {
            replace(request, io, from, to, options, (None, false)).await?;
            remove(request, io, from, false).await
        }
        Err(error) => {
            let call = format!("rename() \"{}\" to", String::from_utf8_lossy(&from.path));
            Err(failed(request, &error, 409, &call, &to.path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations() {
        let parse = |text: &str| parse_destination(text.as_bytes(), b"host");
        for (text, expected) in [
            ("/a%20b", Ok("/a b")),
            ("/a?b", Ok("/a")),
            ("//a/.//./b/", Ok("/a/b/")),
            ("/a/.", Ok("/a/")),
            ("/%2e/%2fa", Ok("/a")),
            ("/.", Ok("/")),
            ("/.a/b.", Ok("/.a/b.")),
            ("http://host/a/", Ok("/a/")),
            ("http://HOST:8080/a", Ok("/a")),
            ("http://host", Err(DestinationError::Invalid)),
            ("https://host/a", Ok("/a")),
            ("HTTPs://host:443/a", Ok("/a")),
            ("ftp://host/a", Err(DestinationError::Invalid)),
            ("https:/host/a", Err(DestinationError::Invalid)),
            ("://host/a", Err(DestinationError::Invalid)),
            ("host/a", Err(DestinationError::Invalid)),
            ("http://hostess/a", Err(DestinationError::OtherHost)),
            ("http://user@host/a", Err(DestinationError::OtherHost)),
            ("http://other/a", Err(DestinationError::OtherHost)),
            ("/a/%2e%2e/b", Err(DestinationError::Invalid)),
            ("/a/..%2fb", Err(DestinationError::Invalid)),
            ("http://host/../b", Err(DestinationError::Invalid)),
            ("/a%00", Err(DestinationError::Invalid)),
        ] {
            assert_eq!(parse(text), expected.map(|path| path.as_bytes().to_vec()), "{text}");
        }
        assert_eq!(parse_destination(b"http://host/a", b""), Err(DestinationError::NoHost));
    }

    #[test]
    fn paths_in_each_other() {
        for (a, b, expected) in [
            ("/a", "/a", Relation::Same),
            ("/a/", "/a", Relation::Same),
            ("/a/", "/a/b/", Relation::Nested),
            ("/a/b/", "/a/", Relation::Nested),
            ("/a", "/ab", Relation::Apart),
            ("/a/b", "/a/c", Relation::Apart),
        ] {
            assert_eq!(relation(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
        }
    }
}
