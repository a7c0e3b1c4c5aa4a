//! The secret of a host, from which the keys of tokens, stateless resets and connection IDs are derived
//! (`quic_host_key`).
//!
//! Workers, generations and, with a file, processes share it: a token or a connection ID of one is understood by
//! all.

use std::fmt;

/// Bytes of a key that `quic_host_key` names, at least; further ones are used as well.
pub const HOST_KEY_BYTES_MIN: usize = 32;

/// The secret.
#[derive(Clone, PartialEq, Eq)]
pub struct HostKey {
    secret: Vec<u8>,
}

impl HostKey {
    /// The content of the file that `quic_host_key` names. `None`: shorter than [`HOST_KEY_BYTES_MIN`].
    pub fn new(secret: &[u8]) -> Option<HostKey> {
        (secret.len() >= HOST_KEY_BYTES_MIN).then(|| HostKey { secret: secret.to_vec() })
    }

    /// A random secret, for a process without a file. It is made once, and kept by reloads.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn random() -> HostKey {
        todo!()
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostKey")
    }
}
