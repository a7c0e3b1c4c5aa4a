//! Issuers that lie or make no sense.

use super::issuer::Issuer;
use super::pebble::{presented, wait_for_other};

#[test]
fn lies_are_found_out() {
    for (lie, expected) in [
        ("redirect", "the issuer refused the request for its directory with status 307"),
        ("oversized", "the response is too large, while asking https://localhost:"),
        ("key", "the issuer sent an unusable certificate: SSL_CTX_use_PrivateKey() failed"),
        ("names", "the issuer sent an unusable certificate: the certificate is not for localhost"),
        ("private", "the issuer sent more than certificates"),
        ("garbage", "the issuer sent an unusable certificate: "),
        // Not for ever, but for a week.
        ("busy", "(rateLimited: later); next attempt in 604800 s"),
    ] {
        let Some(issuer) = Issuer::start(&[lie]) else { return };
        let server = issuer.site("", "").start();
        server.wait_log("next attempt in");
        assert!(server.log().contains(expected), "{lie}: {}", server.log());
        assert!(presented(&server).is_none(), "{lie}");
        server.stop();
    }
}

/// An issuer that wants every certificate to be renewed before it was issued.
#[test]
fn renewals_in_the_past_are_no_circle() {
    let Some(issuer) = Issuer::start(&["past"]) else { return };
    let server = issuer.site("", "").start();
    let own = wait_for_other(&server, None);
    server.wait_log("localhost is to be renewed in 0 hours");
    server.reload();
    // Each takes about as long as an order.
    for _ in 0..10 {
        assert_eq!(presented(&server).as_ref(), Some(&own));
    }
    assert_eq!(server.log().matches("new certificate for localhost").count(), 1);
    server.stop();
}
