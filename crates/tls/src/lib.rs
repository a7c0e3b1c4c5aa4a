//! TLS for both sides, sans-IO, on rustls.
//!
//! An [`Acceptor`] collects a ClientHello, by which the caller chooses a [`TlsServer`]; [`TlsClient`]
//! begins connections to servers. Both lead to a [`Session`], which turns received bytes into
//! plaintext and plaintext into bytes to be sent. Around it: certificates and keys
//! ([`pem`], [`Identity`]), the settings in OpenSSL's words ([`Ciphers`], [`Groups`]), tickets and
//! caches, verification ([`Verifier`]), and what variables show ([`Certificate`]).
//!
//! Nothing here knows sockets, files, threads, HTTP, or the language of configurations. Two things
//! come from outside unasked: random numbers, and the date, for the validity of certificates and
//! sessions.
//!
//! rustls' unbuffered connections are the base, because an idle connection then holds no buffer: the
//! buffered ones keep the 4 KB that they last read into. Their contract is kept in `session.rs` and
//! `steps.rs` alone.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acceptor;
mod cache;
mod certificate;
mod ciphers;
mod client;
mod client_offer;
mod compression;
mod der;
mod derivation;
mod encrypted_keys;
mod error;
mod established_session;
mod field_reader;
mod groups;
mod hostname;
mod identity;
mod ja4;
mod list;
mod name;
pub mod ocsp;
mod p521;
mod path;
pub mod pem;
pub mod quic;
mod seal;
mod server;
mod session;
mod steps;
mod tickets;
mod transcript;
mod verify;

/// The underlying libraries, for the text of `-V`.
pub const LIBRARY: &str = "rustls 0.23 (AWS-LC, aws-lc-rs 1.19)";

pub use acceptor::{Acceptor, HELLO_BYTES_MAX, Hello, Refusal};
pub use cache::SessionCache;
pub use certificate::{Certificate, KeyKind};
pub use ciphers::Ciphers;
pub use client::{ClientSettings, TlsClient};
pub use client_offer::ClientOffer;
pub use error::{Error, Fault};
pub use established_session::split_record;
pub use groups::Groups;
pub use hostname::is_for;
pub use identity::Identity;
pub use rustls::KeyLog;
pub use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
pub use seal::{Sealing, SealingCipher};
pub use server::{ClientCertificates, SESSION_TIMEOUT, ServerSettings, TlsServer, Versions};
pub use session::{OpenProgress, PLAINTEXT_BYTES_MAX, Session, Stop};
pub use tickets::{TICKET_KEYS_MAX, TicketKey, TicketKeys};
pub use verify::{Distrust, Role, Verifier};

/// Prepares a thread for random numbers. The first ones of a process look for devices of virtual machines,
/// and the first ones of a thread ask the kernel for a seed: event loops must have done that before they
/// begin.
///
/// # Errors
/// The kernel gives no random numbers.
pub fn prepare_thread() -> Result<(), Error> {
    let mut number = [0];
    aws_lc_rs::rand::fill(&mut number)
        .map_err(|_| Error::Settings("the system has no random numbers".to_owned()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_library_is_the_one_that_is_linked() {
        let lock = include_str!("../../../Cargo.lock");
        let version = |name: &str| {
            let package = lock.split(&format!("name = \"{name}\"\nversion = \"")).nth(1).unwrap();
            package.split('.').take(2).collect::<Vec<_>>().join(".")
        };
        let (rustls, aws) = (version("rustls"), version("aws-lc-rs"));
        assert_eq!(super::LIBRARY, format!("rustls {rustls} (AWS-LC, aws-lc-rs {aws})"));
    }
}
