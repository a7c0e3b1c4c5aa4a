//! PROPFIND and PROPPATCH.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use nowait_http::conf::LocationId;
use nowait_http::files;
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_http::outcome::Outcome;
use nowait_http::request::{Request, RequestBody, Uri};
use nowait_http::request_body;
use nowait_http::response::{Body, BodyError, BodySource, LocalFuture, Part};
use nowait_runtime::fs::{
    DirReader, FileKind, Io, ListingEntry, Metadata, Name, ReadDirOptions, Symlinks, stat,
};
use nowait_runtime::pool::PoolError;

use super::lock::{ChangeTarget, lock_path, permit, seconds};
use super::lock_table::{Locks, Reach};
use super::properties::{
    ATTRIBUTE, BEGIN, END, PropertyChange, PropertySelection, Resource, is_live, load, push_name,
    push_status, push_uri, save,
};
use super::xml::{Element, XML_BYTES_MAX};
use super::{Dav, Depth, failed, file, io, refuse, xml_response};

/// Entries of a directory that are read at once.
const ENTRIES: usize = 64;

/// Bytes of a response that are sent at once, roughly.
const PIECE_BYTES: usize = 32 * 1024;

/// The body of a request that is XML.
pub(super) async fn body(request: &mut Request) -> Result<Bytes, Outcome> {
    let read = request_body::read_into_memory(request, XML_BYTES_MAX).await;
    read.map_err(Outcome::status)?;
    Ok(match request.body() {
        RequestBody::Memory(bytes) => bytes.clone(),
        _ => Bytes::new(),
    })
}

/// Describes a file, or a directory with its members.
pub(super) async fn propfind(request: &mut Request, dav: &Dav) -> Outcome {
    let body = match body(request).await {
        Ok(body) => body,
        Err(outcome) => return outcome,
    };
    let Some(find) = PropertySelection::parse(&body) else {
        return refuse(request, 400, format_args!("client sent invalid PROPFIND body"));
    };
    let depth = match Depth::of(request, Depth::Infinity) {
        Some(Depth::Infinity) => {
            let text = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\">\
                        <D:propfind-finite-depth/></D:error>\n";
            return xml_response(403, "Forbidden", Body::from_static(text.as_bytes()));
        }
        Some(depth) => depth,
        None => return Outcome::status(400),
    };
    let name = match file(request) {
        Ok(name) => name,
        Err(outcome) => return outcome,
    };
    let io = io(request);
    let metadata = match stat(&io, &name.path, name.symlinks).await {
        Ok(found) if found.is_dir() || found.is_file() => found,
        Ok(_) => return Outcome::status(404),
        Err(error) => return failed(request, &error, 404, "stat()", &name.path),
    };
    let mut uri = request.uri().path.clone();
    if metadata.is_dir() && uri.last() != Some(&b'/') {
        uri.push(b'/');
    }
    let with_set = dav.keeps_properties() && find.wants_set();
    let value = if with_set { name.attribute(&io, ATTRIBUTE).await.ok() } else { None };
    let mut description = Description {
        current: request.current().clone(),
        location: request.location_id(),
        locks: dav.locks(request).cloned(),
        find,
        uri,
        path: lock_path(request, dav, &name, true).await,
        text: BEGIN.to_owned(),
    };
    description.write(b"", &metadata, &value.unwrap_or_default());
    if depth == Depth::One && metadata.is_dir() {
        match DirReader::open_name(&io, &name).await {
            Ok(reader) => {
                let body = Members {
                    description,
                    io,
                    reader,
                    with_set,
                    follow: matches!(name.symlinks, Symlinks::Follow | Symlinks::Inside { .. }),
                    entries: VecDeque::new(),
                    ended: false,
                    finished: false,
                };
                return xml_response(207, "Multi-Status", Body::Stream(Box::new(body)));
            }
            Err(error) if PoolError::of(&error).is_some() => {
                return failed(request, &error, 404, "opendir()", &name.path);
            }
            // The server's user may not read the members, but may read the directory itself.
            Err(error) => {
                let (path, errno) = (String::from_utf8_lossy(&name.path), files::errno(&error));
                request.log(Level::Error, format_args!("opendir() \"{path}\" failed {errno}"));
            }
        }
    }
    description.text.push_str(END);
    xml_response(207, "Multi-Status", Body::Bytes(description.text.into()))
}

/// Describes resources, as text.
struct Description {
    current: Rc<Current>,
    location: LocationId,
    locks: Option<Arc<Locks>>,
    find: PropertySelection,
    /// The URI of the requested resource.
    uri: Vec<u8>,
    /// The path, without a slash at its end.
    path: Vec<u8>,
    text: String,
}

impl Description {
    /// Adds the resource itself, or a member of it by its name.
    fn write(&mut self, member: &[u8], metadata: &Metadata, attribute: &[u8]) {
        let location = self.current.conf.location(self.location);
        let mut uri = [&self.uri, member].concat();
        let mut path = self.path.clone();
        if !member.is_empty() {
            path.push(b'/');
            path.extend_from_slice(member);
            if metadata.is_dir() {
                uri.push(b'/');
            }
        }
        let now = seconds();
        let locks = self.locks.as_ref().map(|locks| locks.of(&path, now));
        let uri = Uri { path: uri, args: None };
        let properties: Vec<Element> = load(attribute);
        let resource = Resource {
            uri: &uri.path,
            metadata,
            content_type: location.content_type(&uri),
            has_tag: location.files.etag,
            properties: &properties,
            locks: locks.as_deref(),
            now,
        };
        resource.write(&self.find, &mut self.text);
    }
}

/// The response for a directory with its members, read while it is sent.
struct Members {
    description: Description,
    io: Io,
    reader: DirReader,
    with_set: bool,
    /// Links may be followed.
    follow: bool,
    entries: VecDeque<(ListingEntry, Vec<u8>)>,
    ended: bool,
    finished: bool,
}

impl Members {
    async fn read(&mut self) -> std::io::Result<()> {
        let options = ReadDirOptions { entries_max: ENTRIES, metadata: true };
        let listing = self.reader.next(&self.io, &options).await?;
        self.ended = !listing.truncated;
        let mut entries = listing.entries;
        let follow = self.follow;
        entries.retain(|entry| {
            let kind = entry.metadata.as_ref().map(|found| found.kind);
            matches!(kind, Some(FileKind::File | FileKind::Directory))
                && (follow || matches!(entry.kind, FileKind::File | FileKind::Directory))
        });
        let values = if self.with_set && !entries.is_empty() {
            let names = entries.iter().map(|entry| entry.name.clone()).collect();
            self.reader.attributes(&self.io, names, ATTRIBUTE).await?
        } else {
            vec![Vec::new(); entries.len()]
        };
        self.entries.extend(entries.into_iter().zip(values));
        Ok(())
    }

    async fn piece(&mut self) -> Result<Option<Part>, BodyError> {
        while !self.finished && self.description.text.len() < PIECE_BYTES {
            match self.entries.pop_front() {
                Some((entry, value)) => {
                    if let Some(metadata) = &entry.metadata {
                        self.description.write(&entry.name, metadata, &value);
                    }
                }
                None if self.ended => {
                    self.description.text.push_str(END);
                    self.finished = true;
                }
                None => self.read().await.map_err(BodyError::File)?,
            }
        }
        let text = std::mem::take(&mut self.description.text);
        Ok((!text.is_empty()).then(|| Part::Bytes(text.into())))
    }
}

impl BodySource for Members {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(self.piece())
    }

    fn is_urgent(&self) -> bool {
        false
    }
}

/// Sets and removes properties: all of them, or none.
pub(super) async fn proppatch(request: &mut Request, dav: &Dav) -> Outcome {
    let body = match body(request).await {
        Ok(body) => body,
        Err(outcome) => return outcome,
    };
    let Some(patches) = PropertyChange::parse(&body) else {
        return refuse(request, 400, format_args!("client sent invalid PROPPATCH body"));
    };
    let name = match file(request) {
        Ok(name) => name,
        Err(outcome) => return outcome,
    };
    let io = io(request);
    let metadata = match stat(&io, &name.path, name.symlinks).await {
        Ok(found) if found.is_dir() || found.is_file() => found,
        Ok(_) => return Outcome::status(404),
        Err(error) => return failed(request, &error, 404, "stat()", &name.path),
    };
    // Links are followed: their targets are described and changed.
    let path = lock_path(request, dav, &name, true).await;
    let locks = dav.locks(request).cloned();
    let change = ChangeTarget { path, reach: Reach::default(), locks };
    if let Err(outcome) = permit(request, dav, &[change]).await {
        return outcome;
    }
    let names: Vec<_> = patches.iter().map(|patch| patch.name().clone()).collect();
    let status = if names.iter().any(is_live) {
        None
    } else {
        match apply(&io, &name, patches).await {
            Ok(()) => Some("200 OK"),
            Err(error) => Some(match refusal(request, &error, &name) {
                Ok(status) => status,
                Err(outcome) => return outcome,
            }),
        }
    };
    let mut uri = request.uri().path.clone();
    if metadata.is_dir() && uri.last() != Some(&b'/') {
        uri.push(b'/');
    }
    let mut text = format!("{BEGIN}<D:response><D:href>");
    push_uri(&mut text, &uri);
    text.push_str("</D:href>\n");
    match status {
        Some(status) => push_status(&mut text, status, |out| {
            names.iter().for_each(|name| push_name(out, name));
        }),
        // Live properties can't be changed, and a PROPPATCH fails as a whole.
        None => {
            for (live, status) in [(true, "403 Forbidden"), (false, "424 Failed Dependency")] {
                let some: Vec<_> = names.iter().filter(|name| is_live(name) == live).collect();
                if !some.is_empty() {
                    push_status(&mut text, status, |out| {
                        some.iter().for_each(|name| push_name(out, name));
                    });
                }
            }
        }
    }
    text.push_str("</D:response>\n");
    text.push_str(END);
    xml_response(207, "Multi-Status", Body::Bytes(text.into()))
}

async fn apply(io: &Io, name: &Name, patches: Vec<PropertyChange>) -> std::io::Result<()> {
    let mut properties = load(&name.attribute(io, ATTRIBUTE).await?);
    for patch in patches {
        patch.apply(&mut properties);
    }
    let value = save(&properties);
    if value.len() > XML_BYTES_MAX {
        return Err(ErrorKind::StorageFull.into());
    }
    name.set_attribute(io, ATTRIBUTE, value).await
}

/// ERANGE and E2BIG: the value is too large for an attribute.
const TOO_LARGE: [i32; 2] = [34, 7];

/// The status of properties that could not be stored.
fn refusal(
    request: &Request,
    error: &std::io::Error,
    name: &Name,
) -> Result<&'static str, Outcome> {
    if PoolError::of(error).is_some() {
        return Err(failed(request, error, 404, "setxattr()", &name.path));
    }
    let (path, errno) = (String::from_utf8_lossy(&name.path), files::errno(error));
    request.log(Level::Error, format_args!("setxattr() \"{path}\" failed {errno}"));
    let too_large = error.raw_os_error().is_some_and(|code| TOO_LARGE.contains(&code));
    Ok(match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "507 Insufficient Storage",
        _ if too_large => "507 Insufficient Storage",
        _ => "403 Forbidden",
    })
}
