//! The state of an issuer on disk: the account, and a file for each certificate with its key.
//!
//! Called by the issuer's task alone. Files are replaced as a whole, and readable by the server's user only.
//! A file that can't be read makes an attempt fail; an unusable file is renamed to `NAME.broken`.

use std::io::ErrorKind;
use std::rc::Rc;

use bytes::Bytes;
use nowait_acme::BODY_BYTES_MAX;
use nowait_conf::{Contents, Errno};
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_runtime::fs::{self, CreateOptions, Io, Name, ReadDirOptions, Symlinks};

/// Maximum size of a file.
const FILE_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// Maximum number of files examined for removal.
const FILES_MAX: usize = 10_000;

/// The state of an issuer.
pub struct StateDirectory<'a> {
    pub current: &'a Rc<Current>,
    /// The directory; `None`: state is not stored.
    pub dir: Option<&'a [u8]>,
}

impl StateDirectory<'_> {
    fn io(&self) -> Io {
        Io::new(self.current.default_pool().clone())
    }

    fn path(&self, file: &str) -> Option<Vec<u8>> {
        Some([self.dir?, b"/", file.as_bytes()].concat())
    }

    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    /// It can't be read; the text is for the log.
    pub async fn read(&self, file: &str) -> Result<Option<Contents>, String> {
        let Some(path) = self.path(file) else { return Ok(None) };
        match fs::read(&self.io(), &path, FILE_BYTES_MAX).await {
            Ok(bytes) => Ok(Some(Contents::new(bytes.to_vec()))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("\"{}\" can't be read ({})", shown(&path), Errno(&error))),
        }
    }

    /// Replaces a file atomically. The caller holds the lock.
    ///
    /// # Errors
    /// The text is for the log.
    pub async fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let Some(path) = self.path(file) else { return Ok(()) };
        let temp = [&path[..], b".tmp"].concat();
        let (io, chunk) = (self.io(), Bytes::copy_from_slice(text.as_bytes()));
        let written = async {
            // A leftover of a crash: only one instance writes at a time.
            let _ = fs::unlink(&io, &temp).await;
            let handle = fs::create(&io, &temp, &CreateOptions::default()).await?;
            handle.write_at(&io, 0, vec![chunk]).await?;
            handle.sync(&io, false).await?;
            fs::rename(&io, &temp, &path).await
        };
        written.await.map_err(|error: std::io::Error| {
            format!("\"{}\" can't be written ({})", shown(&path), Errno(&error))
        })
    }

    /// Renames an unusable file to `NAME.broken` and logs that, with the consequence in `then`. The caller
    /// holds the lock.
    ///
    /// # Errors
    /// It can't be renamed; the text is for the log.
    pub async fn set_aside(&self, file: &str, why: &str, then: &str) -> Result<(), String> {
        let Some(path) = self.path(file) else { return Ok(()) };
        let aside = [&path[..], b".broken"].concat();
        let (name, other) = (shown(&path), shown(&aside));
        let renamed = fs::rename(&self.io(), &path, &aside).await;
        renamed.map_err(|error| {
            format!("\"{name}\" is unusable ({why}), and can't be renamed ({})", Errno(&error))
        })?;
        self.current.logs.error(
            Level::Error,
            format_args!("\"{name}\" is unusable ({why}): it is kept as \"{other}\", and {then}"),
        );
        Ok(())
    }

    /// Removes a file if it exists.
    ///
    /// # Errors
    /// The text is for the log.
    pub async fn remove(&self, file: &str) -> Result<(), String> {
        let Some(path) = self.path(file) else { return Ok(()) };
        match fs::unlink(&self.io(), &path).await {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(format!("\"{}\" can't be removed ({})", shown(&path), Errno(&error)))
            }
            _ => Ok(()),
        }
    }

    /// Removes files whose names begin with `prefix`, leftovers of a crash. The caller holds the lock.
    pub async fn clean(&self, prefix: &str) {
        let Some(dir) = self.dir else { return };
        let options = ReadDirOptions { entries_max: FILES_MAX, metadata: false };
        let dir = Name { path: dir.to_vec(), symlinks: Symlinks::Follow };
        let Ok(listing) = fs::read_dir(&self.io(), &dir, &options).await else { return };
        for entry in listing.entries {
            if let Ok(name) = std::str::from_utf8(&entry.name)
                && name.starts_with(prefix)
            {
                // Remaining files do no harm; the next order tries again to remove them.
                let _ = self.remove(name).await;
            }
        }
    }

    /// Excludes other instances with the same state until the result is released, or the process ends.
    /// `None`: another instance is at work.
    ///
    /// # Errors
    /// The text is for the log.
    pub async fn lock(&self) -> Result<Option<StateLock>, String> {
        let Some(path) = self.path("lock") else { return Ok(Some(StateLock(None))) };
        match fs::lock(&self.io(), &path, 0o600).await {
            Ok(file) => Ok(file.map(|file| StateLock(Some(file)))),
            Err(error) => Err(format!("\"{}\" can't be locked ({})", shown(&path), Errno(&error))),
        }
    }
}

/// The lock that excludes other instances.
pub struct StateLock(Option<fs::Lock>);

impl StateLock {
    /// Releases the lock for other instances and the next order.
    pub async fn release(self) {
        if let Some(lock) = self.0 {
            lock.release().await;
        }
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
