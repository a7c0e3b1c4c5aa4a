//! Writing DER.

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
pub(crate) const OCTETS: u8 = 0x04;
pub(crate) const BITS: u8 = 0x03;
pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTF8: u8 = 0x0c;
/// `[0]` with contents.
pub(crate) const CONTEXT_0: u8 = 0xa0;

/// One value: its type, length and contents.
pub(crate) fn value(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![kind];
    match u8::try_from(len) {
        Ok(short @ 0..=0x7f) => out.push(short),
        _ => {
            let bytes = len.to_be_bytes();
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            out.push(0x80 | (bytes.len() - zeros) as u8);
            out.extend_from_slice(&bytes[zeros..]);
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// A bit string of whole bytes.
pub(crate) fn bits(bytes: &[u8]) -> Vec<u8> {
    value(BITS, &[&[0], bytes])
}

/// The contents of the first value, and what follows it. `None`: it is malformed.
pub(crate) fn contents(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, rest) = input.get(1..)?.split_first()?;
    let (len, rest) = match usize::from(len) {
        short @ 0..=0x7f => (short, rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(long & 0x7f)?;
            let len = bytes.iter().try_fold(0usize, |len, byte| {
                len.checked_mul(256)?.checked_add(usize::from(*byte))
            })?;
            (len, rest)
        }
    };
    rest.split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        assert_eq!(value(OCTETS, &[b"ab", b"c"]), [4, 3, b'a', b'b', b'c']);
        assert_eq!(value(OCTETS, &[&[0; 200]])[..4], [4, 0x81, 200, 0]);
        let long = value(OCTETS, &[&[7; 300], &[1]]);
        assert_eq!(contents(&long).map(|(own, rest)| (own.len(), rest.len())), Some((301, 0)));
        assert!(contents(&long[..300]).is_none() && contents(&[4]).is_none());
        assert_eq!(value(OCTETS, &[&[0; 300]])[..5], [4, 0x82, 1, 44, 0]);
    }
}
