//! Reading PEM: certificate chains, private keys, revocation lists.
//!
//! Called when a configuration is read, with the contents of files. Reads no files.

use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs1KeyDer,
    PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use zeroize::Zeroizing;

use crate::encrypted_keys::{self, LegacyCipher};
use crate::error::Error;

/// A file without the requested section.
const NO_START_LINE: &str = "error:0480006C:PEM routines::no start line";
const BAD_BASE64: &str = "error:04800064:PEM routines::bad base64 decode";
const UNSUPPORTED: &str = "error:04800072:PEM routines::unsupported encryption";

/// A section of a PEM file.
struct Section<'a> {
    label: &'a str,
    /// The fields before the contents, as of encrypted keys of the old kind.
    fields: Vec<&'a str>,
    contents: Zeroizing<Vec<u8>>,
}

/// Reads the next section whose label is accepted, and moves `rest` behind it; others are skipped.
fn next<'a>(
    rest: &mut &'a str,
    call: &'static str,
    accepts: impl Fn(&str) -> bool,
) -> Result<Option<Section<'a>>, Error> {
    // Its contents are still text.
    let mut section: Option<Section<'a>> = None;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((*rest, ""));
        *rest = after;
        let line = line.trim_end();
        let bound = |kind: &str| line.strip_prefix(kind).and_then(|l| l.strip_suffix("-----"));
        if let Some(label) = bound("-----BEGIN ") {
            let fields = Vec::new();
            // With room for the whole text, because a growing buffer leaves copies that are not wiped.
            let room = if accepts(label) { rest.find("-----END ").unwrap_or_default() } else { 0 };
            let contents = Zeroizing::new(Vec::with_capacity(room));
            section = accepts(label).then_some(Section { label, fields, contents });
        } else if let Some(end) = bound("-----END ") {
            if let Some(mut section) = section.take() {
                if end != section.label {
                    return Err(Error::Pem(call, "error:04800066:PEM routines::bad end line"));
                }
                section.contents = decode(&section.contents).ok_or(Error::Pem(call, BAD_BASE64))?;
                return Ok(Some(section));
            }
        } else if let Some(Section { fields, contents: text, .. }) = &mut section {
            match text.is_empty() && line.contains(':') {
                true => fields.push(line),
                false => text.extend_from_slice(line.trim_start().as_bytes()),
            }
        }
    }
    match section {
        Some(_) => Err(Error::Pem(call, BAD_BASE64)),
        None => Ok(None),
    }
}

/// PEM is ASCII; the text around its sections may have any bytes.
fn text<'a>(bytes: &'a [u8], call: &'static str) -> Result<std::borrow::Cow<'a, str>, Error> {
    let text = String::from_utf8_lossy(bytes);
    if text.contains("-----BEGIN ") { Ok(text) } else { Err(Error::Pem(call, NO_START_LINE)) }
}

/// All certificates of a file, in its order: the server's own first.
///
/// # Errors
/// There is no certificate, or one is malformed.
pub fn certificates(file: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    const CALL: &str = "PEM_read_bio_X509_AUX()";
    let text = text(file, CALL)?;
    let mut rest = &*text;
    let is =
        |label: &str| matches!(label, "CERTIFICATE" | "X509 CERTIFICATE" | "TRUSTED CERTIFICATE");
    let mut all = Vec::new();
    while let Some(mut section) = next(&mut rest, CALL, is)? {
        let mut contents = std::mem::take(&mut *section.contents);
        // OpenSSL appends its notes on trust to such a certificate.
        if section.label == "TRUSTED CERTIFICATE"
            && let Some(first) = crate::der::DerReader::new(&contents).next()
        {
            contents.truncate(first.whole.len());
        }
        let certificate = CertificateDer::from(contents);
        if crate::Certificate::parse(&certificate).is_none() {
            return Err(Error::Pem(
                CALL,
                "error:0688010A:asn1 encoding routines::nested asn1 error",
            ));
        }
        all.push(certificate);
    }
    if all.is_empty() { Err(Error::Pem(CALL, NO_START_LINE)) } else { Ok(all) }
}

/// All revocation lists of a file.
///
/// # Errors
/// There is no list, or the encoding is malformed.
pub fn revocation_lists(file: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
    const CALL: &str = "X509_LOOKUP_load_file()";
    let text = text(file, CALL)?;
    let mut rest = &*text;
    let mut all = Vec::new();
    while let Some(mut section) = next(&mut rest, CALL, |label| label == "X509 CRL")? {
        all.push(CertificateRevocationListDer::from(std::mem::take(&mut *section.contents)));
    }
    if all.is_empty() { Err(Error::Pem(CALL, NO_START_LINE)) } else { Ok(all) }
}

/// A private key; its memory is wiped on drop, and it is never printed.
pub struct PrivateKey {
    form: Form,
    der: Zeroizing<Vec<u8>>,
}

/// The encoding of a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Pkcs1,
    Pkcs8,
    Sec1,
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrivateKey").finish_non_exhaustive()
    }
}

impl PrivateKey {
    /// The first key of a file. If it is encrypted, the passwords are tried in order.
    ///
    /// # Errors
    /// There is no key; it is malformed, or encrypted in an unknown way; no password fits.
    pub fn from_pem(file: &[u8], passwords: &[&[u8]]) -> Result<PrivateKey, Error> {
        const CALL: &str = "PEM_read_bio_PrivateKey()";
        let text = text(file, CALL)?;
        let mut rest = &*text;
        // The parameters of a curve may precede its key.
        let is = |label: &str| label.ends_with("PRIVATE KEY");
        let Some(section) = next(&mut rest, CALL, is)? else {
            return Err(Error::Pem(CALL, NO_START_LINE));
        };
        let form = match section.label {
            "RSA PRIVATE KEY" => Form::Pkcs1,
            "EC PRIVATE KEY" => Form::Sec1,
            "PRIVATE KEY" => Form::Pkcs8,
            "ENCRYPTED PRIVATE KEY" => {
                let decrypt = |password: &&[u8]| encrypted_keys::pkcs8(&section.contents, password);
                let tried =
                    passwords.iter().map(decrypt).find(|tried| tried != &Err(Error::Password));
                let der = tried.unwrap_or(Err(Error::Password))?;
                return Ok(PrivateKey { form: Form::Pkcs8, der });
            }
            _ => return Err(Error::Pem(CALL, UNSUPPORTED)),
        };
        let field = |name: &str| -> Option<&str> {
            let mut values = section.fields.iter().filter_map(|field| field.split_once(':'));
            values.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
        };
        let is_encrypted = field("Proc-Type").is_some_and(|value| value.ends_with(",ENCRYPTED"));
        if !is_encrypted {
            return Ok(PrivateKey { form, der: section.contents });
        }
        let cipher = field("DEK-Info").and_then(LegacyCipher::parse);
        let cipher = cipher.ok_or(Error::Pem(CALL, UNSUPPORTED))?;
        let mut tried =
            passwords.iter().map(|password| cipher.decrypt(&section.contents, password));
        let der = tried.find_map(Result::ok).ok_or(Error::Password)?;
        Ok(PrivateKey { form, der })
    }

    /// The key in DER, regardless of its form.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// As rustls takes it.
    pub(crate) fn as_der(&self) -> PrivateKeyDer<'_> {
        let der = &self.der[..];
        match self.form {
            Form::Pkcs1 => PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(der)),
            Form::Pkcs8 => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der)),
            Form::Sec1 => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der)),
        }
    }
}

fn decode(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let text = text.trim_ascii_end();
    let unpadded = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    if !text.len().is_multiple_of(4) || unpadded.is_empty() {
        return None;
    }
    // In full from the beginning, so that no copy is left behind when it grows.
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 4 * 3));
    let (mut word, mut bits) = (0u32, 0);
    for digit in unpadded {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        word = word << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEGACY: &str = include_str!("testdata/legacy.pem");
    const PKCS8: &str = include_str!("testdata/pkcs8.pem");
    const LEGACY_DES3: &str = include_str!("testdata/legacy_des3.pem");
    const PKCS8_DES3: &str = include_str!("testdata/pkcs8_des3.pem");
    const SCRYPT: &str = include_str!("testdata/scrypt.pem");

    #[test]
    fn encrypted_keys_need_their_password() {
        for file in [LEGACY, PKCS8, LEGACY_DES3, PKCS8_DES3, SCRYPT] {
            let open = |passwords: &[&[u8]]| PrivateKey::from_pem(file.as_bytes(), passwords);
            assert_eq!(open(&[]).unwrap_err(), Error::Password);
            assert_eq!(open(&[b"wrong", b""]).unwrap_err(), Error::Password);
            let key = open(&[b"wrong", b"secret"]).unwrap();
            let provider = rustls::crypto::aws_lc_rs::default_provider();
            assert!(provider.key_provider.load_private_key(key.as_der().clone_key()).is_ok());
            assert_eq!(format!("{key:?}"), "PrivateKey { .. }");
        }
    }

    #[test]
    fn malformed_files_are_errors() {
        let read = |text: &str| certificates(text.as_bytes()).unwrap_err();
        let none = Error::Pem("PEM_read_bio_X509_AUX()", NO_START_LINE);
        assert_eq!(read(""), none);
        assert_eq!(read(PKCS8), none);
        for bad in ["AA", "A===", "*AAA", ""] {
            let text = format!("-----BEGIN CERTIFICATE-----\n{bad}\n-----END CERTIFICATE-----\n");
            assert_eq!(read(&text), Error::Pem("PEM_read_bio_X509_AUX()", BAD_BASE64));
        }
        assert!(matches!(read("-----BEGIN CERTIFICATE-----\nAAAA\n"), Error::Pem(..)));
        assert!(matches!(
            read("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"),
            Error::Pem(..)
        ));
        assert!(matches!(PrivateKey::from_pem(b"x", &[]), Err(Error::Pem(..))));
    }
}
