//! DELETE.

use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_message::Method;
use nowait_runtime::fs::{Io, Name, Tree};

use super::access;
use super::lock::{ChangeTarget, permit, seconds};
use super::lock_table::Reach;
use super::{Dav, Depth, empty, failed, file, has_body, io, refuse, walk};

/// Removes a file, or a directory with everything in it.
pub(super) async fn delete(request: &mut Request, dav: &Dav) -> Outcome {
    if has_body(request) {
        return refuse(request, 415, format_args!("DELETE with body is unsupported"));
    }
    let depth = elements(&request.uri().path);
    if depth < dav.conf.min_delete_depth {
        return refuse(request, 409, format_args!("insufficient URI depth:{depth} to DELETE"));
    }
    let name = match file(request) {
        Ok(name) => name,
        Err(outcome) => return outcome,
    };
    let io = io(request);
    let found = match name.look(&io).await {
        Ok(found) => found,
        Err(error) => {
            let through_file = error.kind() == std::io::ErrorKind::NotADirectory;
            let status = if through_file { 409 } else { 404 };
            return failed(request, &error, status, "lstat()", &name.path);
        }
    };
    let slash = request.uri().path.last() == Some(&b'/');
    let path = String::from_utf8_lossy(&name.path);
    let allowed: &[Depth] = match (found.is_dir(), slash) {
        (true, true) => &[Depth::Infinity],
        (true, false) if dav.follows_rfc() => &[Depth::Infinity],
        (true, false) => {
            let text = format_args!("DELETE \"{path}\" failed (21: Is a directory)");
            return refuse(request, 409, text);
        }
        (false, false) => &[Depth::Zero, Depth::Infinity],
        // nginx differs: it follows a link with a slash, and removes the contents of the directory.
        (false, true) => {
            let text = format_args!("lstat() \"{path}\" failed (20: Not a directory)");
            return refuse(request, 409, text);
        }
    };
    if !Depth::of(request, Depth::Infinity).is_some_and(|depth| allowed.contains(&depth)) {
        let word = if found.is_dir() { "infinity" } else { "0 or infinity" };
        return refuse(request, 400, format_args!("\"Depth\" header must be {word}"));
    }
    if found.is_dir() {
        let what = (Method::Delete, &request.uri().path[..]);
        if let Err(outcome) = access::below(request, &io, what, &[&name]).await {
            return outcome;
        }
    }
    let change = ChangeTarget::of(request, dav, &name, Reach { parent: true, below: true }).await;
    let path = change.path.clone();
    if let Err(outcome) = permit(request, dav, &[change]).await {
        return outcome;
    }
    match remove(request, &io, &name, found.is_dir()).await {
        Ok(()) => {
            if let Some(locks) = dav.locks(request) {
                locks.forget(&path, seconds());
            }
            empty(204)
        }
        Err(outcome) => outcome,
    }
}

/// Removes the file or directory at a name; the error is the response.
pub(super) async fn remove(
    request: &Request,
    io: &Io,
    name: &Name,
    is_dir: bool,
) -> Result<(), Outcome> {
    if !is_dir {
        let removed = name.remove(io).await;
        return removed.map_err(|error| failed(request, &error, 404, "unlink()", &name.path));
    }
    match Tree::remove(io, name).await {
        Ok(tree) => walk(request, io, tree).await,
        Err(error) => Err(failed(request, &error, 404, "opendir()", &name.path)),
    }
}

/// Number of elements of a path.
fn elements(path: &[u8]) -> usize {
    let slashes = path.iter().filter(|byte| **byte == b'/').count();
    if path.last() == Some(&b'/') { slashes - 1 } else { slashes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_the_end_begins_no_element() {
        for (path, expected) in [("/", 0), ("/a", 1), ("/a/", 1), ("/a/b", 2), ("/a/b/", 2)] {
            assert_eq!(elements(path.as_bytes()), expected, "{path}");
        }
    }
}
