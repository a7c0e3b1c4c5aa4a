//! The beginning of uwsgi requests: a packet with variables. nginx: `ngx_http_uwsgi_create_request`.

use crate::ParamList;

/// Variables of a request.
#[derive(Debug, Default)]
pub struct Vars(Vec<u8>);

/// The variables have this many bytes, which is more than a packet may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooBig(pub usize);

impl Vars {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the packet.
    ///
    /// # Errors
    /// [`TooBig`]
    pub fn write(&self, modifiers: [u8; 2], out: &mut Vec<u8>) -> Result<(), TooBig> {
        let length = u16::try_from(self.0.len()).map_err(|_| TooBig(self.0.len()))?;
        out.push(modifiers[0]);
        out.extend_from_slice(&length.to_le_bytes());
        out.push(modifiers[1]);
        out.extend_from_slice(&self.0);
        Ok(())
    }
}

impl ParamList for Vars {
    fn add(
        &mut self,
        if_not_empty: bool,
        name: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.0.len();
        append(&mut self.0, name);
        if append(&mut self.0, value) == 0 && if_not_empty {
            self.0.truncate(start);
        }
    }
}

/// Appends a name or a value with its length before it, which is returned.
fn append(list: &mut Vec<u8>, text: impl FnOnce(&mut Vec<u8>)) -> usize {
    list.extend_from_slice(&[0; 2]);
    let start = list.len();
    text(list);
    let bytes = list.len() - start;
    // A longer one is too much for the packet, too: `write` refuses it.
    let length = u16::try_from(bytes).unwrap_or(u16::MAX);
    list[start - 2..start].copy_from_slice(&length.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet() {
        let mut vars = Vars::new();
        vars.push(b"A", b"bc");
        vars.push(b"E", b"");
        vars.add(true, |out| out.extend_from_slice(b"NONE"), |_| ());
        let mut out = Vec::new();
        vars.write([5, 7], &mut out).unwrap();
        assert_eq!(out, b"\x05\x0c\x00\x07\x01\x00A\x02\x00bc\x01\x00E\x00\x00");
    }

    #[test]
    fn a_packet_has_at_most_64_kb() {
        let mut vars = Vars::new();
        vars.push(b"A", &vec![b'x'; 65_530]);
        assert_eq!(vars.write([0, 0], &mut Vec::new()), Ok(()));
        vars.push(b"", b"");
        assert_eq!(vars.write([0, 0], &mut Vec::new()), Err(TooBig(65_539)));
    }
}
