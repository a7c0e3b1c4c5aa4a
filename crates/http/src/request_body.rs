//! Request bodies: reading them into memory or into a temporary file, and discarding them.
//! nginx: `ngx_http_request_body.c`.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use nowait_runtime::fs::{self, CreateOptions, File, Io};
use nowait_runtime::time::timeout;

use crate::conf::body::{InFileOnly, TempPath};
use crate::log::Level;
use crate::request::{BodyReader, ReadError, Request, RequestBody};
use crate::response::FileBody;

/// A request body in a file; the file is removed with it unless it is to be kept.
pub struct TempFile {
    file: File,
    path: Vec<u8>,
    len: u64,
    io: Rc<Io>,
    keep: bool,
}

impl TempFile {
    /// Its path.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it, as a body.
    pub fn part(&self) -> FileBody {
        FileBody { file: self.file.clone(), io: self.io.clone(), offset: 0, len: self.len }
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.keep {
            let (io, path) = (self.io.clone(), std::mem::take(&mut self.path));
            drop(nowait_runtime::spawn(async move {
                // A file that is gone already is what was wanted.
                let _ = fs::unlink(&io, &path).await;
            }));
        }
    }
}

/// Reads the whole body: into memory up to `client_body_buffer_size`, else into a file.
///
/// # Errors
/// The status to answer with.
pub async fn read(request: &mut Request) -> Result<(), u16> {
    let RequestBody::Unread(mut reader) = std::mem::take(&mut request.body) else { return Ok(()) };
    let current = request.current.clone();
    let conf = &current.conf.location(request.location).body;
    reader.wanted().await.map_err(|error| answer(request, &error))?;
    let max = conf.client_max_body_size.0;
    let mut memory = BytesMut::new();
    let mut file: Option<TempFile> = None;
    let mut total = 0u64;
    loop {
        let next = timeout(conf.client_body_timeout.duration(), reader.next()).await;
        let piece = match next.unwrap_or(Err(ReadError::TimedOut)) {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(error) => return Err(answer(request, &error)),
        };
        total += piece.len() as u64;
        if max != 0 && total > max {
            request.log(
                Level::Error,
                format_args!("client intended to send too large chunked body: {total} bytes"),
            );
            return Err(413);
        }
        let fits = memory.len() + piece.len() <= conf.client_body_buffer_size.bytes();
        if file.is_none() && fits && conf.client_body_in_file_only == InFileOnly::Off {
            memory.extend_from_slice(&piece);
            continue;
        }
        let target = match &mut file {
            Some(file) => file,
            None => {
                let created =
                    create(request, &conf.client_body_temp_path).await.map_err(|error| {
                        request.log(Level::Crit, format_args!("{error}"));
                        500u16
                    })?;
                file.insert(created)
            }
        };
        target.keep = conf.client_body_in_file_only == InFileOnly::On;
        let chunks: Vec<Bytes> =
            [memory.split().freeze(), piece].into_iter().filter(|c| !c.is_empty()).collect();
        let added: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let io = target.io.clone();
        if let Err(error) = target.file.write_at(&io, target.len, chunks).await {
            let path = String::from_utf8_lossy(&target.path).into_owned();
            request.log(
                Level::Crit,
                format_args!("pwrite() \"{path}\" failed {}", crate::files::errno(&error)),
            );
            return Err(500);
        }
        target.len += added;
    }
    request.body = match file {
        Some(file) => RequestBody::File(Rc::new(file)),
        None => RequestBody::Memory(memory.freeze()),
    };
    Ok(())
}

/// Logs why a body could not be read and says what to answer.
fn answer(request: &Request, error: &ReadError) -> u16 {
    match error {
        ReadError::Closed(error) => {
            request.log(
                Level::Info,
                format_args!("client prematurely closed connection {}", crate::files::errno(error)),
            );
            400
        }
        ReadError::TimedOut => {
            request.log(Level::Info, format_args!("client timed out (110: Connection timed out)"));
            408
        }
        ReadError::Malformed(error) => {
            request.log(Level::Info, format_args!("{error}"));
            400
        }
        ReadError::TooLarge => 413,
    }
}

/// Makes a temporary file with a name of its own. nginx: `ngx_create_temp_file`.
async fn create(request: &Request, directory: &TempPath) -> Result<TempFile, String> {
    use std::sync::atomic::{AtomicU64, Ordering};
    /// Numbers the files of this process.
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    /// Names that may be taken by files of another process before giving up.
    const TRIES_MAX: u32 = 1000;

    let io = request.io();
    let options = CreateOptions { mode: 0o600, exclusive: true, truncate: false, append: false };
    let mut made_parents = false;
    for _ in 0..TRIES_MAX {
        let path = name(directory, NUMBER.fetch_add(1, Ordering::Relaxed));
        match fs::create(&io, &path, &options).await {
            Ok(file) => return Ok(TempFile { file, path, len: 0, io, keep: false }),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !made_parents => {
                made_parents = true;
                let _ = fs::mkdir_parents(&io, &path, 0o700).await;
            }
            Err(error) => {
                return Err(format!(
                    "open() \"{}\" failed {}",
                    String::from_utf8_lossy(&path),
                    crate::files::errno(&error)
                ));
            }
        }
    }
    Err(format!(
        "no free name for a temporary file in \"{}\"",
        String::from_utf8_lossy(&directory.path)
    ))
}

/// `DIRECTORY/3/21/0000000123`: each level takes digits from the end. nginx:
/// `ngx_create_hashed_filename`.
fn name(directory: &TempPath, number: u64) -> Vec<u8> {
    let digits = format!("{number:010}");
    let mut path = directory.path.clone();
    let mut end = digits.len();
    for level in directory.levels.iter().map(|level| usize::from(*level)).filter(|l| *l > 0) {
        path.push(b'/');
        path.extend_from_slice(&digits.as_bytes()[end - level..end]);
        end -= level;
    }
    path.push(b'/');
    path.extend_from_slice(digits.as_bytes());
    path
}

/// A body that is all there already, for tests and protocols that read ahead.
pub struct Ready(pub Option<Bytes>);

impl BodyReader for Ready {
    fn next(&mut self) -> crate::response::LocalFuture<'_, Result<Option<Bytes>, ReadError>> {
        let piece = self.0.take();
        Box::pin(async move { Ok(piece) })
    }

    fn wanted(&mut self) -> crate::response::LocalFuture<'_, Result<(), ReadError>> {
        Box::pin(async { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_take_their_levels_from_the_end() {
        let directory = TempPath { path: b"/t".to_vec(), levels: [1, 2, 0] };
        assert_eq!(name(&directory, 123), b"/t/3/12/0000000123");
        let flat = TempPath { path: b"/t".to_vec(), levels: [0; 3] };
        assert_eq!(name(&flat, 7), b"/t/0000000007");
    }
}
