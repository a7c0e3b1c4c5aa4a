//! What clients and origins of HTTP/2 share: the connection below them, and frames of content.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use nowait_h2::StreamId;
use nowait_h2::connection::{Connection, Role};

use crate::wait::{self, PATIENCE};

/// A connection to the other side: a socket, or TLS over one.
pub trait Link: Read + Write + Send {}

impl<T: Read + Write + Send> Link for T {}

/// A socket whose reads wait as long as a test does. Its own timeout is short.
pub(crate) struct PatientSocket(pub(crate) TcpStream);

impl Read for PatientSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        wait::read(&self.0, buffer, PATIENCE)
    }
}

impl Write for PatientSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The flag of DATA frames that have padding.
const PADDED: u8 = 8;

/// Where flags are in the header of a frame, counted from its end.
const FLAGS_BEFORE_END: usize = 5;

/// Writes the beginning of the content as one DATA frame, as far as windows and frame sizes allow, with
/// this padding if it fits. Returns how much of the content it has.
#[track_caller]
pub(crate) fn data_frame<R: Role>(
    h2: &mut Connection<R>,
    stream: StreamId,
    content: &[u8],
    padding: Option<u8>,
    end: bool,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let extra = padding.map_or(0, |padding| 1 + usize::from(padding));
    let room = h2.reserve(stream, content.len() + extra);
    let padding = padding.filter(|_| room > extra);
    let length = if padding.is_some() { room - extra } else { room.min(content.len()) };
    if length == 0 && !content.is_empty() {
        return None;
    }
    let ends = end && length == content.len();
    let whole = if padding.is_some() { room } else { length };
    h2.data_header(stream, whole, ends, out).expect("an open stream");
    if let Some(padding) = padding {
        let flags = out.len() - FLAGS_BEFORE_END;
        out[flags] |= PADDED;
        out.push(padding);
    }
    out.extend_from_slice(&content[..length]);
    out.extend(std::iter::repeat_n(0, padding.unwrap_or(0).into()));
    Some(length)
}
