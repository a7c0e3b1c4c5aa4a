//! The HTTP part of a stored object's head, which the store does not interpret: validators, `Vary`,
//! ages, and the fields of the response.
//!
//! Two pieces, both rewritten when a response is revalidated: [`Meta`] and the fields
//! ([`encode_fields`]). They are decoded without copies: names and values are parts of the input.
//! No input makes decoding panic; the store has verified the checksum.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use nowait_message::Known;

/// A stored field of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The known field, if it is one that HTTP defines.
    pub known: Option<Known>,
    /// The name as received.
    pub name: Bytes,
    /// The value without surrounding white space.
    pub value: Bytes,
}

/// The version of the encoding. Objects of other versions are foreign and not used.
const VERSION: u8 = 1;

/// The maximum number of fields of one response.
const FIELDS_MAX: usize = 4096;

/// No time.
const NONE: i64 = i64::MIN;

/// The stored facts about a response besides its status, times and fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// The age when it was stored or revalidated, in seconds (strict mode).
    pub initial_age: u32,
    /// How long it was fresh from its generation on, in seconds (strict mode).
    pub lifetime: u32,
    /// It was stored by the strict rules.
    pub strict: bool,
    /// `no-cache`: never used without revalidation (strict mode).
    pub always_validate: bool,
    /// `must-revalidate` and the like: never used stale (strict mode).
    pub never_stale: bool,
    /// It is a response to HEAD: its body does not have the length given in `Content-Length`.
    pub headless: bool,
    /// `Last-Modified` in Unix seconds.
    pub last_modified: Option<i64>,
    /// `ETag`
    pub etag: Option<Bytes>,
    /// `Vary`; empty if there is none.
    pub vary: Bytes,
    /// The key of its variant; zeros if it does not vary.
    pub variant: [u8; 16],
    /// The reason phrase of the status line.
    pub reason: Bytes,
}

impl Meta {
    /// Encodes it.
    pub fn encode(&self) -> Bytes {
        let etag = self.etag.as_deref().unwrap_or_default();
        let texts: [&[u8]; 3] = [etag, &self.vary, &self.reason];
        let length: usize = texts.iter().map(|text| text.len() + 2).sum();
        let mut out = BytesMut::with_capacity(34 + length);
        out.put_u8(VERSION);
        let flags = [
            self.strict,
            self.always_validate,
            self.never_stale,
            self.etag.is_some(),
            self.headless,
        ];
        out.put_u8(flags.iter().rev().fold(0, |all, flag| all << 1 | u8::from(*flag)));
        out.put_u32(self.initial_age);
        out.put_u32(self.lifetime);
        out.put_i64(self.last_modified.unwrap_or(NONE));
        out.put_slice(&self.variant);
        texts.iter().for_each(|text| put_text(&mut out, text));
        out.freeze()
    }

    /// Decodes the bytes; `None` if they are malformed.
    pub fn decode(bytes: Bytes) -> Option<Self> {
        let mut input = Input(bytes);
        if input.u8()? != VERSION {
            return None;
        }
        let flags = input.u8()?;
        let flag = |bit: u8| flags >> bit & 1 == 1;
        let mut meta = Self {
            initial_age: input.u32()?,
            lifetime: input.u32()?,
            strict: flag(0),
            always_validate: flag(1),
            never_stale: flag(2),
            headless: flag(4),
            last_modified: Some(input.i64()?).filter(|time| *time != NONE),
            variant: input.take()?,
            ..Self::default()
        };
        let etag = input.text()?;
        meta.etag = flag(3).then_some(etag);
        meta.vary = input.text()?;
        meta.reason = input.text()?;
        Some(meta)
    }
}

/// Encodes the fields of a response.
pub fn encode_fields<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    for (name, value) in fields.take(FIELDS_MAX) {
        put_text(&mut out, name);
        put_text(&mut out, value);
    }
    out.freeze()
}

/// Decodes the fields of a response; `None` if the bytes are malformed.
pub fn decode_fields(bytes: &Bytes) -> Option<Vec<Field>> {
    let mut input = Input(bytes.clone());
    let mut fields = Vec::with_capacity(12);
    while !input.0.is_empty() {
        if fields.len() == FIELDS_MAX {
            return None;
        }
        let name = input.text()?;
        fields.push(Field { known: Known::from_bytes(&name), name, value: input.text()? });
    }
    Some(fields)
}

/// Lengths take two bytes up to 64 KB, which is almost always enough; longer texts would be cut to
/// fit, but the maximum size of a head excludes them.
fn put_text(out: &mut BytesMut, text: &[u8]) {
    let text = &text[..text.len().min(usize::from(u16::MAX))];
    out.put_u16(text.len() as u16);
    out.put_slice(text);
}

struct Input(Bytes);

impl Input {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken: [u8; N] = self.0.get(..N)?.try_into().ok()?;
        self.0.advance(N);
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    fn text(&mut self) -> Option<Bytes> {
        let length = usize::from(self.u16()?);
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::random_cases;

    fn meta() -> Meta {
        Meta {
            initial_age: 3,
            lifetime: 60,
            strict: true,
            never_stale: true,
            last_modified: Some(7),
            etag: Some("\"a\"".into()),
            vary: "Accept-Encoding".into(),
            reason: "OK".into(),
            variant: [7; 16],
            ..Meta::default()
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for meta in [meta(), Meta::default(), Meta { etag: Some(Bytes::new()), ..meta() }] {
            assert_eq!(Meta::decode(meta.encode()), Some(meta));
        }
        let fields = [(&b"A"[..], &b"1"[..]), (b"B", b"")];
        let read = decode_fields(&encode_fields(fields.into_iter())).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!((&read[0].name[..], &read[1].value[..]), (&b"A"[..], &b""[..]));
        assert_eq!(decode_fields(&Bytes::new()), Some(Vec::new()));
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let whole = meta().encode();
        for end in 0..whole.len() {
            assert_eq!(Meta::decode(whole.slice(..end)), None);
        }
        let mut other = whole.to_vec();
        other[0] = 9;
        assert_eq!(Meta::decode(other.into()), None);
        random_cases(2000, |random| {
            let length = random.below(80);
            let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
            let _ = Meta::decode(bytes.clone().into());
            let _ = decode_fields(&bytes.into());
        });
    }
}
