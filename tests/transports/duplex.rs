//! Both directions at once, as tunnels and sessions of `stream` carry them.
//!
//! The client begins with a line that says what both sides will send. The origin ends with its verdict.

use std::io::{self, ErrorKind, Read, Write};

use crate::content::ContentRange;
use crate::plan::Duplex;
use crate::random::SeededRng;
use crate::wire::Wire;

/// What the origin says last if everything has arrived.
pub const GOOD: &[u8] = b"+";

/// The longest line.
const LINE_MAX: usize = 200;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// The line that says what will be sent.
pub fn line(id: u64, duplex: &Duplex) -> String {
    let Duplex { up, down, half_close } = duplex;
    format!("{id} {} {} {}\n", up.len, down.len, u8::from(*half_close))
}

fn parse(line: &[u8]) -> Option<(u64, Duplex)> {
    let text = std::str::from_utf8(line).ok()?;
    let mut words = text.split(' ');
    let id = words.next()?.parse().ok()?;
    let up = ContentRange::new(id, words.next()?.parse().ok()?);
    let down = ContentRange::new(!id, words.next()?.parse().ok()?);
    Some((id, Duplex { up, down, half_close: words.next()? == "1" }))
}

/// Sends everything, receives until the length is there, both at once.
fn pump(
    wire: &mut Wire,
    random: &mut SeededRng,
    mut out: &[u8],
    arrived: &mut Vec<u8>,
    length: usize,
) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let most = random.pick(&[1000, 16_384, 20_480, 100_000, usize::MAX]);
    let mut pieces = 0;
    while !out.is_empty() || arrived.len() < length {
        let mut count = None;
        if !out.is_empty() && (arrived.len() >= length || random.one_in(2)) {
            pieces += 1;
            let most = if pieces < 40 { most } else { usize::MAX };
            let (piece, rest) = out.split_at(random.within(1, out.len().min(most)));
            wire.write_all(piece)?;
            out = rest;
            if out.is_empty() {
                wire.flush()?;
            }
        } else if !out.is_empty() {
            count = wire.read_early(&mut buffer)?;
        } else {
            count = Some(wire.read(&mut buffer)?);
        }
        match count {
            Some(0) if arrived.len() < length => {
                let text = format!("ended after {} of {length} bytes", arrived.len());
                return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
            }
            Some(count) => arrived.extend_from_slice(&buffer[..count]),
            None => {}
        }
    }
    Ok(())
}

/// The client's side. `arrived` is what has arrived before.
///
/// # Errors
/// If something else arrives.
pub fn client(
    wire: &mut Wire,
    id: u64,
    duplex: &Duplex,
    mut arrived: Vec<u8>,
) -> Result<(), String> {
    let mut random = SeededRng::new(id);
    let failed = |error: io::Error| format!("in the tunnel: {error}");
    let out = [line(id, duplex).into_bytes(), duplex.up.bytes()].concat();
    let length = duplex.down.len + GOOD.len();
    if duplex.half_close {
        // What comes back is awaited afterwards.
        pump(wire, &mut random, &out, &mut arrived, 0).map_err(failed)?;
        wire.finish().map_err(failed)?;
        pump(wire, &mut random, b"", &mut arrived, length).map_err(failed)?;
    } else {
        pump(wire, &mut random, &out, &mut arrived, length).map_err(failed)?;
    }
    wire.read_to_end(&mut arrived).map_err(failed)?;
    check(duplex, &arrived)
}

/// Compares everything that the origin has sent.
///
/// # Errors
/// Where they part.
pub fn check(duplex: &Duplex, arrived: &[u8]) -> Result<(), String> {
    let (content, verdict) = arrived.split_at(duplex.down.len.min(arrived.len()));
    duplex.down.check(content)?;
    if verdict == GOOD {
        return Ok(());
    }
    Err(format!("the origin says of the upload: {}", verdict.escape_ascii()))
}

/// The origin's side. `arrived` is what has arrived before.
///
/// # Errors
/// If the peer is gone or does not keep to the order.
pub fn origin(wire: &mut Wire, mut arrived: Vec<u8>) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let length = loop {
        if let Some(length) = arrived.iter().position(|byte| *byte == b'\n') {
            break length;
        }
        if arrived.len() > LINE_MAX {
            return Err(io::Error::other("no line says what will be sent"));
        }
        let count = wire.read(&mut buffer)?;
        if count == 0 && arrived.is_empty() {
            return Ok(()); // A session without data: a probe.
        }
        if count == 0 {
            // The server forwards what it has when its client leaves, even half of a line.
            let text = format!("ended after {} bytes of the line", arrived.len());
            return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
        }
        arrived.extend_from_slice(&buffer[..count]);
    };
    let (id, duplex) = parse(&arrived[..length]).ok_or_else(|| {
        io::Error::other(format!("the line {:?}", String::from_utf8_lossy(&arrived[..length])))
    })?;
    arrived.drain(..=length);
    wire.behave(id ^ 1);
    let mut random = SeededRng::new(id ^ 1);
    let down = duplex.down.bytes();
    let ended = pump(wire, &mut random, &down, &mut arrived, duplex.up.len);
    if ended.as_ref().is_err_and(|error| error.kind() != ErrorKind::UnexpectedEof) {
        return ended;
    }
    if duplex.half_close {
        wire.read_to_end(&mut arrived)?;
    }
    match duplex.up.check(&arrived) {
        Ok(()) => wire.write_all(GOOD)?,
        Err(why) => wire.write_all(why.as_bytes())?,
    }
    wire.finish()?;
    // The end of the other side: a peer that closes with something unread resets.
    wire.read_to_end(&mut arrived).map(drop)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    /// What the origin makes of a peer that sends this and leaves.
    fn origin_of(sent: &[u8]) -> ErrorKind {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("its address");
        let mut peer = TcpStream::connect(address).expect("it listens");
        peer.write_all(sent).expect("it is accepted");
        drop(peer);
        let (socket, _) = listener.accept().expect("the peer");
        let mut wire = Wire::new(socket, None, 0).expect("no handshake");
        origin(&mut wire, Vec::new()).expect_err("no line").kind()
    }

    #[test]
    fn a_peer_may_leave_within_the_line() {
        assert_eq!(origin_of(b"7 100"), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_line_has_an_end() {
        assert_eq!(origin_of(&[b'7'; 2 * LINE_MAX]), ErrorKind::Other);
    }
}
