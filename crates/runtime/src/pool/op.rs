//! The properties of a pool's task: the operation, its class, and its owner.

/// The kind of work of a task, for the order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Short work on names and metadata: open, stat, rename, … Not stuck behind [`Class::Bulk`].
    Path = 0,
    /// Work on contents or of unknown length: read, write, sendfile, sync, blocking libraries.
    Bulk = 1,
}

/// The client and the file of a task, for the order of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The client, or the connection. Clients take turns; those that have used the pool little
    /// lately go first, and no client but 0 gets every thread. 0: none in particular.
    pub client: u64,
    /// The file, by a number that is practically random. Tasks on files that have kept the pool
    /// busy lately run later. 0: none.
    pub file: u64,
}

impl From<u64> for Owner {
    /// A client without a file.
    fn from(client: u64) -> Owner {
        Owner { client, file: 0 }
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The operation of a task: the label of its counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op { $($(#[$doc])* $name,)* }

        impl Op {
            /// Every operation, in the order of the counters.
            pub const ALL: &[Op] = &[$(Op::$name),*];

            /// The name in metrics.
            pub fn name(self) -> &'static str {
                match self { $(Op::$name => $text,)* }
            }
        }
    };
}

ops! {
    Open = "open",
    Stat = "stat",
    Read = "read",
    Send = "send",
    Create = "create",
    Write = "write",
    Rename = "rename",
    Unlink = "unlink",
    Mkdir = "mkdir",
    ReadDir = "read_dir",
    Sync = "sync",
    /// Closing files that may take long to close: deleted files, files of network file systems.
    Close = "close",
    /// A closure passed to [`blocking`](super::blocking).
    Blocking = "blocking",
}
