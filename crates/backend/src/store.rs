//! `proxy_store`: responses that are saved as files. nginx: `ngx_http_upstream_store`.
//!
//! The engine supplies the body while the client receives it. It is written to a temporary file, which
//! is renamed when it is complete; a client's disconnect has no effect. All operations go through `fs`.
//! Failures are logged, and the client receives its response nevertheless.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use nowait_http::conf::body::TempPath;
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::temp_file::TempFile;
use nowait_message::http_date;
use nowait_message::{Known, Method, ResponseHead};
use nowait_runtime::fs::{self, CreateOptions, Io};

use crate::conf::{Backend, Store};
use crate::upstream::Tee;

/// Bytes copied at a time to another file system.
const COPY_BYTES: usize = 256 * 1024;

/// The second destination of a response; `None` if it has no path, or the response is not the
/// content of its URI.
pub fn begin(
    request: &mut Request,
    backend: &Backend,
    store: &Store,
    received: &ResponseHead,
) -> Option<Box<dyn Tee>> {
    if request.method() == Method::Head || received.status != 200 {
        return None;
    }
    let mut path = Vec::new();
    match &store.path {
        Some(text) => {
            path = request.evaluate(text).to_vec();
            if !path.is_empty() && path.first() != Some(&b'/') {
                path.splice(..0, request.location().path.prefix.iter().copied());
            }
        }
        None if !request.has_file() => return None,
        None => drop(request.append_file(&mut path)),
    }
    // A directory can't be written.
    if path.is_empty() || path.last() == Some(&b'/') {
        return None;
    }
    Some(Box::new(Storing {
        io: request.io(),
        current: request.current().clone(),
        temp_path: backend.settings.temp_path.clone(),
        path,
        access: store.access,
        directory_access: store.directory_access(),
        modified: received.known(Known::LastModified).and_then(http_date::parse),
        length: received.content_length,
        file: None,
        failed: false,
    }))
}

/// A response that is being stored in a file.
struct Storing {
    io: Rc<Io>,
    current: Rc<Current>,
    temp_path: TempPath,
    /// The final name of the file.
    path: Vec<u8>,
    access: u32,
    directory_access: u32,
    modified: Option<i64>,
    /// `Content-Length`
    length: Option<u64>,
    file: Option<TempFile>,
    failed: bool,
}

impl Storing {
    /// The temporary file, created when first needed.
    async fn file(&mut self) -> Result<&mut TempFile, String> {
        let file = match self.file.take() {
            Some(file) => file,
            None => TempFile::make(self.io.clone(), &self.temp_path).await?,
        };
        Ok(self.file.insert(file))
    }

    async fn append(&mut self, piece: Bytes) -> Result<(), String> {
        Ok(self.file().await?.append(vec![piece]).await?)
    }

    /// Renames the file to its final name.
    async fn publish(&mut self) -> Result<(), String> {
        let (access, modified, length) = (self.access, self.modified, self.length);
        let (io, directory_access) = (self.io.clone(), self.directory_access);
        let path = std::mem::take(&mut self.path);
        let temp = self.file().await?;
        if length.is_some_and(|length| length != temp.len()) {
            return Ok(());
        }
        let file = temp.file();
        let failed = |call: &str, error: &io::Error| {
            let path = String::from_utf8_lossy(&path);
            format!("{call} \"{path}\" failed {}", nowait_http::files::errno(error))
        };
        file.set_mode(&io, access).await.map_err(|error| failed("chmod()", &error))?;
        if let Some(time) = modified {
            file.set_modified(&io, time).await.map_err(|error| failed("utimes()", &error))?;
        }
        match file.publish(&io, Bytes::new(), temp.path(), &path, directory_access).await {
            Ok(_) => {
                temp.keep();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                copy(&io, temp, &path, access, modified)
                    .await
                    .map_err(|error| failed("copy to", &error))
            }
            Err(error) => Err(failed("rename() to", &error)),
        }
    }

    fn note(&mut self, result: Result<(), String>) {
        if let Err(text) = result {
            self.failed = true;
            self.file = None;
            self.current.logs.error(Level::Crit, format_args!("{text}"));
        }
    }
}

/// Copies the file to a temporary one in its destination's directory, and renames that. nginx:
/// `ngx_ext_rename_file`.
async fn copy(
    io: &Io,
    temp: &TempFile,
    path: &[u8],
    mode: u32,
    modified: Option<i64>,
) -> io::Result<()> {
    let number = temp.path().rsplit(|&b| b == b'/').next().unwrap_or_default();
    let beside = [path, b".", number].concat();
    let options = CreateOptions { mode, exclusive: true, truncate: false, append: false };
    let copied = async {
        let to = fs::create(io, &beside, &options).await?;
        let mut at = 0;
        while at < temp.len() {
            let piece = temp.file().read_at(io, at, COPY_BYTES).await?;
            if piece.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let length = piece.len() as u64;
            to.write_at(io, at, vec![piece]).await?;
            at += length;
        }
        to.set_mode(io, mode).await?;
        if let Some(time) = modified {
            to.set_modified(io, time).await?;
        }
        fs::rename(io, &beside, path).await
    };
    let result = copied.await;
    if result.is_err() {
        // Removes the rest of a failed copy; it may not exist.
        let _ = fs::unlink(io, &beside).await;
    }
    result
}

impl Tee for Storing {
    fn write(&mut self, piece: Bytes) -> LocalFuture<'_, ()> {
        Box::pin(async move {
            if !self.failed {
                let result = self.append(piece).await;
                self.note(result);
            }
        })
    }

    /// After a failed write the rest is not needed.
    fn outlives_client(&self) -> bool {
        !self.failed
    }

    /// A client that has received the response finds the file.
    fn comes_first(&self) -> bool {
        true
    }

    fn end(mut self: Box<Self>, complete: bool) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            if complete && !self.failed {
                let result = self.publish().await;
                self.note(result);
            }
        })
    }
}
