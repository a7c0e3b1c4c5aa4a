//! Temporary files: request bodies, and responses that are read ahead of their clients.
//!
//! Named as in nginx, below the directories of the `*_temp_path` directives. All operations go through
//! `fs`.

use std::rc::Rc;
use std::{fmt, io};

use bytes::Bytes;
use nowait_runtime::fs::{self, CreateOptions, File, Io};

use crate::conf::body::TempPath;
use crate::log::OsError;
use crate::response::FileBody;

/// Why a temporary file could not be made or written. Shown: the text for the log.
#[derive(Debug)]
pub struct TempFileError {
    text: String,
    /// There is no space left, for the user or at all.
    is_full: bool,
}

impl TempFileError {
    fn new(text: String, error: &io::Error) -> Self {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        Self { text, is_full: matches!(error.kind(), StorageFull | QuotaExceeded) }
    }

    /// The status for a client whose content could not be stored.
    // nginx differs: it responds with 500 to every error.
    pub fn status(&self) -> u16 {
        if self.is_full { 507 } else { 500 }
    }
}

impl fmt::Display for TempFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<TempFileError> for String {
    fn from(error: TempFileError) -> String {
        error.text
    }
}

/// A temporary file; it is removed when this is dropped, unless it is to be kept.
pub struct TempFile {
    file: File,
    path: Vec<u8>,
    len: u64,
    io: Rc<Io>,
    keep: bool,
}

impl TempFile {
    /// Creates a file with a unique name. nginx: `ngx_create_temp_file`.
    ///
    /// # Errors
    /// The file or its directory can't be made.
    pub async fn make(io: Rc<Io>, directory: &TempPath) -> Result<TempFile, TempFileError> {
        /// Maximum number of names to try that files of another process may have taken.
        const TRIES_MAX: u32 = 1000;

        let options =
            CreateOptions { mode: 0o600, exclusive: true, truncate: false, append: false };
        let mut path = next_name(directory);
        let mut made_parents = false;
        for _ in 0..TRIES_MAX {
            match fs::create(&io, &path, &options).await {
                Ok(file) => return Ok(TempFile { file, path, len: 0, io, keep: false }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    path = next_name(directory);
                    made_parents = false;
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && !made_parents => {
                    made_parents = true;
                    // The next try finds out whether the directories exist now.
                    let _ = fs::mkdir_parents(&io, &path, 0o700).await;
                }
                Err(error) => {
                    let path = String::from_utf8_lossy(&path);
                    let text = format!("open() \"{path}\" failed{}", OsError(&error));
                    return Err(TempFileError::new(text, &error));
                }
            }
        }
        let directory = String::from_utf8_lossy(&directory.path);
        let text = format!("no free name for a temporary file in \"{directory}\"");
        Err(TempFileError { text, is_full: false })
    }

    /// Appends data.
    ///
    /// # Errors
    /// The bytes can't be written; some of them may have been.
    pub async fn append(&mut self, chunks: Vec<Bytes>) -> Result<(), TempFileError> {
        let added: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        self.file.write_at(&self.io, self.len, chunks).await.map_err(|error| {
            let path = String::from_utf8_lossy(&self.path);
            let text = format!("pwrite() \"{path}\" failed{}", OsError(&error));
            TempFileError::new(text, &error)
        })?;
        self.len += added;
        Ok(())
    }

    /// Unlinks it at once, so that it is removed at any end of this process.
    pub async fn unlink(&mut self) {
        let path = std::mem::take(&mut self.path);
        // A file that no longer exists is fine.
        let _ = fs::unlink(&self.io, &path).await;
    }

    /// Keeps the file.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// A part of it.
    pub fn range(&self, offset: u64, len: u64) -> FileBody {
        FileBody { file: self.file.clone(), io: self.io.clone(), offset, len, elsewhere: None }
    }

    /// The path.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole file, as a body.
    pub fn part(&self) -> FileBody {
        FileBody {
            file: self.file.clone(),
            io: self.io.clone(),
            offset: 0,
            len: self.len,
            elsewhere: None,
        }
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.keep && !self.path.is_empty() {
            let (io, path) = (self.io.clone(), std::mem::take(&mut self.path));
            drop(nowait_runtime::spawn(async move {
                // A file that no longer exists is fine.
                let _ = fs::unlink(&io, &path).await;
            }));
        }
    }
}

/// A name that is unique in this process.
fn next_name(directory: &TempPath) -> Vec<u8> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    name(directory, NUMBER.fetch_add(1, Ordering::Relaxed))
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
