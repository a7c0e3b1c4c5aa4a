//! `secure_link`: checks whether a link was issued by the site. nginx:
//! `ngx_http_secure_link_module`.
//!
//! Called through its variables. Compares checksums in constant time.

pub mod conf;

use std::sync::Arc;

use data_encoding::HEXLOWER_PERMISSIVE;
use md5::{Digest, Md5};
use nowait_conf::{Cx, Scope};
use nowait_http::base64;
use nowait_http::module::{LocationBuilder, Module};
use nowait_http::request::Request;
use nowait_http::slots::Key;
use nowait_http::variables::Builtin;
use nowait_http::variables::core::builtins;
use subtle::ConstantTimeEq;

use self::conf::SecureLinkConf;

/// Longest checksum in base64: 16 bytes with padding.
const CHECKSUM_BYTES_MAX: usize = 24;

/// This module.
pub static MODULE: Module = Module {
    rows: &[SecureLinkConf::ROWS],
    build: Some(build),
    variables: BUILTINS,
    ..Module::EMPTY
};

/// The settings of locations that have any.
static CONF: Key<Arc<SecureLinkConf>> = Key::new();

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = SecureLinkConf::inherit(cx, chain);
    if conf.secure_link.is_some() || conf.secure_link_secret.is_some() {
        parts.settings.set(&CONF, conf);
    }
}

/// The variables of this module.
const BUILTINS: &[Builtin] = builtins! {
    /// Result of `secure_link`: `1` if the checksum is correct, `0` if the link has expired, else
    /// empty. With `secure_link_secret`, the part of the link that the hash covers.
    "secure_link" => |r, out| verdict(r, out).is_some();
    /// The expiry time stated by the link.
    "secure_link_expires" => |r, out| {
        let Some(link) = link(r) else { return false };
        let Some(expires) = link.expires else { return false };
        out.extend_from_slice(&expires);
        true
    };
};

/// The evaluated values of `secure_link`.
struct Link {
    checksum: Vec<u8>,
    expires: Option<Vec<u8>>,
}

fn link(request: &Request) -> Option<Link> {
    let conf = request.location().settings.get(&CONF)?;
    conf.secure_link_md5.as_ref()?;
    let value = request.evaluate(conf.secure_link.as_ref()?);
    let comma = value.iter().position(|&byte| byte == b',');
    let expires = comma.map(|at| value[at + 1..].to_vec());
    if expires.as_ref().is_some_and(|text| seconds(text).is_none()) {
        return None;
    }
    Some(Link { checksum: value[..comma.unwrap_or(value.len())].to_vec(), expires })
}

/// A time after 1970 in decimal. nginx: `ngx_atotm`.
fn seconds(text: &[u8]) -> Option<i64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let time: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (time > 0).then_some(time)
}

fn verdict(request: &Request, out: &mut Vec<u8>) -> Option<()> {
    let conf = request.location().settings.get(&CONF)?;
    if let Some(secret) = &conf.secure_link_secret {
        let link = old_link(request.head().uri(), &secret.0)?;
        out.extend_from_slice(link);
        return Some(());
    }
    let link = link(request)?;
    if link.checksum.len() > CHECKSUM_BYTES_MAX {
        return None;
    }
    let plain = |byte: u8| match byte {
        b'-' => b'+',
        b'_' => b'/',
        // Not in the URL-safe alphabet.
        b'+' | b'/' => b'!',
        byte => byte,
    };
    let checksum: Vec<u8> = link.checksum.iter().map(|&byte| plain(byte)).collect();
    let checksum = base64::decode(&checksum)?;
    let text = request.evaluate(conf.secure_link_md5.as_ref()?);
    let right = Md5::digest(&text);
    if !bool::from(right[..].ct_eq(&checksum)) {
        return None;
    }
    let now = i64::try_from(nowait_runtime::clock().unix_seconds()).unwrap_or(i64::MAX);
    let expires = link.expires.as_deref().and_then(seconds);
    out.push(if expires.is_some_and(|expires| expires < now) { b'0' } else { b'1' });
    Some(())
}

/// The link part of `/prefix/hash/link`, if the hash matches the link and the secret.
fn old_link<'a>(uri: &'a [u8], secret: &[u8]) -> Option<&'a [u8]> {
    let after = |text: &'a [u8]| {
        let at = text.iter().position(|&byte| byte == b'/')?;
        Some((&text[..at], &text[at + 1..]))
    };
    let (_, rest) = after(uri.get(1..)?)?;
    let (hash, link) = after(rest)?;
    if hash.len() != 32 || link.is_empty() {
        return None;
    }
    let bytes = HEXLOWER_PERMISSIVE.decode(hash).ok()?;
    let right = Md5::new().chain_update(link).chain_update(secret).finalize();
    bool::from(right[..].ct_eq(&bytes)).then_some(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_old_kind() {
        // md5("file.txtsecret")
        let hash: String =
            Md5::digest(b"file.txtsecret").iter().map(|byte| format!("{byte:02x}")).collect();
        let uri = format!("/p/{hash}/file.txt");
        assert_eq!(old_link(uri.as_bytes(), b"secret"), Some(&b"file.txt"[..]));
        assert_eq!(old_link(uri.to_uppercase().as_bytes(), b"secret"), None);
        assert_eq!(old_link(uri.as_bytes(), b"other"), None);
        for wrong in ["", "/", "/p", "/p/", "/p//", "/p/123/file.txt"] {
            assert_eq!(old_link(wrong.as_bytes(), b"secret"), None, "{wrong}");
        }
        let odd = format!("/p/{}/x", "g".repeat(32));
        assert_eq!(old_link(odd.as_bytes(), b"secret"), None);
    }

    #[test]
    fn times_are_digits() {
        assert_eq!(seconds(b"2147483647"), Some(2_147_483_647));
        for wrong in ["", "0", "-1", "+1", "1x", " 1", "99999999999999999999"] {
            assert_eq!(seconds(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
