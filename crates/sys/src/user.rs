//! Users and groups: look-up by name, and dropping root privileges.
//!
//! Called while the configuration is read (`user`) and by the server process before it starts
//! threads.

use std::ffi::CString;
use std::io;

use nix::unistd::{Gid, Group, Uid, User};

/// The identity that the server process takes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The user whose supplementary groups are used.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The failed step of dropping root privileges.
#[derive(Debug)]
pub enum DropError {
    /// `setgid`.
    Group(io::Error),
    /// `initgroups`.
    Groups(io::Error),
    /// `setuid`.
    User(io::Error),
}

/// Effective user id of this process.
pub fn effective_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// The user with this name, and its primary group; `None` when there is no such user.
///
/// # Errors
/// When the user database cannot be read.
pub fn account(name: &str) -> io::Result<Option<ProcessIdentity>> {
    Ok(User::from_name(name)?.map(|user| ProcessIdentity {
        name: name.to_owned(),
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
    }))
}

/// Id of the group with this name; `None` when there is no such group.
///
/// # Errors
/// When the group database cannot be read.
pub fn gid_of(name: &str) -> io::Result<Option<u32>> {
    Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// Permanently becomes `identity`: group, supplementary groups, user, in this order, for all
/// threads.
///
/// # Errors
/// The step that failed; the process must not start serving then.
pub fn become_identity(identity: &ProcessIdentity) -> Result<(), DropError> {
    let gid = Gid::from_raw(identity.gid);
    nix::unistd::setgid(gid).map_err(|e| DropError::Group(e.into()))?;
    let name = CString::new(identity.name.as_str())
        .map_err(|_| DropError::Groups(io::Error::from_raw_os_error(libc::EINVAL)))?;
    nix::unistd::initgroups(&name, gid).map_err(|e| DropError::Groups(e.into()))?;
    nix::unistd::setuid(Uid::from_raw(identity.uid)).map_err(|e| DropError::User(e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_nonsense_is_not() {
        assert_eq!(account("root").unwrap().unwrap().uid, 0);
        assert_eq!(gid_of("root").unwrap(), Some(0));
        assert_eq!(account("no such user").unwrap(), None);
    }
}
