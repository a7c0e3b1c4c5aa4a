//! The answers of this machine to `nowait lint`: directories, users, certificates.
//!
//! Used by `lint_command` for the configuration of this machine. Looks at names and permissions only, and reads
//! certificates. What it can't find out counts as right.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nowait_lint::{DirectoryState, Surroundings};
use nowait_sys::user;

/// Larger files are no certificates.
const CERTIFICATE_BYTES_MAX: u64 = 1024 * 1024;

/// This machine.
pub struct ThisMachine {
    /// The directory of the main file, from which names of certificates begin.
    pub directory: PathBuf,
}

impl Surroundings for ThisMachine {
    fn directory(&self, path: &str, user: &str) -> DirectoryState {
        let Ok(Some(identity)) = user::account(user) else { return DirectoryState::Usable };
        let path = Path::new(path);
        match std::fs::metadata(path) {
            Ok(found) if !found.is_dir() => return DirectoryState::Missing,
            Err(error) if error.kind() == ErrorKind::NotFound => return DirectoryState::Missing,
            // Another user's directory: root finds out more.
            Err(_) => return DirectoryState::Usable,
            Ok(_) => {}
        }
        let mut ancestors: Vec<&Path> = path.ancestors().collect();
        ancestors.reverse();
        for directory in ancestors {
            let Ok(found) = std::fs::metadata(directory) else { return DirectoryState::Usable };
            if is_closed(found.mode(), found.uid(), found.gid(), identity.uid, identity.gid) {
                return DirectoryState::Denied(directory.display().to_string());
            }
        }
        DirectoryState::Usable
    }

    fn expired(&self, path: &str) -> Option<String> {
        let path = self.directory.join(path);
        let found = std::fs::metadata(&path).ok()?;
        if !found.is_file() || found.len() > CERTIFICATE_BYTES_MAX {
            return None;
        }
        nowait_front::tls::files::expired(&std::fs::read(&path).ok()?, SystemTime::now())
    }
}

/// Whether a directory with this mode, owner and group can certainly not be entered by a user.
fn is_closed(mode: u32, owner: u32, group: u32, uid: u32, gid: u32) -> bool {
    const ENTER: u32 = 0o1;
    let others = mode & ENTER == 0;
    let members = (mode >> 3) & ENTER == 0;
    if uid == 0 {
        false
    } else if uid == owner {
        (mode >> 6) & ENTER == 0
    } else if gid == group {
        members
    } else {
        // The user may belong to the group besides; entries of access lists show in the bits of the group.
        others && members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions() {
        for (mode, uid, gid, closed) in [
            (0o700, 5, 5, true),
            (0o700, 1, 5, false),
            (0o600, 1, 5, true),
            (0o700, 0, 0, false),
            (0o750, 5, 2, false),
            (0o740, 5, 2, true),
            // Perhaps a member of the group.
            (0o750, 5, 5, false),
            (0o711, 5, 5, false),
            // The group is shut out, others are not.
            (0o705, 5, 2, true),
        ] {
            assert_eq!(is_closed(mode, 1, 2, uid, gid), closed, "{mode:o} {uid} {gid}");
        }
    }
}
