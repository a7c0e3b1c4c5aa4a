//! The client's side of HTTP/3 (RFC 9114), as little of it as a generator of load needs: the same request again and
//! again, and responses whose status and length are checked.
//!
//! No dynamic table is offered, and none is used: every request names its fields in full. Sans-IO.

const DATA: u64 = 0;
const HEADERS: u64 = 1;
const SETTINGS: u8 = 4;

/// The type of a control stream (RFC 9114, 6.2.1), and empty settings.
pub const CONTROL_STREAM: [u8; 3] = [0, SETTINGS, 0];

/// `:status: 200` of QPACK's static table, behind a prefix of two bytes.
const STATUS_200: u8 = 0xc0 | 25;

/// A request: its head, and the begin of the frame with its content.
///
/// # Panics
/// A text of more than 126 bytes.
pub fn request(authority: &str, path: &str, user_agent: &str, content: Option<u64>) -> Vec<u8> {
    // No base; GET or POST, and https, by the static table, as are the names of the other fields.
    let mut fields = vec![0, 0, 0xc0 | if content.is_some() { 20 } else { 17 }, 0xc0 | 23];
    let mut field = |name: &[u8], value: &str| {
        assert!(value.len() < 127, "the length has one byte");
        fields.extend(name);
        fields.push(value.len() as u8);
        fields.extend(value.as_bytes());
    };
    field(&[0x50], authority);
    field(&[0x51], path);
    // Number 95.
    field(&[0x5f, 95 - 15], user_agent);
    if let Some(length) = content {
        field(&[0x54], &length.to_string());
    }
    let mut out = vec![HEADERS as u8];
    put_varint(&mut out, fields.len() as u64);
    out.extend(fields);
    if let Some(length) = content {
        out.push(DATA as u8);
        put_varint(&mut out, length);
    }
    out
}

/// RFC 9000, 16.
fn put_varint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..64 => out.push(value as u8),
        64..0x4000 => out.extend((value as u16 | 0x4000).to_be_bytes()),
        _ => out.extend((value as u32 | 0x8000_0000).to_be_bytes()),
    }
}

/// Reads an integer, and its length.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = 1 << (bytes.first()? >> 6);
    let first = u64::from(bytes[0] & 0x3f);
    let rest = bytes.get(1..length)?;
    Some((rest.iter().fold(first, |value, byte| value << 8 | u64::from(*byte)), length))
}

/// What has come of a response.
#[derive(Debug, Default)]
pub struct ResponseReader {
    /// The type of the frame, and the bytes of it still to come.
    frame: Option<(u64, u64)>,
    /// Bytes that are not parsed yet: the head of a frame, or fields.
    held: Vec<u8>,
    has_head: bool,
    /// Content that has come.
    pub body_bytes: u64,
}

impl ResponseReader {
    /// Takes bytes.
    ///
    /// # Errors
    /// A response that is not the expected one.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let Some((kind, left)) = &mut self.frame else {
                // Two integers of one to eight bytes each.
                self.held.push(bytes[0]);
                bytes = &bytes[1..];
                let Some((kind, at)) = varint(&self.held) else { continue };
                let Some((length, _)) = varint(&self.held[at..]) else { continue };
                self.held.clear();
                self.frame = (length > 0).then_some((kind, length));
                continue;
            };
            let here = (*left).min(bytes.len() as u64) as usize;
            match *kind {
                DATA => self.body_bytes += here as u64,
                HEADERS if !self.has_head => self.held.extend(&bytes[..here]),
                _ => {}
            }
            *left -= here as u64;
            bytes = &bytes[here..];
            if *left == 0 {
                if *kind == HEADERS && !self.has_head {
                    self.status()?;
                }
                self.frame = None;
            }
        }
        Ok(())
    }

    fn status(&mut self) -> Result<(), String> {
        if self.held.get(2) != Some(&STATUS_200) {
            return Err(format!("a status other than 200: {:x?}", self.held));
        }
        self.held.clear();
        self.has_head = true;
        Ok(())
    }

    /// The response has ended.
    ///
    /// # Errors
    /// It is not complete, or of another length.
    pub fn end(&self, body_bytes: u64) -> Result<(), String> {
        match self.has_head && self.frame.is_none() && self.body_bytes == body_bytes {
            true => Ok(()),
            false => Err(format!("{} bytes, {body_bytes} expected", self.body_bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_however_they_are_cut() {
        let mut all = vec![HEADERS as u8, 4, 0, 0, STATUS_200, 0xc4, DATA as u8, 0x40, 3];
        all.extend(b"abc");
        // A frame of an unknown type, and another part of the content.
        all.extend([0x21, 2, 9, 9, DATA as u8, 1, b'd']);
        for step in 1..=all.len() {
            let mut reader = ResponseReader::default();
            all.chunks(step).for_each(|part| reader.receive(part).unwrap());
            reader.end(4).unwrap();
            assert!(reader.end(5).is_err());
        }
    }

    #[test]
    fn other_responses_are_errors() {
        let mut reader = ResponseReader::default();
        assert!(reader.receive(&[HEADERS as u8, 3, 0, 0, 0xc0 | 27]).is_err());
        let mut reader = ResponseReader::default();
        reader.receive(&[HEADERS as u8, 3, 0, 0]).unwrap();
        assert!(reader.end(0).is_err());
    }

    #[test]
    fn requests_have_their_length() {
        let text = request("localhost", "/upload", "bench", Some(20_000_000));
        assert_eq!((text[0], text[1] as usize), (HEADERS as u8, text.len() - 2 - 5));
        assert!(text.ends_with(&[0, 0x81, 0x31, 0x2d, 0x00]));
    }
}
