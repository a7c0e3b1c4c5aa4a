//! Encrypted private keys: PKCS#8 with PBES2, and the older form of encrypted PEM.
//!
//! Called by `pem.rs`. Ciphers are AES in CBC mode, which is what OpenSSL writes and has written
//! for long; DES, RC2 and scrypt are not supported.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{
    AES_128, AES_256, AES_CBC_IV_LEN, Algorithm, DecryptionContext, PaddedBlockDecryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2;
use md5::{Digest, Md5};
use zeroize::Zeroizing;

use crate::der::{INTEGER, OCTET_STRING, OID, Reader, SEQUENCE};
use crate::error::Error;

/// Maximum number of iterations to derive a key: some seconds. OpenSSL's default is 2,048.
const ITERATIONS_MAX: u32 = 10_000_000;

const MALFORMED: Error =
    Error::Pem("PEM_read_bio_PrivateKey()", "error:1E08010C:DECODER routines::unsupported");

/// The contents of an `EncryptedPrivateKeyInfo`.
pub(crate) fn pkcs8(der: &[u8], password: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
    let sealed = Sealed::parse(der).ok_or(MALFORMED)?;
    let mut key = Zeroizing::new([0; 32]);
    let key = &mut key[..sealed.key_bytes];
    pbkdf2::derive(sealed.prf, sealed.iterations, sealed.salt, password, key);
    decrypt(sealed.cipher, key, sealed.iv, sealed.data)
}

/// A key encrypted by PBES2 with PBKDF2.
struct Sealed<'a> {
    prf: pbkdf2::Algorithm,
    iterations: NonZeroU32,
    salt: &'a [u8],
    cipher: &'static Algorithm,
    key_bytes: usize,
    iv: &'a [u8],
    data: &'a [u8],
}

impl<'a> Sealed<'a> {
    fn parse(der: &'a [u8]) -> Option<Sealed<'a>> {
        const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13];
        const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 12];
        const AES_CBC: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1];
        let mut info = Reader::new(der).enter(SEQUENCE)?;
        let mut algorithm = info.enter(SEQUENCE)?;
        let data = info.expect(OCTET_STRING)?;
        (algorithm.expect(OID)? == PBES2).then_some(())?;
        let mut parameters = algorithm.enter(SEQUENCE)?;
        let mut derivation = parameters.enter(SEQUENCE)?;
        let mut encryption = parameters.enter(SEQUENCE)?;

        (derivation.expect(OID)? == PBKDF2).then_some(())?;
        let mut derivation = derivation.enter(SEQUENCE)?;
        let salt = derivation.expect(OCTET_STRING)?;
        let iterations = derivation.number().filter(|count| *count <= ITERATIONS_MAX)?;
        derivation.optional(INTEGER);
        let prf = match derivation.optional(SEQUENCE) {
            None => pbkdf2::PBKDF2_HMAC_SHA1,
            Some(prf) => match Reader::new(prf).expect(OID)?.strip_prefix(HMAC)? {
                [7] => pbkdf2::PBKDF2_HMAC_SHA1,
                [9] => pbkdf2::PBKDF2_HMAC_SHA256,
                [10] => pbkdf2::PBKDF2_HMAC_SHA384,
                [11] => pbkdf2::PBKDF2_HMAC_SHA512,
                _ => return None,
            },
        };
        let (cipher, key_bytes) = match encryption.expect(OID)?.strip_prefix(AES_CBC)? {
            [2] => (&AES_128, 16),
            [42] => (&AES_256, 32),
            _ => return None,
        };
        let iv = encryption.expect(OCTET_STRING)?;
        let iterations = NonZeroU32::new(iterations)?;
        Some(Sealed { prf, iterations, salt, cipher, key_bytes, iv, data })
    }
}

/// `rsadsi digestAlgorithm`; the next number is the hash's.
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2];

/// The cipher of a key in the older form: `DEK-Info: AES-256-CBC,<salt>`.
pub(crate) struct LegacyCipher {
    cipher: &'static Algorithm,
    key_bytes: usize,
    iv: [u8; AES_CBC_IV_LEN],
}

impl LegacyCipher {
    /// Reads the value of `DEK-Info`; `None`: the cipher is not supported.
    pub(crate) fn parse(value: &str) -> Option<LegacyCipher> {
        let (name, digits) = value.split_once(',')?;
        let (cipher, key_bytes) = match name.trim() {
            "AES-128-CBC" => (&AES_128, 16),
            "AES-256-CBC" => (&AES_256, 32),
            _ => return None,
        };
        let mut iv = [0; AES_CBC_IV_LEN];
        let digits = digits.trim().as_bytes();
        if digits.len() != 2 * iv.len() {
            return None;
        }
        for (byte, pair) in iv.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(LegacyCipher { cipher, key_bytes, iv })
    }

    /// Decrypts with a key that is derived as OpenSSL's `EVP_BytesToKey` does.
    pub(crate) fn decrypt(
        &self,
        data: &[u8],
        password: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut key = Zeroizing::new([0; 32]);
        let mut last = Zeroizing::new([0; 16]);
        for part in 0..key.len() / last.len() {
            let mut hash = Md5::new();
            if part > 0 {
                hash.update(*last);
            }
            hash.update(password);
            hash.update(&self.iv[..8]);
            *last = hash.finalize().into();
            key[16 * part..][..16].copy_from_slice(&*last);
        }
        decrypt(self.cipher, &key[..self.key_bytes], &self.iv, data)
    }
}

fn decrypt(
    cipher: &'static Algorithm,
    key: &[u8],
    iv: &[u8],
    data: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Error> {
    let iv = <[u8; AES_CBC_IV_LEN]>::try_from(iv).map_err(|_| MALFORMED)?;
    let key = UnboundCipherKey::new(cipher, key).map_err(|_| MALFORMED)?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(|_| MALFORMED)?;
    let context = DecryptionContext::Iv128(FixedLength::from(iv));
    let mut text = Zeroizing::new(data.to_vec());
    let len = key.decrypt(&mut text, context).map_err(|_| Error::Password)?.len();
    text.truncate(len);
    // A wrong password may by chance leave correct padding.
    match Reader::new(&text).next() {
        Some(value) if value.tag == SEQUENCE && value.whole.len() == len => Ok(text),
        _ => Err(Error::Password),
    }
}
