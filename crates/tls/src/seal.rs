//! Protection of records that are sent (RFC 8446, 5.2 and 5.3; RFC 5246, 6.2.3.3).
//!
//! Called by [`Established`](crate::established::Established). Large plaintext in one piece is sealed by AWS-LC
//! into the record in its place in the output; other plaintext is copied there first.

use std::fmt;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{AeadKey, Iv, NONCE_LEN};

use crate::error::Error;
use crate::session::PLAINTEXT_BYTES_MAX;

/// The type of records with data, and of all protected records in TLS 1.3.
pub(crate) const APPLICATION_DATA: u8 = 23;

/// Bytes of a record's header.
const HEADER_BYTES: usize = 5;

/// Bytes of a tag, with every cipher.
const TAG_BYTES: usize = 16;

/// Bytes of additional data: in TLS 1.2, a sequence number and a header; in TLS 1.3, a header.
const AAD_BYTES_MAX: usize = 8 + HEADER_BYTES;

/// From this size on, a copy of the content costs more than what a cipher adds for content that is apart from
/// the record.
const APART_BYTES_MIN: usize = 2048;

/// Where the explicit part of the nonces of GCM in TLS 1.2 begins (RFC 5288, 3).
const EXPLICIT_AT: usize = 4;

/// A cipher that can be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealingCipher {
    /// AES with 128 bits in Galois counter mode.
    Aes128Gcm,
    /// AES with 256 bits in Galois counter mode.
    Aes256Gcm,
    /// ChaCha20 with Poly1305.
    Chacha20Poly1305,
}

/// The state needed to seal the records of this side. The key is wiped on drop.
pub struct Sealing {
    key: AeadKey,
    cipher: SealingCipher,
    iv: [u8; NONCE_LEN],
    tls13: bool,
    sequence: u64,
}

impl Sealing {
    /// `sequence` is the number of the next record, and of those that were sealed before.
    pub(crate) fn new(
        secrets: ConnectionTrafficSecrets,
        tls13: bool,
        sequence: u64,
    ) -> Result<Sealing, Error> {
        let (cipher, key, iv) = parts(secrets)?;
        let iv = iv.as_ref().try_into().map_err(|_| Error::State("a nonce of another length"))?;
        Ok(Sealing { key, cipher, iv, tls13, sequence })
    }

    /// For another party, which continues after `sequence` records.
    pub(crate) fn hand_over(mut self, sequence: u64) -> Sealing {
        self.sequence = sequence;
        if self.has_explicit_nonces() {
            // The explicit nonces of TLS 1.2 need only differ (RFC 5288, 3). Those of this program are
            // these eight bytes, XORed with the sequence number; the kernel counts up from them. From
            // the opposite end of the range, it meets none that were used.
            self.iv[EXPLICIT_AT] ^= 0x80;
        }
        self
    }

    fn has_explicit_nonces(&self) -> bool {
        !self.tls13 && self.cipher != SealingCipher::Chacha20Poly1305
    }

    /// The cipher.
    pub fn cipher(&self) -> SealingCipher {
        self.cipher
    }

    /// The key: 16 or 32 bytes.
    pub fn key(&self) -> &[u8] {
        self.key.as_ref()
    }

    /// The initialization vector. For GCM in TLS 1.2: the implicit part of nonces, and the explicit
    /// part of the next one.
    pub fn iv(&self) -> &[u8; NONCE_LEN] {
        &self.iv
    }

    /// Whether this is TLS 1.3; else TLS 1.2.
    pub fn is_tls13(&self) -> bool {
        self.tls13
    }

    /// Sequence number of the next record.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

/// The parts of secrets.
pub(crate) fn parts(
    secrets: ConnectionTrafficSecrets,
) -> Result<(SealingCipher, AeadKey, Iv), Error> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => Ok((SealingCipher::Aes128Gcm, key, iv)),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => Ok((SealingCipher::Aes256Gcm, key, iv)),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            Ok((SealingCipher::Chacha20Poly1305, key, iv))
        }
        _ => Err(Error::State("a cipher that can't be handed over")),
    }
}

/// Seals records with one key.
pub(crate) struct Sealer {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    tls13: bool,
    /// Records carry the second part of their nonce.
    explicit: bool,
    sequence: u64,
}

impl Sealer {
    pub(crate) fn new(sealing: &Sealing) -> Result<Sealer, Error> {
        let algorithm = match sealing.cipher {
            SealingCipher::Aes128Gcm => &AES_128_GCM,
            SealingCipher::Aes256Gcm => &AES_256_GCM,
            SealingCipher::Chacha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, sealing.key())
            .map_err(|_| Error::State("a key of another length"))?;
        Ok(Sealer {
            key: LessSafeKey::new(key),
            iv: sealing.iv,
            tls13: sealing.tls13,
            explicit: sealing.has_explicit_nonces(),
            sequence: sealing.sequence,
        })
    }

    /// Number of the next record. In TLS 1.3, as many were sealed with this key.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Writes records with all of `content`, each with at most `record_bytes` of it, at `at`: over what stands
    /// there, and beyond the end of `output`. Returns where they end.
    ///
    /// # Errors
    /// The cipher's.
    pub(crate) fn seal(
        &mut self,
        kind: u8,
        content: &[&[u8]],
        record_bytes: usize,
        output: &mut Vec<u8>,
        mut at: usize,
    ) -> Result<usize, Error> {
        let mut left = content.iter().map(|part| part.len()).sum::<usize>();
        let (mut parts, mut part) = (content.iter(), &[][..]);
        while left > 0 {
            let bytes = left.min(record_bytes.min(PLAINTEXT_BYTES_MAX));
            left -= bytes;
            while part.is_empty()
                && let Some(next) = parts.next()
            {
                part = next;
            }
            if bytes >= APART_BYTES_MIN
                && let Some((near, far)) = part.split_at_checked(bytes)
            {
                part = far;
                at = self.seal_apart(kind, near, output, at)?;
                continue;
            }
            output.truncate(at);
            let begin = self.begin(kind, bytes, output);
            let mut missing = bytes;
            while missing > 0 {
                let (near, far) = part.split_at(part.len().min(missing));
                output.extend_from_slice(near);
                missing -= near.len();
                part = far;
                if missing > 0 {
                    let Some(next) = parts.next() else { break };
                    part = next;
                }
            }
            self.complete(kind, bytes, begin, output)?;
            at = output.len();
        }
        Ok(at)
    }

    /// Writes a record whose content is in one piece, without a copy of it.
    fn seal_apart(
        &mut self,
        kind: u8,
        content: &[u8],
        output: &mut Vec<u8>,
        at: usize,
    ) -> Result<usize, Error> {
        let (outer, explicit, inner) = self.shape(kind);
        let begin = at + HEADER_BYTES + explicit;
        let end = begin + content.len() + inner + TAG_BYTES;
        if output.len() < end {
            output.resize(end, 0);
        }
        let nonce = self.nonce();
        output[at..at + HEADER_BYTES].copy_from_slice(&header(outer, end - at - HEADER_BYTES));
        output[at + HEADER_BYTES..begin].copy_from_slice(&nonce[NONCE_LEN - explicit..]);
        let (sealed, behind) = output[begin..end].split_at_mut(content.len());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let (aad, aad_bytes) = self.aad(kind, content.len());
        let aad = Aad::from(&aad[..aad_bytes]);
        let inner = &[kind][..inner];
        let result = self.key.seal_out_of_place_scatter(nonce, aad, content, sealed, inner, behind);
        // A nonce is never used twice, not even after errors.
        self.sequence += 1;
        result.map_err(|_| rustls::Error::EncryptError)?;
        Ok(end)
    }

    /// The type in the header of a record, the bytes of its explicit nonce, and of its inner type.
    fn shape(&self, kind: u8) -> (u8, usize, usize) {
        match (self.tls13, self.explicit) {
            (true, _) => (APPLICATION_DATA, 0, 1),
            (false, true) => (kind, NONCE_LEN - EXPLICIT_AT, 0),
            (false, false) => (kind, 0, 0),
        }
    }

    /// The additional data of the next record, with so many bytes of content, and their number.
    fn aad(&self, kind: u8, bytes: usize) -> ([u8; AAD_BYTES_MAX], usize) {
        let mut aad = [0; AAD_BYTES_MAX];
        if self.tls13 {
            let header = header(APPLICATION_DATA, bytes + 1 + TAG_BYTES);
            aad[..HEADER_BYTES].copy_from_slice(&header);
            return (aad, HEADER_BYTES);
        }
        aad[..8].copy_from_slice(&self.sequence.to_be_bytes());
        aad[8..].copy_from_slice(&header(kind, bytes));
        (aad, AAD_BYTES_MAX)
    }

    /// Appends what precedes the content of a record. Returns where the content begins.
    fn begin(&self, kind: u8, bytes: usize, output: &mut Vec<u8>) -> usize {
        let (outer, explicit, inner) = self.shape(kind);
        let added = explicit + inner;
        output.reserve(HEADER_BYTES + added + bytes + TAG_BYTES);
        output.extend_from_slice(&header(outer, bytes + added + TAG_BYTES));
        if self.explicit {
            output.extend_from_slice(&self.nonce()[EXPLICIT_AT..]);
        }
        output.len()
    }

    /// Seals the content of a record, which is the end of `output`.
    fn complete(
        &mut self,
        kind: u8,
        bytes: usize,
        begin: usize,
        output: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let nonce = Nonce::assume_unique_for_key(self.nonce());
        if self.tls13 {
            output.push(kind);
        }
        let (aad, aad_bytes) = self.aad(kind, bytes);
        let aad = Aad::from(&aad[..aad_bytes]);
        let sealed = self.key.seal_in_place_separate_tag(nonce, aad, &mut output[begin..]);
        // A nonce is never used twice, not even after errors.
        self.sequence += 1;
        let tag = sealed.map_err(|_| rustls::Error::EncryptError)?;
        output.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// The nonce of the next record: in TLS 1.2, RFC 5288 leaves its second part to the sender, who
    /// does the same as everywhere else (RFC 8446, 5.3; RFC 7905, 2).
    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        let sequence = self.sequence.to_be_bytes();
        nonce[EXPLICIT_AT..].iter_mut().zip(sequence).for_each(|(byte, with)| *byte ^= with);
        nonce
    }
}

/// The header of a record of at most 2^14 + 256 bytes.
#[expect(clippy::cast_possible_truncation, reason = "records are shorter than 2^16 bytes")]
fn header(kind: u8, bytes: usize) -> [u8; HEADER_BYTES] {
    let [high, low] = (bytes as u16).to_be_bytes();
    [kind, 3, 3, high, low]
}
