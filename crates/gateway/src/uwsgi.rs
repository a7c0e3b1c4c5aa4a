//! The beginning of uwsgi requests: a packet with variables. nginx: `ngx_http_uwsgi_create_request`.

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

    /// Adds a variable.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        for part in [name, value] {
            // A longer one is too much for the packet, too: `write` refuses it.
            let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
            self.0.extend_from_slice(&length.to_le_bytes());
            self.0.extend_from_slice(part);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet() {
        let mut vars = Vars::new();
        vars.push(b"A", b"bc");
        vars.push(b"E", b"");
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
