//! A directory that lives as long as its value.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A new directory below the system's temporary one, removed with all its contents on drop.
///
/// Every user may enter it (0755): the server under test drops its privileges. With
/// `NOWAIT_TESTS_KEEP=1` it stays for inspection.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
    keep: bool,
}

impl TempDir {
    /// Creates the directory; `label` is part of its name.
    ///
    /// # Panics
    /// If it cannot be created.
    #[track_caller]
    pub fn new(label: &str) -> TempDir {
        TempDir::below(&std::env::temp_dir(), label)
    }

    /// A directory in memory (tmpfs) with room for this many bytes and files, for data that would
    /// keep a busy machine's disk occupied for minutes. `None`: no tmpfs, or not enough room.
    ///
    /// # Panics
    /// If it cannot be created.
    #[track_caller]
    pub fn in_memory(label: &str, bytes: u64, files: u64) -> Option<TempDir> {
        /// statfs(2).
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        let root = Path::new("/dev/shm");
        let found = rustix::fs::statfs(root).ok()?;
        let has_room =
            found.f_bavail.saturating_mul(found.f_bsize as u64) >= bytes && found.f_ffree >= files;
        let is_tmpfs = found.f_type as u64 == TMPFS_MAGIC;
        (is_tmpfs && has_room).then(|| TempDir::below(root, label))
    }

    #[track_caller]
    fn below(root: &Path, label: &str) -> TempDir {
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("nowait-{label}-{}-{n}", std::process::id());
        let path = root.join(name);
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("mkdir {}: {e}", path.display()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .unwrap_or_else(|e| panic!("chmod {}: {e}", path.display()));
        TempDir { path, keep: std::env::var_os("NOWAIT_TESTS_KEEP").is_some() }
    }

    /// The absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory when the value is dropped.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Writes a file below it, creating missing directories, and returns its path.
    ///
    /// # Panics
    /// If it cannot be written.
    #[track_caller]
    pub fn write(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write_below(&self.path, relative, content.as_ref())
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if !self.keep {
            // Best effort: a test that failed half-way must not fail twice.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Writes `root/relative`, creating missing directories.
#[track_caller]
pub(crate) fn write_below(root: &Path, relative: &str, content: &[u8]) -> PathBuf {
    let path = root.join(relative);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).unwrap_or_else(|e| panic!("mkdir {}: {e}", parent.display()));
    }
    fs::write(&path, content).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_removed_with_its_content() {
        let dir = TempDir::new("temp");
        let file = dir.write("a/b/c", "x");
        assert_eq!(fs::read(&file).unwrap(), b"x");
        let path = dir.path().to_owned();
        drop(dir);
        assert!(!path.exists() || std::env::var_os("NOWAIT_TESTS_KEEP").is_some());
    }
}
