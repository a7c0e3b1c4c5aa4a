//! The client's side of HTTP/2 (RFC 9113), as little of it as a generator of load needs: the same request
//! again and again, in streams of which each is checked.
//!
//! As browsers do, it names the fields of a request in full once per connection, and refers to HPACK's
//! dynamic table (RFC 7541) from then on. Sans-IO.

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

const FRAME_HEAD_BYTES: usize = 9;
/// The largest window there is, of which connections begin with 65,535 bytes.
const WINDOW: u32 = (1 << 31) - 1;
const WINDOW_AT_FIRST: u32 = 65_535;
/// Received bytes after which the window of the connection is opened again.
const WINDOW_UPDATE_BYTES: u32 = 1 << 30;

/// A request, as the fields of frames.
pub struct RequestFields {
    /// On a new connection; adds its fields to the dynamic table.
    first: Vec<u8>,
    /// From then on.
    next: Vec<u8>,
}

impl RequestFields {
    /// # Panics
    /// A text of more than 126 bytes.
    pub fn new(authority: &str, path: &str, user_agent: &str) -> RequestFields {
        // GET and https, by the static table; the other names are there too, without these values.
        let mut first = vec![0x82, 0x87];
        for (name, value) in [(0x41, authority), (0x44, path), (0x7a, user_agent)] {
            assert!(value.len() < 127, "the length has one byte");
            first.extend([name, value.len() as u8]);
            first.extend(value.as_bytes());
        }
        // The newest entry has the number 62.
        RequestFields { first, next: vec![0x82, 0x87, 0x80 | 64, 0x80 | 63, 0x80 | 62] }
    }
}

/// A connection.
pub struct Http2Connection<'a> {
    request: &'a RequestFields,
    /// Of each response's body.
    body_bytes: u64,
    next_id: u32,
    /// Streams that wait, with the bytes that have come.
    waiting: Vec<(u32, u64)>,
    /// The head of the current frame, and what of its payload is to be looked at.
    head: Vec<u8>,
    payload: Vec<u8>,
    /// Bytes of the current frame still to come.
    left: usize,
    /// Received since the window was opened.
    received: u32,
}

impl<'a> Http2Connection<'a> {
    /// Writes the preface.
    pub fn new(
        request: &'a RequestFields,
        body_bytes: u64,
        out: &mut Vec<u8>,
    ) -> Http2Connection<'a> {
        out.extend(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        // No pushes; windows as large as they can be.
        frame(out, SETTINGS, 0, 0, &[&[0, 2, 0, 0, 0, 0], &[0, 4][..], &WINDOW.to_be_bytes()]);
        frame(out, WINDOW_UPDATE, 0, 0, &[&(WINDOW - WINDOW_AT_FIRST).to_be_bytes()]);
        Http2Connection {
            request,
            body_bytes,
            next_id: 1,
            waiting: Vec::new(),
            head: Vec::with_capacity(FRAME_HEAD_BYTES),
            payload: Vec::new(),
            left: 0,
            received: 0,
        }
    }

    /// Writes a request in a new stream.
    pub fn send(&mut self, out: &mut Vec<u8>) {
        let fields = if self.next_id == 1 { &self.request.first } else { &self.request.next };
        frame(out, HEADERS, END_STREAM | END_HEADERS, self.next_id, &[fields]);
        self.waiting.push((self.next_id, 0));
        self.next_id += 2;
    }

    /// Takes what has come, and writes what a server must be told; returns how many responses are complete.
    ///
    /// # Errors
    /// A response is not the expected one, or the server has ended the connection.
    pub fn receive(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<u64, String> {
        let mut complete = 0;
        while !bytes.is_empty() {
            if self.head.len() < FRAME_HEAD_BYTES {
                take(&mut bytes, FRAME_HEAD_BYTES - self.head.len(), &mut self.head);
                if self.head.len() < FRAME_HEAD_BYTES {
                    break;
                }
                self.left = usize::from(self.head[0]) << 16
                    | usize::from(self.head[1]) << 8
                    | usize::from(self.head[2]);
            }
            let here = self.left.min(bytes.len());
            self.left -= here;
            if self.kind() == DATA {
                self.data(here as u32)?;
                bytes = &bytes[here..];
            } else {
                take(&mut bytes, here, &mut self.payload);
            }
            if self.left == 0 {
                complete += u64::from(self.frame(out)?);
                self.head.clear();
                self.payload.clear();
            }
        }
        if self.received >= WINDOW_UPDATE_BYTES {
            frame(out, WINDOW_UPDATE, 0, 0, &[&self.received.to_be_bytes()]);
            self.received = 0;
        }
        Ok(complete)
    }

    /// Bytes of content that have come of responses that are not complete.
    pub fn come(&self) -> u64 {
        self.waiting.iter().map(|(_, bytes)| bytes).sum()
    }

    fn kind(&self) -> u8 {
        self.head[3]
    }

    fn flags(&self) -> u8 {
        self.head[4]
    }

    fn id(&self) -> u32 {
        u32::from_be_bytes([self.head[5], self.head[6], self.head[7], self.head[8]])
    }

    fn data(&mut self, bytes: u32) -> Result<(), String> {
        self.received += bytes;
        let id = self.id();
        let stream = self.waiting.iter_mut().find(|(waiting, _)| *waiting == id);
        let (_, received) = stream.ok_or_else(|| format!("data of stream {id}"))?;
        *received += u64::from(bytes);
        Ok(())
    }

    /// The end of a frame; whether it completes a response.
    fn frame(&mut self, out: &mut Vec<u8>) -> Result<bool, String> {
        let (kind, flags, id) = (self.kind(), self.flags(), self.id());
        match kind {
            DATA | HEADERS if flags & PADDED != 0 => return Err("padding".to_owned()),
            DATA => {}
            HEADERS => self.status()?,
            SETTINGS if flags & ACK == 0 => frame(out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(out, PING, ACK, 0, &[&self.payload]),
            RST_STREAM | GOAWAY | PUSH_PROMISE => return Err(format!("a frame of type {kind}")),
            _ => {}
        }
        if !matches!(kind, DATA | HEADERS) || flags & END_STREAM == 0 {
            return Ok(false);
        }
        let at = self.waiting.iter().position(|(waiting, _)| *waiting == id);
        let at = at.ok_or_else(|| format!("the end of stream {id}"))?;
        match self.waiting.swap_remove(at) {
            (_, bytes) if bytes == self.body_bytes => Ok(true),
            (_, bytes) => Err(format!("{bytes} bytes, {} expected", self.body_bytes)),
        }
    }

    /// A response begins with its status: 200 is in the static table. The size of the dynamic table may be
    /// said before.
    fn status(&self) -> Result<(), String> {
        let mut fields = self.payload.iter().skip_while(|byte| (0x20..0x40).contains(*byte));
        match fields.next() {
            Some(0x88) => Ok(()),
            other => Err(format!("a status other than 200: {other:x?}")),
        }
    }
}

/// Moves up to `count` bytes.
fn take(from: &mut &[u8], count: usize, to: &mut Vec<u8>) {
    let (taken, rest) = from.split_at(count.min(from.len()));
    to.extend(taken);
    *from = rest;
}

/// Writes a frame.
fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, id: u32, payload: &[&[u8]]) {
    let length = payload.iter().map(|part| part.len()).sum::<usize>() as u32;
    out.extend(&length.to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend(id.to_be_bytes());
    payload.iter().for_each(|part| out.extend(*part));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(id: u32, status: u8, body: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        frame(&mut all, HEADERS, END_HEADERS, id, &[&[0x3f, status, 0x61]]);
        frame(&mut all, DATA, END_STREAM, id, &[body]);
        all
    }

    #[test]
    fn responses_are_counted_however_they_are_cut() {
        let request = RequestFields::new("localhost", "/tiny", "bench");
        let mut all = Vec::new();
        frame(&mut all, SETTINGS, 0, 0, &[]);
        all.extend(response(3, 0x88, b"OK"));
        frame(&mut all, PING, 0, 0, &[b"12345678"]);
        all.extend(response(1, 0x88, b"OK"));
        for step in 1..=all.len() {
            let mut out = Vec::new();
            let mut connection = Http2Connection::new(&request, 2, &mut out);
            (0..2).for_each(|_| connection.send(&mut out));
            out.clear();
            let complete: u64 =
                all.chunks(step).map(|part| connection.receive(part, &mut out).unwrap()).sum();
            assert_eq!((complete, connection.waiting.len()), (2, 0), "{step}");
            assert!(out.starts_with(&[0, 0, 0, SETTINGS, ACK]) && out.ends_with(b"12345678"));
        }
    }

    #[test]
    fn other_responses_are_errors() {
        let request = RequestFields::new("localhost", "/tiny", "bench");
        let mut out = Vec::new();
        for wrong in [response(1, 0x8d, b"OK"), response(1, 0x88, b"no!"), response(5, 0x88, b"OK")]
        {
            let mut connection = Http2Connection::new(&request, 2, &mut out);
            connection.send(&mut out);
            assert!(connection.receive(&wrong, &mut out).is_err());
        }
    }

    #[test]
    fn later_requests_refer_to_the_first() {
        let request = RequestFields::new("localhost", "/tiny", "bench");
        let mut out = Vec::new();
        let mut connection = Http2Connection::new(&request, 2, &mut out);
        out.clear();
        connection.send(&mut out);
        let first = out.len();
        connection.send(&mut out);
        assert!(first > 30 && out.len() - first == FRAME_HEAD_BYTES + 5);
        assert_eq!(out[first + 5..first + 9], 3u32.to_be_bytes());
    }
}
