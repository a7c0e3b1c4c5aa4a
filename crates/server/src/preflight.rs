//! `-t`: problems with files, directories and addresses that would make a start fail, found without
//! changing anything.
//!
//! Called by `main` after the configuration was read. Of files, it examines only names and
//! permissions (`stat`, `access`): it creates, opens and changes nothing, so a start may still fail
//! if another process changes the directories meanwhile. IP addresses are bound for a moment, but
//! nothing listens there.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nowait_sys::listen::{self, ListenAddress, ListenError, ListenSpec};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::config::Loaded;
use crate::config_path::ConfigPath;
use crate::log::failed;
use crate::sockets;

/// A reason why a start would fail.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In the wording of a start: `open() "PATH" failed (2: No such file or directory)`.
    pub message: String,
    /// The hint.
    pub hint: String,
}

/// All reasons why a start with this configuration would fail.
pub fn check(loaded: &Loaded, place: &ConfigPath) -> Vec<Refusal> {
    let mut preflight = Preflight::default();
    for directory in &loaded.needs.directories {
        preflight.directory(directory);
    }
    // A start creates this directory if a log is in it.
    let default_logs = place.prefix.join("logs");
    let main_logs = loaded.settings.error_logs.iter().filter_map(|log| log.file());
    for log in main_logs.chain(loaded.needs.logs.iter().map(PathBuf::as_path)) {
        if log.parent() == Some(&default_logs) {
            preflight.directory(&default_logs);
        }
        preflight.file(log);
    }
    if !loaded.settings.pid.as_os_str().is_empty() {
        preflight.file(&loaded.settings.pid);
    }
    if let Some(directory) = &loaded.settings.process.working_directory
        && let Err(error) = access(directory, Access::EXEC_OK)
    {
        preflight.refuse("chdir()", directory, error);
    }
    for spec in &loaded.needs.listens {
        preflight.address(spec);
    }
    preflight.refusals
}

#[derive(Default)]
struct Preflight {
    /// Directories that the start would create.
    made: HashSet<PathBuf>,
    /// Files and directories already examined.
    seen: HashSet<PathBuf>,
    refusals: Vec<Refusal>,
}

impl Preflight {
    /// A directory that the start creates if it is missing.
    fn directory(&mut self, path: &Path) {
        if !self.seen.insert(path.to_owned()) {
            return;
        }
        match access(path, Access::EXISTS) {
            Ok(()) => {}
            Err(Errno::NOENT) => match self.parent_takes(path) {
                Ok(()) => drop(self.made.insert(path.to_owned())),
                Err(error) => self.refuse("mkdir()", path, error),
            },
            Err(error) => self.refuse("mkdir()", path, error),
        }
    }

    /// A file that the start opens for writing, and creates if it is missing.
    fn file(&mut self, path: &Path) {
        if !self.seen.insert(path.to_owned()) {
            return;
        }
        let result = match access(path, Access::WRITE_OK) {
            Ok(()) if path.is_dir() => Err(Errno::ISDIR),
            Err(Errno::NOENT) => self.parent_takes(path),
            other => other,
        };
        if let Err(error) = result {
            self.refuse("open()", path, error);
        }
    }

    /// An address that the start listens on. If it is in use, that may be by the server that the
    /// configuration is for (nginx ignores it too).
    fn address(&mut self, spec: &ListenSpec) {
        match &spec.address {
            ListenAddress::Unix(path) => {
                let result = match access(path, Access::EXISTS) {
                    Err(Errno::NOENT) => self.parent_takes(path),
                    other => other,
                };
                if let Err(error) = result {
                    let step = format!("bind() to {}", spec.address);
                    let message =
                        sockets::ListenErrorText(&ListenError { step, error: error.into() })
                            .to_string();
                    self.refusals.push(Refusal { message, hint: hint("bind()", path, error) });
                }
            }
            ListenAddress::Inet(_) | ListenAddress::Udp(_) => {
                if let Err(error) = listen::probe(spec)
                    && !error.is_in_use()
                {
                    let hint = match error.error.kind() {
                        ErrorKind::PermissionDenied if !nowait_sys::process::is_root() => AS_USER,
                        _ => sockets::hint(&spec.address, &error).unwrap_or("correct the address"),
                    };
                    let message = sockets::ListenErrorText(&error).to_string();
                    self.refusals.push(Refusal { message, hint: hint.to_owned() });
                }
            }
        }
    }

    /// Whether an entry can be created in the directory of `path`.
    fn parent_takes(&self, path: &Path) -> Result<(), Errno> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        if self.made.contains(parent) {
            return Ok(());
        }
        if parent.exists() && !parent.is_dir() {
            return Err(Errno::NOTDIR);
        }
        access(parent, Access::WRITE_OK | Access::EXEC_OK)
    }

    fn refuse(&mut self, call: &str, path: &Path, error: Errno) {
        let message = failed(call, path, &error.into());
        self.refusals.push(Refusal { message, hint: hint(call, path, error) });
    }
}

/// The hint if rights are missing that another user may have.
const AS_USER: &str = "run the check as the user that starts the server, often root";

/// The hint for a call that would fail for a path.
fn hint(call: &str, path: &Path, error: Errno) -> String {
    let parent = path.parent().unwrap_or(Path::new("/")).display();
    match error {
        Errno::NOENT if call == "chdir()" => "create the directory, or name another one".to_owned(),
        Errno::NOENT => format!("create the directory \"{parent}\", or name another one"),
        Errno::NOTDIR => format!("\"{parent}\" is a file; name a directory"),
        Errno::ISDIR => "name a file in the directory".to_owned(),
        Errno::ACCESS | Errno::PERM if !nowait_sys::process::is_root() => AS_USER.to_owned(),
        Errno::ROFS => "the file system is mounted read-only; name another place".to_owned(),
        _ => "correct the path or its rights".to_owned(),
    }
}

/// Checks the permissions of this process with the kernel.
fn access(path: &Path, access: Access) -> Result<(), Errno> {
    accessat(CWD, path, access, AtFlags::EACCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(preflight: &Preflight) -> Vec<&str> {
        let tail = |refusal: &Refusal| refusal.message.rfind('/').map_or(0, |at| at + 1);
        preflight.refusals.iter().map(|refusal| &refusal.message[tail(refusal)..]).collect()
    }

    #[test]
    fn paths() {
        let dir = std::env::temp_dir().join(format!("nowait-preflight-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("file"), "").unwrap();
        let before = std::fs::metadata(&dir).unwrap().modified().unwrap();
        let mut preflight = Preflight::default();
        preflight.directory(&dir.join("new"));
        preflight.file(&dir.join("new/log"));
        preflight.file(&dir.join("file"));
        preflight.file(&dir.join("absent"));
        assert_eq!(preflight.refusals, []);
        preflight.directory(&dir.join("a/b"));
        preflight.file(&dir.join("c/log1"));
        preflight.file(&dir.join("c/log1"));
        preflight.file(&dir.join("file/log2"));
        preflight.file(&dir);
        let directory = dir.file_name().unwrap().to_str().unwrap();
        assert_eq!(
            names(&preflight),
            [
                "b\" failed (2: No such file or directory)",
                "log1\" failed (2: No such file or directory)",
                "log2\" failed (20: Not a directory)",
                &format!("{directory}\" failed (21: Is a directory)"),
            ]
        );
        assert_eq!(std::fs::metadata(&dir).unwrap().modified().unwrap(), before);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
