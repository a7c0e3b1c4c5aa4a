//! Opens the files of a location: `open_file_cache`, `disable_symlinks`, and the mapping of errors to
//! statuses.
//!
//! Called by the handlers. All access goes through the runtime's `fs`.

use nowait_conf::Errno;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use nowait_message::{etag, http_date};
use nowait_runtime::fs::resident::{self, Resident};
use nowait_runtime::fs::{self, File, Metadata, OpenOptions, Symlinks};
use nowait_runtime::pool::PoolError;

use crate::conf::files::DisableSymlinks;
use crate::log::Level;
use crate::open_file_cache::CacheView;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::response::{AcceptRanges, Body, FileBody, Head, Response};
use crate::variables::complex::Complex;

/// Bytes read in the same pool task that opens a cold file.
const PREFETCH: usize = 64 * 1024;

/// The reason why a file could not be opened.
#[derive(Debug)]
pub struct OpenError(io::Error);

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self(error)
    }
}

/// The cache that the request's location uses.
fn cached(request: &Request) -> Option<CacheView<'_>> {
    request.current().open_files.of(&request.location().files)
}

/// Opens a file or a directory, to send it.
///
/// # Errors
/// [`OpenError`].
pub async fn open(request: &Request, path: &[u8]) -> Result<File, OpenError> {
    check_name(path)?;
    let (io, client, options) = (request.io(), request.client().number, options(request, path));
    Ok(match cached(request) {
        Some(cached) => cached.open(&io, client, path, &options).await?,
        None => fs::open_for(&io, client, path, &options).await?,
    })
}

/// The metadata of a path. Needs no permission to read the file: unreadable files exist, too.
///
/// # Errors
/// [`OpenError`].
pub async fn stat(request: &Request, path: &[u8]) -> Result<Metadata, OpenError> {
    check_name(path)?;
    let io = request.io();
    let symlinks = symlinks(request, path);
    Ok(match cached(request) {
        Some(cached) => cached.stat(&io, path, symlinks).await?,
        None => fs::stat(&io, path, symlinks).await?,
    })
}

/// A file or directory to respond with.
pub enum OpenedFile {
    /// An open file.
    File(File),
    /// A file in memory.
    Resident(Arc<Resident>),
}

impl From<File> for OpenedFile {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

impl OpenedFile {
    /// The metadata; `None`: it does not exist, which is told as an error instead.
    pub fn metadata(&self) -> Option<&Metadata> {
        match self {
            Self::File(file) => Some(file.metadata()),
            Self::Resident(resident) => resident.metadata().ok(),
        }
    }
}

/// Opens a file or a directory to respond with; a resident file is not even opened.
///
/// # Errors
/// [`OpenError`].
pub async fn get(request: &Request, path: &[u8]) -> Result<OpenedFile, OpenError> {
    match resident(request, path) {
        Some(found) => found,
        None => get_other(request, path).await,
    }
}

/// The part of [`get`] that finds resident files. A handler that calls it first saves the memory of a future:
/// 4 % of the instructions of a request for a small file.
pub fn resident(request: &Request, path: &[u8]) -> Option<Result<OpenedFile, OpenError>> {
    if cached(request).is_some() {
        return None;
    }
    let found = resident::find(&request.io(), path, symlinks(request, path))?;
    let error = found.metadata().err().map(OpenError);
    Some(error.map_or(Ok(OpenedFile::Resident(found)), Err))
}

/// The part of [`get`] for files that are not [`resident`](fn@resident).
///
/// # Errors
/// [`OpenError`].
pub async fn get_other(request: &Request, path: &[u8]) -> Result<OpenedFile, OpenError> {
    let Some(cached) = cached(request) else {
        return open(request, path).await.map(OpenedFile::File);
    };
    check_name(path)?;
    let (io, client, options) = (request.io(), request.client().number, options(request, path));
    Ok(cached.get(&io, client, path, &options).await?)
}

fn options(request: &Request, path: &[u8]) -> OpenOptions {
    OpenOptions {
        symlinks: symlinks(request, path),
        prefetch: if request.header_only() { 0 } else { PREFETCH },
    }
}

/// Refuses names that no file can have.
///
/// # Errors
/// The name contains a zero byte: no file can have it.
fn check_name(path: &[u8]) -> Result<(), OpenError> {
    if path.contains(&0) {
        return Err(OpenError(io::Error::from_raw_os_error(libc_errno::ENOENT)));
    }
    Ok(())
}

/// The entity tag of a resident file, and the date of its last modification: kept with it.
pub fn validators(resident: &Resident) -> Option<&[Bytes; 2]> {
    resident.texts(|metadata| {
        let date = http_date::format(metadata.mtime);
        [etag::of_file(metadata.mtime, metadata.size), Bytes::copy_from_slice(&date)]
    })
}

/// A response with a whole file, of which ranges can be served.
pub fn whole(request: &Request, opened: impl Into<OpenedFile>) -> Response {
    let opened = opened.into();
    let (size, mtime) = opened.metadata().map_or((0, 0), |meta| (meta.size, meta.mtime));
    let location = request.location();
    let mut head = Head::new(200);
    head.content_length = Some(size);
    head.last_modified = Some(mtime);
    if location.files.etag {
        let kept = match &opened {
            OpenedFile::Resident(resident) => validators(resident).map(|[tag, _]| tag.clone()),
            OpenedFile::File(_) => None,
        };
        head.etag = Some(kept.unwrap_or_else(|| etag::of_file(mtime, size)));
    }
    head.content_type = location.content_type(request.uri());
    head.accept_ranges = AcceptRanges::Bytes;
    let body = match opened {
        _ if size == 0 => Body::Empty,
        OpenedFile::File(file) => {
            Body::File(FileBody { file, io: request.io(), offset: 0, len: size, elsewhere: None })
        }
        OpenedFile::Resident(resident) => {
            let content = resident.file().map(|(_, content)| Body::Bytes(content.clone()));
            head.resident = Some(resident);
            content.unwrap_or_default()
        }
    };
    Response { head, body }
}

/// The symbolic links that `disable_symlinks` forbids in a path.
pub fn symlinks(request: &Request, path: &[u8]) -> Symlinks {
    let text = |from: &Complex| request.evaluate(from);
    // If the whole path is trusted, no link in it is forbidden.
    match &request.location().files.disable_symlinks {
        DisableSymlinks::Off => Symlinks::Follow,
        DisableSymlinks::On(from) => match trusted(path, from.as_ref().map(text)) {
            Some(from) if from == path.len() => Symlinks::Follow,
            from => Symlinks::Deny { from: from.unwrap_or(0) },
        },
        DisableSymlinks::IfNotOwner(from) => match trusted(path, from.as_ref().map(text)) {
            Some(from) if from == path.len() => Symlinks::Follow,
            from => Symlinks::IfNotOwner { from: from.unwrap_or(0) },
        },
        DisableSymlinks::Outside { hidden, from } => {
            let from = from.as_ref().map(text).unwrap_or_else(|| {
                let mut root = Vec::new();
                request.location().path.append_root(request, &mut root);
                Bytes::from(root)
            });
            match trusted(path, Some(from)) {
                Some(from) if from == path.len() => Symlinks::Follow,
                Some(from) => Symlinks::Inside { from, hidden: *hidden },
                // There is no directory in which they might stay.
                None => Symlinks::Deny { from: 0 },
            }
        }
    }
}

/// The length of the trusted part of a path, if it begins with that part.
fn trusted(path: &[u8], from: Option<Bytes>) -> Option<usize> {
    let from = from?;
    let from = from.strip_suffix(b"/").unwrap_or(&from);
    // Only a whole part of the path is trusted.
    let is_part = path.starts_with(from) && matches!(path.get(from.len()), None | Some(b'/'));
    is_part.then_some(from.len())
}

/// Fills `$realpath_root`.
pub async fn resolve_root(request: &mut Request) {
    request.realpath_mut().root = None;
    let mut path = Vec::new();
    request.location().path.append_root(request, &mut path);
    let io = request.io();
    let shown = String::from_utf8_lossy(&path).into_owned();
    let resolved = nowait_runtime::pool::blocking(&io.pool, move || {
        std::fs::canonicalize(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&path))
    })
    .await;
    match resolved {
        Ok(Ok(path)) => {
            request.realpath_mut().root =
                Some(std::os::unix::ffi::OsStringExt::into_vec(path.into_os_string()).into());
        }
        Ok(Err(error)) => request
            .log(Level::Crit, format_args!("realpath() \"{shown}\" failed {}", errno(&error))),
        Err(error) => request.log(Level::Error, format_args!("{error}")),
    }
}

/// `(2: No such file or directory)`: an error of the system as nginx writes it.
pub fn errno(error: &io::Error) -> String {
    format!("({})", Errno(error))
}

/// Error numbers that have a meaning here.
mod libc_errno {
    pub const ENOENT: i32 = 2;
    pub const EACCES: i32 = 13;
    pub const ENOTDIR: i32 = 20;
    pub const EMLINK: i32 = 31;
    pub const ENAMETOOLONG: i32 = 36;
    pub const ELOOP: i32 = 40;
}

/// Whether a path leads through a symbolic link that `disable_symlinks` forbids.
pub fn is_symlink(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc_errno::EMLINK | libc_errno::ELOOP))
}

impl OpenError {
    fn code(&self) -> Option<i32> {
        self.0.raw_os_error()
    }

    /// The file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.code(),
            Some(libc_errno::ENOENT | libc_errno::ENOTDIR | libc_errno::ENAMETOOLONG)
        )
    }

    /// The path leads through a file, or is too long.
    pub fn is_bad_name(&self) -> bool {
        matches!(self.code(), Some(libc_errno::ENOTDIR | libc_errno::ENAMETOOLONG))
    }

    /// The server lacks the permission.
    pub fn is_denied(&self) -> bool {
        self.code() == Some(libc_errno::EACCES)
    }

    /// A forbidden symbolic link is in the path.
    pub fn is_symlink(&self) -> bool {
        is_symlink(&self.0)
    }

    /// The queue of the thread pool is full.
    pub fn is_overflow(&self) -> bool {
        PoolError::of(&self.0).is_some()
    }

    /// The error number and its text.
    pub fn errno(&self) -> String {
        errno(&self.0)
    }

    /// The failed operation and its error, for the error log.
    pub fn describe(&self, path: &[u8]) -> String {
        match PoolError::of(&self.0) {
            Some(overflow) => overflow.to_string(),
            None => {
                format!("open() \"{}\" failed {}", String::from_utf8_lossy(path), self.errno())
            }
        }
    }

    /// Logs the error and returns the client's response. nginx: `ngx_http_static_handler`.
    pub fn answer(&self, request: &Request, path: &[u8]) -> Outcome {
        if PoolError::of(&self.0).is_some() {
            request.log(Level::Error, format_args!("{}", self.describe(path)));
            return Outcome::status(500);
        }
        let (level, status) = if self.is_not_found() {
            (Level::Error, 404)
        } else if self.is_denied() || self.is_symlink() {
            (Level::Error, 403)
        } else {
            (Level::Crit, 500)
        };
        if status != 404 || request.location().pages.log_not_found {
            request.log(level, format_args!("{}", self.describe(path)));
        }
        Outcome::status(status)
    }
}
