//! What the program needs from the protocols it serves, so that processes, sockets, signals and
//! reloads know no HTTP.
//!
//! [`Service`] is implemented by `http_service.rs` over the `http` crate. The order of events:
//!
//! 1. the master reads the configuration (it interprets every directive) and gets a [`Plan`];
//! 2. it opens the plan's listeners and logs, as root, and makes its directories;
//! 3. the server process reads the same texts, gets an equal plan, and calls
//!    [`Plan::activate`] with the descriptors;
//! 4. workers serve connections with the newest generation until told to stop.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nowait_sys::listen::ListenSpec;

/// A directory that the service writes to: made by the master before it gives up root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorySpec {
    /// Where; made with mode 0700, owned by the user of the server process.
    pub path: PathBuf,
}

/// One configuration, understood and checked, not yet in use.
pub trait Plan: Send {
    /// Every listening socket, once per address.
    fn listens(&self) -> Vec<ListenSpec>;

    /// Files to open for appending: access and error logs of every level.
    fn logs(&self) -> Vec<PathBuf>;

    /// Directories to make.
    fn directories(&self) -> Vec<DirectorySpec>;
}

/// What the master opened for a generation. Descriptors are this generation's own: closing them
/// closes no other generation's.
#[derive(Debug, Default)]
pub struct Resources {
    /// Number of the generation, counted from 1 by the master.
    pub number: u64,
    /// Per plan listener (same order as [`Plan::listens`]): its sockets. One, or several with
    /// `reuseport`; there may be more than workers after a reload that lowered their number, and
    /// then the workers share them so that none is left without a reader.
    pub listeners: Vec<Vec<OwnedFd>>,
    /// The open logs by path.
    pub logs: HashMap<PathBuf, File>,
}
