//! Names that issuers of certificates validate by `tls-alpn-01` (RFC 8737).
//!
//! Whoever orders certificates publishes here what an issuer is to see; every handshake of the process looks
//! here, whatever its server, because an issuer may ask at any listening socket. That is why this state
//! belongs to the process, and not to a generation of the configuration.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nowait_tls::pem::{self, PrivateKey};
use nowait_tls::{Error, Hello, Identity, Server, ServerSettings};

/// The application protocol of validations.
const PROTOCOL: &[u8] = b"acme-tls/1";

/// Validations at a time, over all issuers.
const PENDING_MAX: usize = 1000;

/// Whether validations are answered at all. Without it, the protocol is like any other.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// What is presented, by server name.
static PENDING: Mutex<BTreeMap<String, Server>> = Mutex::new(BTreeMap::new());

fn pending() -> MutexGuard<'static, BTreeMap<String, Server>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers validations from now on, or no longer.
pub fn set_answers(on: bool) {
    ANSWERS.store(on, Ordering::Relaxed);
}

/// Whether a client wants to validate a name. RFC 8737, 3: it offers this protocol alone.
pub(super) fn is_asked(hello: &Hello) -> bool {
    ANSWERS.load(Ordering::Relaxed) && hello.offers_only(PROTOCOL)
}

/// The server for a name that is being validated.
pub(super) fn find(name: &str) -> Option<Server> {
    pending().get(name).cloned()
}

/// Presents this certificate with its key, in PEM, to whoever validates `name`.
///
/// # Errors
/// They are unusable, or too many names are being validated.
pub fn publish(name: &str, file: &str) -> Result<(), Error> {
    let key = PrivateKey::from_pem(file.as_bytes(), &[])?;
    let identity = Identity::new(pem::certificates(file.as_bytes())?, &key, None)?;
    let server = Server::new(ServerSettings {
        identities: vec![identity],
        alpn: vec![PROTOCOL.to_vec()],
        ..ServerSettings::default()
    })?;
    let mut pending = pending();
    if pending.len() >= PENDING_MAX {
        return Err(Error::Settings(format!("{PENDING_MAX} names are being validated")));
    }
    pending.insert(name.to_owned(), server);
    Ok(())
}

/// The validation of a name has ended.
pub fn withdraw(name: &str) {
    pending().remove(name);
}
