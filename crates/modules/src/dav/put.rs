//! PUT.

use std::ffi::CStr;

use nowait_http::exchange::OnHangup;
use nowait_http::files;
use nowait_http::log::Level;
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::request_body;
use nowait_http::temp_file::TempFile;
use nowait_message::{Known, http_date};
use nowait_runtime::fs::{CopyOptions, Io, Name, Symlinks, copy_file};

use super::lock::{ChangeTarget, permit};
use super::lock_table::Reach;
use super::properties::ATTRIBUTE;
use super::{Dav, created, empty, failed, file, io, refuse};

/// Stores the body as a file.
pub(super) async fn put(request: &mut Request, dav: &Dav) -> Outcome {
    if request.uri().path.last() == Some(&b'/') {
        return refuse(request, 409, format_args!("cannot PUT to a collection"));
    }
    if request.head().header(Known::ContentRange).is_some() {
        return refuse(request, 501, format_args!("PUT with range is unsupported"));
    }
    let name = match file(request) {
        Ok(name) => name,
        Err(outcome) => return outcome,
    };
    // Before the upload, so that it need not be sent in vain.
    if is_create_only(request, dav)
        && let Ok(found) = files::stat(request, &name.path).await
        && !found.is_dir()
    {
        return exists_already(request, &name);
    }
    let change = ChangeTarget::of(request, dav, &name, Reach::default()).await;
    if let Err(outcome) = permit(request, dav, &[change]).await {
        return outcome;
    }
    let temp = match request_body::read_to_file(request).await {
        Ok(temp) => temp,
        Err(status) => return Outcome::status(status),
    };
    let _watch = request.watch(OnHangup::Ignore);
    store(request, dav, temp, name).await
}

/// Whether a file that exists must not be replaced.
fn is_create_only(request: &Request, dav: &Dav) -> bool {
    // RFC 9110, 13.1.2: "the condition is false if the origin server has a current representation for the target
    // resource."
    let is_asked = request.head().header(Known::IfNoneMatch).is_some_and(|tag| tag == b"*");
    is_asked || !dav.conf.put_overwrite
}

fn exists_already(request: &Request, name: &Name) -> Outcome {
    let path = String::from_utf8_lossy(&name.path);
    request.log(Level::Info, format_args!("\"{path}\" exists, and PUT may not replace it"));
    Outcome::status(412)
}

async fn store(request: &mut Request, dav: &Dav, mut temp: TempFile, name: Name) -> Outcome {
    let io = io(request);
    let exists = match files::stat(request, &name.path).await {
        Ok(found) if found.is_dir() => {
            let path = String::from_utf8_lossy(&name.path);
            let text = format_args!("\"{path}\" could not be created (21: Is a directory)");
            return refuse(request, 409, text);
        }
        found => found.is_ok(),
    };
    let is_new = is_create_only(request, dav);
    if exists && is_new {
        return exists_already(request, &name);
    }
    let reach = Reach { parent: !exists, below: false };
    let change = ChangeTarget::of(request, dav, &name, reach).await;
    if let Err(outcome) = permit(request, dav, &[change]).await {
        return outcome;
    }
    let attribute = dav.keeps_properties().then_some(ATTRIBUTE);
    let mut inherited = None;
    if exists && attribute.is_some() {
        match name.copy_attribute(&io, ATTRIBUTE, temp.file()).await {
            Ok(()) => {}
            // The temporary file is on another file system, which has no attributes: it is copied anyway.
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                inherited = attribute;
            }
            Err(error) => return failed(request, &error, 500, "setxattr()", temp.path()),
        }
    }
    let access = dav.conf.dav_access;
    if let Err(error) = temp.file().set_mode(&io, access.0).await {
        return failed(request, &error, 500, "chmod()", temp.path());
    }
    let modified = request.head().header(Known::Date).and_then(http_date::parse);
    if let Some(time) = modified
        && let Err(error) = temp.file().set_modified(&io, time).await
    {
        return failed(request, &error, 500, "utimes()", temp.path());
    }
    let from = Name { path: temp.path().to_vec(), symlinks: Symlinks::Follow };
    let mut renamed = rename(&from, &io, &name, is_new).await;
    if dav.conf.create_full_put_path
        && renamed.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    {
        if let Err(error) = name.make_parents(&io, access.directories()).await {
            return failed(request, &error, 409, "mkdir()", &name.path);
        }
        renamed = rename(&from, &io, &name, is_new).await;
    }
    match renamed {
        Ok(()) => temp.keep(),
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
            let attribute = attribute.filter(|_| inherited.is_none());
            let options = CopyOptions { mode: Some(access.0), modified, attribute };
            let replaced = replace(request, &io, &from, &name, options, (inherited, is_new)).await;
            if let Err(outcome) = replaced {
                return outcome;
            }
        }
        Err(error) if is_new && error.kind() == std::io::ErrorKind::AlreadyExists => {
            return exists_already(request, &name);
        }
        // nginx differs: it responds with 500 to every error.
        Err(error) => {
            let call = format!("rename() \"{}\" to", String::from_utf8_lossy(temp.path()));
            return failed(request, &error, 409, &call, &name.path);
        }
    }
    if exists { empty(204) } else { created(request) }
}

async fn rename(from: &Name, io: &Io, to: &Name, is_new: bool) -> std::io::Result<()> {
    if is_new { from.rename_new(io, to).await } else { from.rename(io, to).await }
}

/// Copies a file to a temporary name in the destination's directory, and renames it, so that readers see
/// either the old or the new file; with `is_new`, there must be no old one. `inherited` is an attribute copied from the
/// old file. The error is the response. nginx: `ngx_copy_file`.
pub(super) async fn replace(
    request: &Request,
    io: &Io,
    from: &Name,
    to: &Name,
    options: CopyOptions,
    (inherited, is_new): (Option<&'static CStr>, bool),
) -> Result<(), Outcome> {
    /// Maximum number of names to try that other files may have.
    const TRIES_MAX: u32 = 100;

    let mut tries = 0;
    let beside = loop {
        let number = u128::from_le_bytes(nowait_http::random::bytes()) % 10_000_000_000;
        let suffix = format!(".{number:010}");
        let beside = Name { path: [&to.path, suffix.as_bytes()].concat(), symlinks: to.symlinks };
        match copy_file(io, from, &beside, options).await {
            Ok(()) => break beside,
            Err(failure)
                if failure.error.kind() == std::io::ErrorKind::AlreadyExists
                    && tries < TRIES_MAX =>
            {
                tries += 1;
            }
            Err(failure) => {
                let not_found = if failure.path == from.path { 404 } else { 409 };
                let error = &failure.error;
                return Err(failed(request, error, not_found, failure.call, &failure.path));
            }
        }
    };
    if let Some(attribute) = inherited {
        let kept = match to.attribute(io, attribute).await {
            Ok(value) if value.is_empty() => Ok(()),
            Ok(value) => beside.set_attribute(io, attribute, value).await,
            Err(error) => Err(error),
        };
        if let Err(error) = kept {
            let outcome = failed(request, &error, 500, "setxattr()", &beside.path);
            abandon(request, io, &beside).await;
            return Err(outcome);
        }
    }
    if let Err(error) = rename(&beside, io, to, is_new).await {
        if is_new && error.kind() == std::io::ErrorKind::AlreadyExists {
            abandon(request, io, &beside).await;
            return Err(exists_already(request, to));
        }
        let call = format!("rename() \"{}\" to", String::from_utf8_lossy(&beside.path));
        let outcome = failed(request, &error, 409, &call, &to.path);
        abandon(request, io, &beside).await;
        return Err(outcome);
    }
    Ok(())
}

/// Removes a copy that is of no use.
async fn abandon(request: &Request, io: &Io, beside: &Name) {
    if let Err(error) = beside.remove(io).await {
        let (path, errno) = (String::from_utf8_lossy(&beside.path), files::errno(&error));
        request.log(Level::Crit, format_args!("unlink() \"{path}\" failed {errno}"));
    }
}
