//! The offers in a client's hello, with OpenSSL's names, for variables and logs.

use std::fmt::Write as _;

use rustls::server::ClientHello;
use rustls::{CipherSuite, NamedGroup, SignatureScheme};

use crate::{ciphers, groups};

/// Offers of a kind that are shown, at most: a hello has room for thousands.
const SHOWN_MAX: usize = 128;

/// A client's offers, in its order of preference, joined by colons. Values without a name are shown as
/// numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOffer {
    /// Cipher suites.
    pub ciphers: Box<str>,
    /// Groups for key exchange.
    pub curves: Box<str>,
    /// Signature algorithms.
    pub sigalgs: Box<str>,
    /// The fingerprint JA4.
    pub ja4: Box<str>,
}

impl ClientOffer {
    pub(crate) fn of(hello: &ClientHello<'_>, ja4: String) -> ClientOffer {
        let groups = hello.named_groups().unwrap_or_default();
        ClientOffer {
            ciphers: join(hello.cipher_suites(), |suite, out| cipher(*suite, out)),
            curves: join(groups, |group, out| curve(*group, out)),
            sigalgs: join(hello.signature_schemes(), |scheme, out| sigalg(*scheme, out)),
            ja4: ja4.into(),
        }
    }
}

fn join<T>(all: &[T], name: impl Fn(&T, &mut String)) -> Box<str> {
    let mut out = String::new();
    for (n, one) in all.iter().take(SHOWN_MAX).enumerate() {
        if n > 0 {
            out.push(':');
        }
        name(one, &mut out);
    }
    out.into()
}

fn number(number: u16, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(out, "0x{number:04x}");
}

fn cipher(suite: CipherSuite, out: &mut String) {
    let name = ciphers::known(suite).map(str::to_owned);
    match name.or_else(|| suite.as_str().and_then(openssl_name)) {
        Some(name) => out.push_str(&name),
        None => number(suite.into(), out),
    }
}

/// OpenSSL's name for an IANA name: `TLS_RSA_WITH_AES_128_CBC_SHA` is `AES128-SHA`. `None`: OpenSSL
/// has no such suite, or none of its name.
fn openssl_name(name: &str) -> Option<String> {
    let (exchange, cipher) = name.strip_prefix("TLS_")?.split_once("_WITH_")?;
    let exchange = match exchange {
        "RSA" => String::new(),
        "DH_anon" => "ADH-".to_owned(),
        "ECDH_anon" => "AECDH-".to_owned(),
        "ECDHE_ECDSA" | "ECDHE_RSA" | "DHE_RSA" | "DHE_DSS" | "PSK" | "RSA_PSK" | "DHE_PSK"
        | "ECDHE_PSK" => format!("{}-", exchange.replace('_', "-")),
        _ => return None,
    };
    let cipher = match cipher {
        "3DES_EDE_CBC_SHA" => "DES-CBC3-SHA".to_owned(),
        "CHACHA20_POLY1305_SHA256" => "CHACHA20-POLY1305".to_owned(),
        _ => {
            let cipher = cipher.replace("_CBC_", "_").replace('_', "-");
            ["AES", "CAMELLIA", "ARIA"]
                .iter()
                .fold(cipher, |cipher, name| cipher.replace(&format!("{name}-"), name))
        }
    };
    Some(exchange + &cipher)
}

fn curve(group: NamedGroup, out: &mut String) {
    match (groups::name(group), group) {
        (name, _) if name != "UNKNOWN" => out.push_str(name),
        (_, NamedGroup::X448) => out.push_str("X448"),
        (_, NamedGroup::FFDHE2048) => out.push_str("ffdhe2048"),
        (_, NamedGroup::FFDHE3072) => out.push_str("ffdhe3072"),
        (_, NamedGroup::FFDHE4096) => out.push_str("ffdhe4096"),
        (_, NamedGroup::FFDHE6144) => out.push_str("ffdhe6144"),
        (_, NamedGroup::FFDHE8192) => out.push_str("ffdhe8192"),
        (_, other) => number(other.into(), out),
    }
}

/// The name of a signature algorithm in RFC 8446.
pub(crate) fn sigalg_name(scheme: SignatureScheme) -> Option<&'static str> {
    use SignatureScheme as S;
    Some(match scheme {
        S::ECDSA_NISTP256_SHA256 => "ecdsa_secp256r1_sha256",
        S::ECDSA_NISTP384_SHA384 => "ecdsa_secp384r1_sha384",
        S::ECDSA_NISTP521_SHA512 => "ecdsa_secp521r1_sha512",
        S::ECDSA_SHA1_Legacy => "ecdsa_sha1",
        S::ED25519 => "ed25519",
        S::ED448 => "ed448",
        S::RSA_PKCS1_SHA1 => "rsa_pkcs1_sha1",
        S::RSA_PKCS1_SHA256 => "rsa_pkcs1_sha256",
        S::RSA_PKCS1_SHA384 => "rsa_pkcs1_sha384",
        S::RSA_PKCS1_SHA512 => "rsa_pkcs1_sha512",
        S::RSA_PSS_SHA256 => "rsa_pss_rsae_sha256",
        S::RSA_PSS_SHA384 => "rsa_pss_rsae_sha384",
        S::RSA_PSS_SHA512 => "rsa_pss_rsae_sha512",
        _ => return None,
    })
}

fn sigalg(scheme: SignatureScheme, out: &mut String) {
    match sigalg_name(scheme) {
        Some(name) => out.push_str(name),
        None => number(scheme.into(), out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_openssl() {
        let of = |suites: &[CipherSuite]| join(suites, |suite, out| cipher(*suite, out));
        assert_eq!(
            &*of(&[
                CipherSuite::TLS13_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384,
                CipherSuite::TLS_RSA_WITH_AES_128_CBC_SHA,
                CipherSuite::TLS_RSA_WITH_3DES_EDE_CBC_SHA,
                CipherSuite::TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
                CipherSuite::TLS_EMPTY_RENEGOTIATION_INFO_SCSV,
                CipherSuite::Unknown(0x1a1a),
            ]),
            "TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-SHA384:AES128-SHA:\
             DES-CBC3-SHA:DHE-RSA-CHACHA20-POLY1305:0x00ff:0x1a1a"
        );
        let of = |all: &[NamedGroup]| join(all, |group, out| curve(*group, out));
        assert_eq!(
            &*of(&[NamedGroup::secp256r1, NamedGroup::X448, NamedGroup::Unknown(0x2a2a)]),
            "prime256v1:X448:0x2a2a"
        );
        assert_eq!(of(&[NamedGroup::X25519; 500]).split(':').count(), SHOWN_MAX);
    }
}
