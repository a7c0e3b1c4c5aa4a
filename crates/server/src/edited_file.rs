//! A configuration file that a command rewrites: replaced as a whole, or not at all.
//!
//! Called by the commands that change configurations. The new text is written beside the file, with its
//! mode and owner, and renamed over it when it is on the disk. Of a symbolic link, the target is
//! replaced. A file with hard links is refused: its other names would keep the old text. Never called by
//! the server.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use nowait_conf::Disk;

use crate::log::OsErrorText;

/// A file as it was read.
pub struct EditedFile {
    /// Without symbolic links.
    path: PathBuf,
    metadata: Metadata,
    /// The contents.
    pub text: Vec<u8>,
}

impl EditedFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is not a regular file, or is too large for a configuration.
    pub fn read(path: &Path) -> Result<EditedFile, String> {
        let shown = path.display();
        let failed =
            |error: io::Error| format!("open() \"{shown}\" failed {}", OsErrorText(&error));
        let path = fs::canonicalize(path).map_err(failed)?;
        // Opening a FIFO would wait for a writer.
        if !fs::metadata(&path).map_err(failed)?.is_file() {
            return Err(format!("\"{shown}\" is not a regular file"));
        }
        let file = File::open(&path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let text = bounded(file).map_err(|error| format!("\"{shown}\": {error}"))?;
        Ok(EditedFile { path, metadata, text })
    }

    /// Replaces the contents.
    ///
    /// # Errors
    /// The file is unchanged: it cannot be written, has other names, its owner cannot be kept, or it has
    /// changed since it was read.
    pub fn replace(&self, text: &[u8]) -> Result<(), String> {
        let shown = self.path.display();
        if self.metadata.nlink() > 1 {
            return Err(format!(
                "\"{shown}\" has {} names (hard links), of which only one would be changed; remove the \
                 others, or replace them by symbolic links",
                self.metadata.nlink()
            ));
        }
        let failed =
            |error: io::Error| format!("cannot write \"{shown}\": {}", OsErrorText(&error));
        // A file that may not be written is not replaced either.
        OpenOptions::new().append(true).open(&self.path).map_err(failed)?;
        let new = self.beside();
        let result = self.write(&new, text).map_err(failed).and_then(|()| {
            if !self.is_unchanged() {
                return Err(format!("\"{shown}\" was changed by another program meanwhile"));
            }
            fs::rename(&new, &self.path).map_err(failed)
        });
        if result.is_err() {
            // It may not exist; the first error is the one to report.
            let _ = fs::remove_file(&new);
        }
        result
    }

    /// Hidden, and with a suffix that no pattern of an `include` is likely to match.
    fn beside(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}.{}.new", std::process::id()))
    }

    fn write(&self, new: &Path, text: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
        file.write_all(text)?;
        let created = file.metadata()?;
        let owner = (self.metadata.uid(), self.metadata.gid());
        if (created.uid(), created.gid()) != owner {
            fchown(&file, Some(owner.0), Some(owner.1))?;
        }
        file.set_permissions(self.metadata.permissions())?;
        file.sync_all()
    }

    fn is_unchanged(&self) -> bool {
        let facts = |m: &Metadata| (m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec());
        fs::metadata(&self.path).is_ok_and(|now| facts(&now) == facts(&self.metadata))
    }
}

/// Reads the whole file, up to the maximum size of a configuration file.
///
/// # Errors
/// The message to print.
pub fn bounded(source: impl Read) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let read = source.take(Disk::FILE_BYTES_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| format!("read() failed {}", OsErrorText(&error)))?;
    if text.len() as u64 > Disk::FILE_BYTES_MAX {
        return Err("the file is too large for a configuration".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use nowait_testkit::TempDir;

    use super::*;

    #[test]
    fn mode_and_links_are_kept() {
        let dir = TempDir::new("edited");
        let path = dir.write("a.conf", "old");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("link.conf");
        std::os::unix::fs::symlink("a.conf", &link).unwrap();
        let file = EditedFile::read(&link).unwrap();
        assert_eq!(file.text, b"old");
        file.replace(b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left behind");
    }

    #[test]
    fn a_file_that_changed_meanwhile_stays() {
        let dir = TempDir::new("edited");
        let path = dir.write("a.conf", "old");
        let file = EditedFile::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        dir.write("a.conf", "other");
        assert!(file.replace(b"new").unwrap_err().contains("meanwhile"));
        assert_eq!(fs::read(&path).unwrap(), b"other");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn a_file_with_other_names_stays() {
        let dir = TempDir::new("edited");
        let path = dir.write("a.conf", "old");
        fs::hard_link(&path, dir.path().join("b.conf")).unwrap();
        let message = EditedFile::read(&path).unwrap().replace(b"new").unwrap_err();
        assert!(message.contains("has 2 names (hard links)"), "{message}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn other_kinds_of_files_are_refused() {
        let dir = TempDir::new("edited");
        for path in [dir.path(), &dir.path().join("none"), Path::new("/dev/null")] {
            assert!(EditedFile::read(path).is_err(), "{}", path.display());
        }
    }
}
