//! Encrypted private keys: PKCS#8 with PBES2, and the older form of encrypted PEM.
//!
//! Called by `pem.rs`. Ciphers are AES and triple DES in CBC mode, which is what OpenSSL writes and has
//! written; keys are derived by PBKDF2 or scrypt. RC2 and single DES are not supported.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{
    AES_128, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2;
use data_encoding::HEXLOWER_PERMISSIVE;
use des::TdesEde3;
use des::cipher::{Block, BlockCipherDecrypt, KeyInit};
use md5::{Digest, Md5};
use zeroize::Zeroizing;

use crate::der::{DerReader, INTEGER, OCTET_STRING, OID, SEQUENCE};
use crate::error::Error;

/// Maximum number of iterations to derive a key: some seconds. OpenSSL's default is 2,048.
const ITERATIONS_MAX: u32 = 10_000_000;

/// Maximum memory to derive a key by scrypt. OpenSSL's default parameters need 16 MB; it refuses more
/// than 32 MB itself.
const SCRYPT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Maximum number of passes of scrypt.
const SCRYPT_PASSES_MAX: u32 = 16;

const MALFORMED: Error =
    Error::Pem("PEM_read_bio_PrivateKey()", "error:1E08010C:DECODER routines::unsupported");

/// The contents of an `EncryptedPrivateKeyInfo`.
pub(crate) fn pkcs8(der: &[u8], password: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
    let sealed = Sealed::parse(der).ok_or(MALFORMED)?;
    let mut key = Zeroizing::new([0; 32]);
    let key = &mut key[..sealed.cipher.key_bytes()];
    match &sealed.derivation {
        Derivation::Pbkdf2 { prf, iterations } => {
            pbkdf2::derive(*prf, *iterations, sealed.salt, password, key);
        }
        Derivation::Scrypt(parameters) => {
            scrypt::scrypt(password, sealed.salt, parameters, key).map_err(|_| MALFORMED)?;
        }
    }
    sealed.cipher.decrypt(key, sealed.iv, sealed.data)
}

/// The derivation of a key from a password.
enum Derivation {
    Pbkdf2 { prf: pbkdf2::Algorithm, iterations: NonZeroU32 },
    Scrypt(scrypt::Params),
}

impl Derivation {
    /// The salt, and how the key is derived.
    fn parse<'a>(mut algorithm: DerReader<'a>) -> Option<(&'a [u8], Derivation)> {
        const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 12];
        const SCRYPT: &[u8] = &[0x2b, 6, 1, 4, 1, 0xda, 0x47, 4, 11];
        let id = algorithm.expect(OID)?;
        let mut parameters = algorithm.enter(SEQUENCE)?;
        let salt = parameters.expect(OCTET_STRING)?;
        if id == SCRYPT {
            let (cost, block, passes) =
                (parameters.number()?, parameters.number()?, parameters.number()?);
            let bytes = 128 * u64::from(cost) * u64::from(block);
            let is_bounded = bytes <= SCRYPT_BYTES_MAX && passes <= SCRYPT_PASSES_MAX;
            (cost.is_power_of_two() && is_bounded).then_some(())?;
            let log_cost = u8::try_from(cost.ilog2()).ok()?;
            let parameters = scrypt::Params::new(log_cost, block, passes).ok()?;
            return Some((salt, Derivation::Scrypt(parameters)));
        }
        (id == PBKDF2).then_some(())?;
        let iterations = parameters.number().filter(|count| *count <= ITERATIONS_MAX)?;
        let iterations = NonZeroU32::new(iterations)?;
        parameters.optional(INTEGER);
        let prf = match parameters.optional(SEQUENCE) {
            None => pbkdf2::PBKDF2_HMAC_SHA1,
            Some(prf) => match DerReader::new(prf).expect(OID)?.strip_prefix(HMAC)? {
                [7] => pbkdf2::PBKDF2_HMAC_SHA1,
                [9] => pbkdf2::PBKDF2_HMAC_SHA256,
                [10] => pbkdf2::PBKDF2_HMAC_SHA384,
                [11] => pbkdf2::PBKDF2_HMAC_SHA512,
                _ => return None,
            },
        };
        Some((salt, Derivation::Pbkdf2 { prf, iterations }))
    }
}

/// A key encrypted by PBES2.
struct Sealed<'a> {
    derivation: Derivation,
    salt: &'a [u8],
    cipher: Cipher,
    iv: &'a [u8],
    data: &'a [u8],
}

impl<'a> Sealed<'a> {
    fn parse(der: &'a [u8]) -> Option<Sealed<'a>> {
        const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13];
        const AES_128_CBC: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1, 2];
        const AES_256_CBC: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1, 42];
        const DES_EDE3_CBC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 3, 7];
        let mut info = DerReader::new(der).enter(SEQUENCE)?;
        let mut algorithm = info.enter(SEQUENCE)?;
        let data = info.expect(OCTET_STRING)?;
        (algorithm.expect(OID)? == PBES2).then_some(())?;
        let mut parameters = algorithm.enter(SEQUENCE)?;
        let (salt, derivation) = Derivation::parse(parameters.enter(SEQUENCE)?)?;
        let mut encryption = parameters.enter(SEQUENCE)?;
        let cipher = match encryption.expect(OID)? {
            AES_128_CBC => Cipher::Aes128,
            AES_256_CBC => Cipher::Aes256,
            DES_EDE3_CBC => Cipher::TripleDes,
            _ => return None,
        };
        let iv = encryption.expect(OCTET_STRING)?;
        Some(Sealed { derivation, salt, cipher, iv, data })
    }
}

/// `rsadsi digestAlgorithm`; the next number is the hash's.
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2];

/// The cipher of a key in the older form: `DEK-Info: AES-256-CBC,<salt>`.
pub(crate) struct LegacyCipher {
    cipher: Cipher,
    iv: Vec<u8>,
}

impl LegacyCipher {
    /// Reads the value of `DEK-Info`; `None`: the cipher is not supported.
    pub(crate) fn parse(value: &str) -> Option<LegacyCipher> {
        let (name, digits) = value.split_once(',')?;
        let cipher = match name.trim() {
            "AES-128-CBC" => Cipher::Aes128,
            "AES-256-CBC" => Cipher::Aes256,
            "DES-EDE3-CBC" => Cipher::TripleDes,
            _ => return None,
        };
        let mut iv = vec![0; cipher.iv_bytes()];
        let digits = digits.trim().as_bytes();
        if digits.len() != 2 * iv.len() {
            return None;
        }
        HEXLOWER_PERMISSIVE.decode_mut(digits, &mut iv).ok()?;
        Some(LegacyCipher { cipher, iv })
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
        self.cipher.decrypt(&key[..self.cipher.key_bytes()], &self.iv, data)
    }
}

/// A cipher in CBC mode.
#[derive(Clone, Copy)]
enum Cipher {
    Aes128,
    Aes256,
    TripleDes,
}

impl Cipher {
    fn key_bytes(self) -> usize {
        match self {
            Cipher::Aes128 => 16,
            Cipher::TripleDes => 24,
            Cipher::Aes256 => 32,
        }
    }

    fn iv_bytes(self) -> usize {
        match self {
            Cipher::Aes128 | Cipher::Aes256 => 16,
            Cipher::TripleDes => 8,
        }
    }

    fn decrypt(self, key: &[u8], iv: &[u8], data: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut text = Zeroizing::new(data.to_vec());
        let len = match self {
            Cipher::Aes128 => decrypt_aes(&AES_128, key, iv, &mut text)?,
            Cipher::Aes256 => decrypt_aes(&AES_256, key, iv, &mut text)?,
            Cipher::TripleDes => decrypt_triple_des(key, iv, &mut text)?,
        };
        text.truncate(len);
        // A wrong password may by chance leave correct padding.
        match DerReader::new(&text).next() {
            Some(value) if value.tag == SEQUENCE && value.whole.len() == len => Ok(text),
            _ => Err(Error::Password),
        }
    }
}

/// Decrypts in place; returns the length without padding.
fn decrypt_aes(
    cipher: &'static Algorithm,
    key: &[u8],
    iv: &[u8],
    text: &mut [u8],
) -> Result<usize, Error> {
    let iv = <[u8; 16]>::try_from(iv).map_err(|_| MALFORMED)?;
    let key = UnboundCipherKey::new(cipher, key).map_err(|_| MALFORMED)?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(|_| MALFORMED)?;
    let context = DecryptionContext::Iv128(FixedLength::from(iv));
    Ok(key.decrypt(text, context).map_err(|_| Error::Password)?.len())
}

/// The same; AWS-LC has this cipher only for TLS.
fn decrypt_triple_des(key: &[u8], iv: &[u8], text: &mut [u8]) -> Result<usize, Error> {
    let cipher = TdesEde3::new_from_slice(key).map_err(|_| MALFORMED)?;
    let mut last = <[u8; 8]>::try_from(iv).map_err(|_| MALFORMED)?;
    if text.is_empty() || !text.len().is_multiple_of(last.len()) {
        return Err(MALFORMED);
    }
    for piece in text.chunks_exact_mut(last.len()) {
        let sealed = <[u8; 8]>::try_from(&*piece).map_err(|_| MALFORMED)?;
        let mut block = Block::<TdesEde3>::from(sealed);
        cipher.decrypt_block(&mut block);
        for ((byte, opened), last) in piece.iter_mut().zip(&block).zip(&last) {
            *byte = opened ^ last;
        }
        last = sealed;
    }
    let padding = text.last().copied().unwrap_or_default();
    let len = text.len().saturating_sub(usize::from(padding));
    match (1..=8).contains(&padding) && text[len..].iter().all(|byte| *byte == padding) {
        true => Ok(len),
        false => Err(Error::Password),
    }
}
