//! `$ssl_*`: facts of a session, for the variables of every protocol. nginx: `ngx_ssl_get_*`.
//!
//! [`tls_variables!`](crate::tls_variables) makes a protocol's table of them. Each function appends
//! a value; false: there is none.

use std::time::SystemTime;

use data_encoding::HEXLOWER;
use nowait_tls::Certificate;

use super::Tls;
use super::trust::{ClientTrust, ClientVerdict};

/// A session as the variables of a server show it.
#[derive(Clone, Copy)]
pub struct SessionView<'a> {
    /// The session.
    pub tls: &'a Tls,
    /// The verifier of the client's certificate for this server. `None`: the server requests no
    /// certificates, and ignores certificates requested by other servers.
    pub judge: Option<&'a ClientTrust>,
}

/// Appends the value of a variable.
pub type Fact = fn(SessionView<'_>, &mut Vec<u8>) -> bool;

/// The table of variables. `$of(subject, out, fact)` applies a fact to the subject's session; false
/// if it has none.
#[macro_export]
macro_rules! tls_variables {
    ($builtin:ident, $of:path) => {
        $crate::tls_variables! { @rows $builtin, $of;
            "ssl_protocol" => protocol, "Protocol version of the client's TLS connection, such as `TLSv1.3`.";
            "ssl_cipher" => cipher, "Cipher suite of the TLS connection, by OpenSSL's name.";
            "ssl_ciphers" => ciphers, "Cipher suites that the client offers, joined by colons.";
            "ssl_curve" => curve, "Group of the key exchange, such as `X25519MLKEM768`.";
            "ssl_curves" => curves, "Groups that the client offers, joined by colons.";
            "ssl_sigalg" => sigalg, "Algorithm of the server's signature in the handshake; empty for resumed sessions.";
            "ssl_sigalgs" => sigalgs, "Signature algorithms that the client offers, joined by colons.";
            "ssl_ja4" => ja4, "Fingerprint JA4 of the client's hello, such as `t13d1516h2_8daaf6152771_e5627efa2ab1`: equal for clients of one kind. Not in nginx.";
            "ssl_session_id" => session_id, "Identifier of the session, in hexadecimal; with TLS 1.2 only.";
            "ssl_session_reused" => session_reused, "`r` if the session was resumed, else `.`.";
            "ssl_early_data" => early_data, "`1` while the handshake is not complete and early data is accepted, else empty.";
            "ssl_server_name" => server_name, "Server name that the client asked for in the handshake (SNI).";
            "ssl_alpn_protocol" => alpn_protocol, "Application protocol that was negotiated.";
            "ssl_ech_status" => none, "Empty: Encrypted Client Hello does not exist here.";
            "ssl_ech_outer_server_name" => none, "Empty: Encrypted Client Hello does not exist here.";
            "ssl_client_cert" => client_cert, "The client's certificate in PEM, each line but the first beginning with a tab. Use `$ssl_client_escaped_cert` instead.";
            "ssl_client_raw_cert" => client_raw_cert, "The client's certificate in PEM.";
            "ssl_client_escaped_cert" => client_escaped_cert, "The client's certificate in PEM, escaped as in URIs.";
            "ssl_client_s_dn" => client_s_dn, "Subject of the client's certificate, in the form of RFC 2253.";
            "ssl_client_i_dn" => client_i_dn, "Issuer of the client's certificate, in the form of RFC 2253.";
            "ssl_client_s_dn_legacy" => client_s_dn_legacy, "Subject of the client's certificate, in OpenSSL's old form.";
            "ssl_client_i_dn_legacy" => client_i_dn_legacy, "Issuer of the client's certificate, in OpenSSL's old form.";
            "ssl_client_serial" => client_serial, "Serial number of the client's certificate, in hexadecimal.";
            "ssl_client_fingerprint" => client_fingerprint, "SHA-1 of the client's certificate, in hexadecimal.";
            "ssl_client_verify" => client_verify, "`SUCCESS`, `FAILED:reason`, or `NONE` without a certificate of the client.";
            "ssl_client_v_start" => client_v_start, "When the client's certificate becomes valid.";
            "ssl_client_v_end" => client_v_end, "When the client's certificate ceases to be valid.";
            "ssl_client_v_remain" => client_v_remain, "Days until the client's certificate ceases to be valid.";
            "ssl_client_sigalg" => client_sigalg, "Algorithm of the client's signature in the handshake; empty without a certificate and for resumed sessions.";
        }
    };
    (@rows $builtin:ident, $of:path; $($name:literal => $fact:ident, $doc:literal;)*) => {
        &[$($builtin {
            name: $name,
            doc: $doc,
            get: |subject, out| $of(subject, out, $crate::tls::variables::$fact),
        }),*]
    };
}

/// The variables that need the client's offers, which are not kept otherwise.
pub const OFFERS: &[&str] = &["ssl_ciphers", "ssl_curves", "ssl_ja4", "ssl_sigalgs"];

fn text(value: Option<impl AsRef<[u8]>>, out: &mut Vec<u8>) -> bool {
    let Some(value) = value else { return false };
    let value = value.as_ref();
    out.extend_from_slice(value);
    !value.is_empty()
}

/// There is no value.
pub fn none(_: SessionView<'_>, _: &mut Vec<u8>) -> bool {
    false
}

macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident($seen:ident) => $value:expr;)*) => {
        $($(#[$doc])*
        pub fn $name($seen: SessionView<'_>, out: &mut Vec<u8>) -> bool {
            text($value, out)
        })*
    };
}

facts! {
    /// `$ssl_protocol`
    protocol(seen) => seen.tls.session().protocol();
    /// `$ssl_cipher`
    cipher(seen) => seen.tls.session().cipher();
    /// `$ssl_ciphers`
    ciphers(seen) => seen.tls.offered().map(|offered| &*offered.ciphers);
    /// `$ssl_curve`
    curve(seen) => seen.tls.session().curve();
    /// `$ssl_curves`
    curves(seen) => seen.tls.offered().map(|offered| &*offered.curves);
    /// `$ssl_sigalg`
    sigalg(seen) => seen.tls.session().sigalg();
    /// `$ssl_client_sigalg`
    client_sigalg(seen) => seen.judge.and_then(|_| seen.tls.session().client_sigalg());
    /// `$ssl_sigalgs`
    sigalgs(seen) => seen.tls.offered().map(|offered| &*offered.sigalgs);
    /// `$ssl_ja4`
    ja4(seen) => seen.tls.offered().map(|offered| &*offered.ja4);
    /// `$ssl_session_id`
    session_id(seen) => seen.tls.session().session_id().map(|id| HEXLOWER.encode(id));
    /// `$ssl_session_reused`
    session_reused(seen) => Some(if seen.tls.session().is_reused() { "r" } else { "." });
    /// `$ssl_early_data`
    early_data(seen) => seen.tls.session().is_handshaking().then_some("1");
    /// `$ssl_server_name`
    server_name(seen) => seen.tls.session().server_name();
    /// `$ssl_alpn_protocol`
    alpn_protocol(seen) => seen.tls.session().alpn();
    /// `$ssl_client_cert`
    client_cert(seen) => certificate(seen).map(|own| own.folded_pem());
    /// `$ssl_client_raw_cert`
    client_raw_cert(seen) => certificate(seen).map(|own| own.pem());
    /// `$ssl_client_escaped_cert`
    client_escaped_cert(seen) => certificate(seen).map(|own| own.escaped_pem());
    /// `$ssl_client_s_dn`
    client_s_dn(seen) => certificate(seen).map(|own| own.subject());
    /// `$ssl_client_i_dn`
    client_i_dn(seen) => certificate(seen).map(|own| own.issuer());
    /// `$ssl_client_s_dn_legacy`
    client_s_dn_legacy(seen) => certificate(seen).map(|own| own.legacy_subject());
    /// `$ssl_client_i_dn_legacy`
    client_i_dn_legacy(seen) => certificate(seen).map(|own| own.legacy_issuer());
    /// `$ssl_client_serial`
    client_serial(seen) => certificate(seen).map(|own| own.serial());
    /// `$ssl_client_fingerprint`
    client_fingerprint(seen) => certificate(seen).map(|own| own.fingerprint());
    /// `$ssl_client_verify`
    client_verify(seen) => Some(match seen.judge.map(|judge| seen.tls.verdict(judge)) {
        None | Some(ClientVerdict::NoCertificate) => "NONE".to_owned(),
        Some(ClientVerdict::Given(Ok(()))) => "SUCCESS".to_owned(),
        Some(ClientVerdict::Given(Err(why))) => format!("FAILED:{why}"),
        // The request was refused before it came to that.
        Some(ClientVerdict::Pending) => "FAILED:not verified".to_owned(),
    });
    /// `$ssl_client_v_start`
    client_v_start(seen) => certificate(seen).map(|own| own.valid_from());
    /// `$ssl_client_v_end`
    client_v_end(seen) => certificate(seen).map(|own| own.valid_to());
    /// `$ssl_client_v_remain`
    client_v_remain(seen) => {
        let days = certificate(seen).and_then(|own| own.remaining_days(SystemTime::now()));
        days.map(|days| days.to_string())
    };
}

/// The client's own certificate.
fn certificate(seen: SessionView<'_>) -> Option<Certificate<'_>> {
    seen.judge?;
    Certificate::parse(seen.tls.session().peer_certificates().first()?)
}
