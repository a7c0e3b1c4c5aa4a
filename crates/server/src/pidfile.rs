//! The pid file: written once the sockets listen, read by `-s`, renamed during an upgrade.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::control;
use crate::log::{Level, StartupLog, failed};

/// Maximum bytes read of a pid file: more than any number has.
const PID_BYTES_MAX: u64 = 32;

/// A pid file that this process owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes the ID of this process. An empty path means no file.
    ///
    /// # Errors
    /// The message for the log: the file cannot be written, or it belongs to another master that
    /// serves.
    pub fn create(path: &Path) -> Result<PidFile, String> {
        // nginx differs: it overwrites the file, and `-s` no longer reaches the first server.
        // During an upgrade the old master has already renamed its file.
        if !path.as_os_str().is_empty()
            && let Ok(pid) = read(path)
            && pid != std::process::id()
            && control::is_serving(pid)
        {
            return Err(format!(
                "the pid file \"{}\" belongs to a running server, process {pid}",
                path.display()
            ));
        }
        PidFile::create_for(std::process::id(), path)
    }

    /// Writes the ID of another process: the daemon's, by the process that started it, so that the
    /// file exists when the command returns.
    ///
    /// # Errors
    /// The message for the log.
    pub fn create_for(pid: u32, path: &Path) -> Result<PidFile, String> {
        if path.as_os_str().is_empty() {
            return Ok(PidFile { path: PathBuf::new() });
        }
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(path)
            .and_then(|mut file| file.write_all(format!("{pid}\n").as_bytes()))
            .map_err(|error| failed("open()", path, &error))?;
        Ok(PidFile { path: path.to_owned() })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, which an upgrade in progress may have renamed to [`old_path`], unless
    /// another process has written its own ID there.
    pub fn remove(&self, upgrading: bool, log: &StartupLog) {
        if self.path.as_os_str().is_empty() {
            return;
        }
        let path = if upgrading { old_path(&self.path) } else { self.path.clone() };
        if path.exists() && read(&path) != Ok(std::process::id()) {
            log.log(
                Level::Notice,
                format_args!("the pid file \"{}\" is of another process, kept", path.display()),
            );
            return;
        }
        if let Err(error) = std::fs::remove_file(&path) {
            log.log(Level::Alert, failed("unlink()", &path, &error));
        }
    }

    /// Renames the file, to make room for the new master's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn move_away(&self) -> std::io::Result<()> {
        std::fs::rename(&self.path, old_path(&self.path))
    }

    /// Undoes [`PidFile::move_away`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn move_back(&self) -> std::io::Result<()> {
        std::fs::rename(old_path(&self.path), &self.path)
    }
}

/// The name during an upgrade: the path with `.oldbin` appended.
pub fn old_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".oldbin");
    name.into()
}

/// The hint if the file cannot be read.
pub fn hint(path: &Path) -> &'static str {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "no server runs with this configuration; -p, -c and \"pid\" choose it"
        }
        Err(_) => "the directory may be entered by other users only",
        Ok(_) => "the file is readable by other users only, or is not a pid file",
    }
}

/// Reads the process ID of a running master.
///
/// # Errors
/// The message for the log, in nginx's words.
pub fn read(path: &Path) -> Result<u32, String> {
    let mut text = Vec::new();
    std::fs::File::open(path)
        .map_err(|error| failed("open()", path, &error))?
        .take(PID_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|error| failed("read()", path, &error))?;
    let text = text.trim_ascii_end();
    let number = std::str::from_utf8(text).ok();
    match number.filter(|n| n.bytes().all(|b| b.is_ascii_digit())).and_then(|n| n.parse().ok()) {
        Some(pid) if pid > 0 => Ok(pid),
        _ => Err(format!(
            "invalid PID number \"{}\" in \"{}\"",
            String::from_utf8_lossy(text),
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_read_moved_removed() {
        let path = std::env::temp_dir().join(format!("nowait-pid-{}", std::process::id()));
        let file = PidFile::create(&path).unwrap();
        assert_eq!(read(&path), Ok(std::process::id()));
        file.move_away().unwrap();
        assert!(read(&path).unwrap_err().ends_with("failed (2: No such file or directory)"));
        file.move_back().unwrap();
        std::fs::write(&path, "12x\n").unwrap();
        let expected = format!("invalid PID number \"12x\" in \"{}\"", path.display());
        assert_eq!(read(&path), Err(expected));
        let log = StartupLog::stderr(Level::Emerg);
        file.remove(false, &log);
        assert!(path.exists(), "not the file that was written");
        PidFile::create(&path).unwrap().remove(false, &log);
        assert!(!path.exists());
    }
}
