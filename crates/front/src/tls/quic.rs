//! TLS of connections over QUIC, where the handshake is a part of the transport: what a server's choice leaves to do
//! once it is complete.
//!
//! Called by the code that serves connections over QUIC. The handshake itself is the endpoint's.

use nowait_tls::{Hello, Session, TlsServer};

use super::kernel::KernelUse;
use super::ocsp::FAILED;
use super::trust::Verdicts;
use super::{Chosen, ClientOffer, KeyLogging, OcspCheck, Tls};
use crate::tls::trust::ClientTrust;
use std::sync::Arc;

/// The remaining steps of a handshake.
pub struct QuicHandshake {
    offered: Option<Box<ClientOffer>>,
    judge: Option<Arc<ClientTrust>>,
    ocsp: Option<OcspCheck>,
    key_log: Option<KeyLogging>,
}

impl Chosen {
    /// The server for a client's hello, and what is to be done when the handshake is complete.
    pub fn over_quic(self, hello: &Hello) -> (TlsServer, QuicHandshake) {
        // The kernel seals no packets of QUIC.
        let Chosen { server, keeps_offers, judge, ocsp, key_log, kernel: _, kernel_log: _ } = self;
        let offered = keeps_offers.then(|| Box::new(hello.offered()));
        (server, QuicHandshake { offered, judge, ocsp, key_log })
    }
}

impl QuicHandshake {
    /// The handshake is complete, or its early data can be read: writes its secrets to the log, and asks for the
    /// status of the client's certificate.
    pub async fn complete(self, session: Session) -> Tls {
        let QuicHandshake { offered, judge, ocsp, key_log } = self;
        if let Some(KeyLogging { file, pool, log }) = key_log {
            file.flush(&pool, &log);
        }
        let mut tls = Tls::new(session, offered);
        tls.kernel = super::Kernel::Wanted(KernelUse::Never);
        tls.verdicts = Verdicts::of(judge.as_deref());
        if let Some(check) = ocsp {
            // Until a handshake with early data is complete, there is no certificate to check, and none is
            // trusted.
            tls.status.set(Err(FAILED));
            if !tls.session.is_handshaking() {
                tls.status.set(check.of.check(tls.session.path(), &check.asking).await);
            }
        }
        tls
    }
}
