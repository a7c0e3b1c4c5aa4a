//! Sessions whose records the kernel seals (kTLS): their choice and hand-over.
//!
//! Called by the [layer](super::Tls) of a connection. What is received is opened here all the same:
//! only sending gains from the kernel, because files need not be read into memory.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use nowait_resolver::ResolverLog;
use nowait_runtime::pool::{Pool, blocking};
use nowait_runtime::spawn;
use nowait_sys::ktls::{self, Cipher, Keys, Offer, Suite};
use nowait_tls::{PLAINTEXT_BYTES_MAX, Sealing, SealingCipher, Session, split_record};

use super::io_error;

/// From this length of a file on, the kernel seals without being configured to. That costs three
/// system calls and a cipher in the kernel, which stays as long as the connection; what it saves is a
/// copy of the file, some 6 µs for 64 KB. A connection that sends files of this size is one for
/// downloads; on others, the kernel's cipher would have nothing to do.
const FILE_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// The type of records with key updates (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

static OFFER: OnceLock<Offer> = OnceLock::new();

static OFFLOADED: AtomicU64 = AtomicU64::new(0);
static FALLBACKS: AtomicU64 = AtomicU64::new(0);
static KEYS_REFUSED: AtomicU64 = AtomicU64::new(0);

/// A missing offer was reported.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// The connections that the kernel seals (`Options KTLS` of `ssl_conf_command`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelUse {
    /// None.
    Never,
    /// Connections that send a large file by `sendfile`.
    #[default]
    LargeFiles,
    /// All.
    Always,
}

/// Connections since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelTotals {
    /// Connections that the kernel seals or has sealed.
    pub offloaded: u64,
    /// Connections that the kernel could not seal.
    pub fallbacks: u64,
    /// Connections of `offloaded` that were closed because the client requested new keys (KeyUpdate), which
    /// kernels before 6.14 do not support.
    pub keys_refused: u64,
}

/// Counters of this process.
pub fn totals() -> KernelTotals {
    KernelTotals {
        offloaded: OFFLOADED.load(Relaxed),
        fallbacks: FALLBACKS.load(Relaxed),
        keys_refused: KEYS_REFUSED.load(Relaxed),
    }
}

/// Detects the kernel's ciphers, once per process. Runs in a pool, because the kernel may load a module
/// from a disk. Until the result is known, connections are sealed in the process.
pub(super) async fn learn(pool: &Pool) {
    if OFFER.get().is_none() {
        let ask = || *OFFER.get_or_init(|| ktls::probe().unwrap_or_default());
        // If the pool is full, the next connection tries again.
        let _ = blocking(pool, ask).await;
    }
}

/// Like [`learn`], without waiting for it.
pub(super) fn learn_meanwhile(pool: &Pool) {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if OFFER.get().is_none() && !ASKED.swap(true, Relaxed) {
        let pool = pool.clone();
        drop(spawn(async move {
            learn(&pool).await;
            ASKED.store(false, Relaxed);
        }));
    }
}

/// Reports, once, that the kernel does not support the configured sealing.
pub(super) fn report_missing(log: &ResolverLog) {
    if OFFER.get().is_some_and(|offer| !offer.is_any()) && !REPORTED.swap(true, Relaxed) {
        log(format_args!(
            "\"Options KTLS\" in \"ssl_conf_command\" has no effect: the kernel has no TLS, or its \
             module is not loaded (modprobe tls)"
        ));
    }
}

/// The kernel's part in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Never sealed by the kernel.
    None,
    /// To be sealed by the kernel later.
    Wanted(KernelUse),
    /// Sealed by the kernel.
    Seals,
}

impl Kernel {
    /// See [`Layer::offloads_from`](nowait_runtime::net::Layer::offloads_from).
    pub(super) fn offloads_from(self) -> Option<u64> {
        match self {
            Kernel::Wanted(KernelUse::Always) => Some(0),
            Kernel::Wanted(KernelUse::LargeFiles) => Some(FILE_BYTES_MIN),
            Kernel::Wanted(KernelUse::Never) | Kernel::None | Kernel::Seals => None,
        }
    }

    /// See [`Layer::offload`](nowait_runtime::net::Layer::offload).
    pub(super) fn offload(
        &mut self,
        session: &mut Session,
        socket: BorrowedFd<'_>,
    ) -> std::io::Result<bool> {
        // During a handshake with early data, it is too early.
        let Some((tls13, cipher)) = session.offloadable() else { return Ok(false) };
        let Some(offer) = OFFER.get() else { return Ok(false) };
        if !offer.has(suite(tls13, cipher)) || ktls::attach(socket).is_err() {
            *self = Kernel::None;
            FALLBACKS.fetch_add(1, Relaxed);
            return Ok(false);
        }
        // From here on, the connection can't return to sealing in the process. Since the detection has
        // succeeded, this fails only if the kernel has no memory.
        *self = Kernel::Seals;
        OFFLOADED.fetch_add(1, Relaxed);
        let keys = session.offload(offer.rekeys).map_err(io_error)?;
        let sealed = seal(socket, &keys);
        if sealed.is_err() {
            // The peer can't be notified by a record, because the kernel seals.
            session.end(&mut Vec::new());
        }
        sealed.map(|()| true)
    }
}

/// Sends a record made by the session. See [`Layer::transmit`](nowait_runtime::net::Layer::transmit).
pub(super) fn transmit(
    session: &mut Session,
    socket: BorrowedFd<'_>,
    records: &[u8],
) -> std::io::Result<usize> {
    let Some((kind, content, len)) = split_record(records) else {
        return Err(std::io::ErrorKind::InvalidData.into());
    };
    ktls::send_record(socket, kind, content)?;
    if kind == HANDSHAKE
        && let Some(keys) = session.take_keys()
    {
        seal(socket, &keys)?;
    }
    Ok(len)
}

/// The client has requested new keys, which can't be used.
pub(super) fn keys_refused() {
    KEYS_REFUSED.fetch_add(1, Relaxed);
}

/// The maximum number of records for this many bytes of one call.
pub(super) fn records(bytes: u64) -> u64 {
    bytes / PLAINTEXT_BYTES_MAX as u64 + 1
}

fn seal(socket: BorrowedFd<'_>, keys: &Sealing) -> std::io::Result<()> {
    let suite = suite(keys.is_tls13(), keys.cipher());
    let keys = Keys { suite, key: keys.key(), iv: keys.iv(), sequence: keys.sequence() };
    ktls::seal(socket, &keys)
}

fn suite(tls13: bool, cipher: SealingCipher) -> Suite {
    let cipher = match cipher {
        SealingCipher::Aes128Gcm => Cipher::Aes128Gcm,
        SealingCipher::Aes256Gcm => Cipher::Aes256Gcm,
        SealingCipher::Chacha20Poly1305 => Cipher::Chacha20Poly1305,
    };
    Suite { tls13, cipher }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_files_and_wishes_lead_to_the_kernel() {
        assert_eq!(Kernel::None.offloads_from(), None);
        assert_eq!(Kernel::Seals.offloads_from(), None);
        assert_eq!(Kernel::Wanted(KernelUse::Never).offloads_from(), None);
        assert_eq!(Kernel::Wanted(KernelUse::LargeFiles).offloads_from(), Some(FILE_BYTES_MIN));
        assert_eq!(Kernel::Wanted(KernelUse::Always).offloads_from(), Some(0));
    }

    #[test]
    fn no_call_has_more_records_than_are_counted() {
        assert_eq!(records(1), 1);
        assert_eq!(records(16 * 1024), 2);
        assert_eq!(records(16 * 1024 + 1), 2);
        assert_eq!(records(1024 * 1024), 65);
    }
}
