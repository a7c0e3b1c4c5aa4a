//! A reader of DER: sufficient for the parts of certificates and keys that webpki and rustls do not expose.
//! Never panics; malformed input is `None`.

/// Tag of BOOLEAN.
pub(crate) const BOOLEAN: u8 = 0x01;
/// Tag of INTEGER.
pub(crate) const INTEGER: u8 = 0x02;
/// Tag of BIT STRING.
pub(crate) const BIT_STRING: u8 = 0x03;
/// Tag of OCTET STRING.
pub(crate) const OCTET_STRING: u8 = 0x04;
/// Tag of OBJECT IDENTIFIER.
pub(crate) const OID: u8 = 0x06;
/// Tag of SEQUENCE.
pub(crate) const SEQUENCE: u8 = 0x30;
/// Tag of SET.
pub(crate) const SET: u8 = 0x31;

/// One value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DerValue<'a> {
    pub(crate) tag: u8,
    pub(crate) contents: &'a [u8],
    /// With tag and length.
    pub(crate) whole: &'a [u8],
}

/// Values that follow each other.
#[derive(Clone, Debug)]
pub(crate) struct DerReader<'a> {
    rest: &'a [u8],
}

impl<'a> DerReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> DerReader<'a> {
        DerReader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The tag of the next value.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The next value.
    pub(crate) fn next(&mut self) -> Option<DerValue<'a>> {
        let (&tag, after_tag) = self.rest.split_first()?;
        // Tags of several bytes don't occur in the structures read here.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (&first, mut after) = after_tag.split_first()?;
        let mut len = usize::from(first);
        if first & 0x80 != 0 {
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 {
                return None;
            }
            let (bytes, rest) = after.split_at_checked(count)?;
            len = bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
            after = rest;
        }
        let (contents, rest) = after.split_at_checked(len)?;
        let whole = &self.rest[..self.rest.len() - rest.len()];
        self.rest = rest;
        Some(DerValue { tag, contents, whole })
    }

    /// The contents of the next value, which has this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let value = self.next()?;
        (value.tag == tag).then_some(value.contents)
    }

    /// The values inside the next one, which has this tag.
    pub(crate) fn enter(&mut self, tag: u8) -> Option<DerReader<'a>> {
        self.expect(tag).map(DerReader::new)
    }

    /// The contents of the next value if it has this tag; otherwise no bytes are consumed.
    pub(crate) fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.peek() == Some(tag) { self.expect(tag) } else { None }
    }

    /// A small INTEGER that is not negative.
    pub(crate) fn number(&mut self) -> Option<u32> {
        let bytes = self.expect(INTEGER)?;
        if bytes.is_empty() || bytes.len() > 5 || bytes[0] & 0x80 != 0 {
            return None;
        }
        let number = bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        u32::try_from(number).ok()
    }
}

/// An object identifier in dotted form.
pub(crate) fn dotted(oid: &[u8]) -> Option<String> {
    let mut parts: Vec<u64> = Vec::new();
    let mut part = 0u64;
    for byte in oid {
        part = part.checked_mul(128)? | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            parts.push(std::mem::take(&mut part));
        }
    }
    let first = *parts.first()?;
    let top = (first / 40).min(2);
    let mut text = format!("{top}.{}", first - top * 40);
    for part in &parts[1..] {
        text.push_str(&format!(".{part}"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_and_odd_values_are_refused() {
        let whole = [SEQUENCE, 6, INTEGER, 1, 5, OID, 1, 42];
        let mut inside = DerReader::new(&whole).enter(SEQUENCE).unwrap();
        assert_eq!(inside.number(), Some(5));
        assert_eq!(inside.expect(OID), Some(&[42][..]));
        assert!(inside.is_empty());
        for end in 0..whole.len() {
            assert!(DerReader::new(&whole[..end]).next().is_none(), "{end}");
        }
        assert!(DerReader::new(&[0x3f, 1, 1]).next().is_none());
        assert!(DerReader::new(&[INTEGER, 0x80]).next().is_none());
        assert!(DerReader::new(&[INTEGER, 0x85, 0, 0, 0, 0, 1, 1]).next().is_none());
        assert_eq!(DerReader::new(&[INTEGER, 1, 0xff]).number(), None);
    }

    #[test]
    fn object_identifiers_are_dotted() {
        assert_eq!(dotted(&[0x55, 4, 3]).as_deref(), Some("2.5.4.3"));
        assert_eq!(
            dotted(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d]).as_deref(),
            Some("1.2.840.113549")
        );
        assert_eq!(dotted(&[0xff; 20]), None);
    }
}
