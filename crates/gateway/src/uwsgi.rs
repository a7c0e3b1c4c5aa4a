//! The beginning of uwsgi requests: a packet with variables. nginx: `ngx_http_uwsgi_create_request`.

use std::convert::Infallible;

use crate::ParamForm;

/// What precedes the variables in a packet, in bytes: their length between the modifiers.
const HEADER_BYTES: usize = 4;

/// Variables of a request: where their packet begins.
#[derive(Debug)]
pub struct Vars(usize);

/// The variables have this many bytes, which is more than a packet may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketTooLarge(pub usize);

impl Vars {
    /// Begins a packet.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        Self(start)
    }

    /// Completes the packet; what follows the beginning are its variables.
    ///
    /// # Errors
    /// [`PacketTooLarge`]
    pub fn end(self, modifiers: [u8; 2], out: &mut [u8]) -> Result<(), PacketTooLarge> {
        let Self(start) = self;
        let bytes = out.len() - start - HEADER_BYTES;
        let [low, high] = u16::try_from(bytes).map_err(|_| PacketTooLarge(bytes))?.to_le_bytes();
        let header = [modifiers[0], low, high, modifiers[1]];
        out[start..start + HEADER_BYTES].copy_from_slice(&header);
        Ok(())
    }
}

impl ParamForm for Vars {
    type Error = Infallible;

    fn open(list: &mut Vec<u8>, name_bytes: usize, name: impl FnOnce(&mut Vec<u8>)) {
        list.extend_from_slice(&length(name_bytes));
        name(list);
        list.extend_from_slice(&[0; 2]);
    }

    fn close(list: &mut Vec<u8>, _: usize, value: usize) -> Result<(), Infallible> {
        let length = length(list.len() - value);
        list[value - 2..value].copy_from_slice(&length);
        Ok(())
    }
}

/// The length of a name or a value, as it stands before it. One that is too long is too much for the
/// packet, too: [`Vars::end`] refuses it.
fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet() {
        let mut out = b">".to_vec();
        let vars = Vars::begin(&mut out);
        let Ok(()) = Vars::push(&mut out, b"A", b"bc");
        let Ok(()) = Vars::push(&mut out, b"E", b"");
        vars.end([5, 7], &mut out).unwrap();
        assert_eq!(out, b">\x05\x0c\x00\x07\x01\x00A\x02\x00bc\x01\x00E\x00\x00");
    }

    #[test]
    fn lengths_have_two_bytes() {
        let mut list = Vec::new();
        let Ok(()) = Vars::push(&mut list, &[b'n'; 127], &[b'v'; 128]);
        let Ok(()) = Vars::push(&mut list, b"L", &[b'v'; 258]);
        let rest = &list[2 + 127 + 2 + 128..];
        assert_eq!((&list[..2], &list[129..131]), (&[127, 0][..], &[128, 0][..]));
        assert_eq!((&rest[..5], rest.len()), (&b"\x01\0L\x02\x01"[..], 5 + 258));
    }

    #[test]
    fn a_packet_has_at_most_64_kb() {
        for (bytes, expected) in [
            (65_530, Ok(())),
            (65_531, Err(PacketTooLarge(65_536))),
            (70_000, Err(PacketTooLarge(70_005))),
        ] {
            let mut out = Vec::new();
            let vars = Vars::begin(&mut out);
            let Ok(()) = Vars::push(&mut out, b"A", &vec![b'x'; bytes]);
            assert_eq!(vars.end([0, 0], &mut out), expected);
        }
    }
}
