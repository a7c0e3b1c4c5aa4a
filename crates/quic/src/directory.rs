//! The workers of a process, as their datagrams find them: each connection ID carries, encrypted, the number of the
//! worker that has its connection.
//!
//! One per process, kept by reloads. Workers register when their endpoints are made.

use std::sync::Arc;

use crate::{Counters, HostKey};

/// The workers of a process, and what they share.
pub struct Directory {
    counters: Counters,
}

impl Directory {
    /// Of a process with this key.
    pub fn new(key: &HostKey) -> Arc<Directory> {
        let _ = key;
        todo!()
    }

    /// Another key, after a reload: it counts for new tokens and connections; those of the key before remain
    /// valid.
    pub fn set_key(&self, key: &HostKey) {
        let _ = key;
        todo!()
    }

    /// Counters of all workers.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
