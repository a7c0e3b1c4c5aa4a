//! One query to one server: by UDP, and by TCP when the response does not fit.
//!
//! Each query has its own socket, so that its source port, chosen by the kernel, has to be guessed
//! along with its id (RFC 5452). Responses from other addresses never arrive: the socket is
//! connected. Messages that arrive but do not match are dropped and counted; too many of them look
//! like a guessing attack, and the query is then repeated by TCP.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use nowait_runtime::net::{Address, Datagram, SendOptions, Stream};
use nowait_runtime::time::timeout;

use crate::message::{Question, Reply};

/// Number of mismatched datagrams after which a query is repeated by TCP.
pub const REJECTED_MAX: usize = 32;

/// Time limit of each step of an exchange by TCP: connecting, sending, receiving. nginx:
/// `tcp_timeout`.
pub const TCP_TIMEOUT: Duration = Duration::from_secs(5);

/// Result of an exchange.
#[derive(Debug)]
pub struct ExchangeResult {
    /// The server's response.
    pub reply: Reply,
    /// Number of dropped messages.
    pub rejected: usize,
}

/// Sends the query and waits for the response without a time limit, which is up to the caller.
///
/// # Errors
/// When the server cannot be reached: its port is closed, or there is no route.
pub async fn exchange(question: &Question, server: SocketAddr) -> io::Result<ExchangeResult> {
    let message = question.message();
    let socket = Datagram::connect(server)?;
    socket.send(&message).await?;
    for rejected in 0..REJECTED_MAX {
        let answer = socket.recv(nowait_runtime::net::NO_TIMEOUT).await?;
        match question.accept(&answer, false) {
            Ok(Reply::Truncated) => return by_tcp(question, server, message, rejected).await,
            Ok(reply) => return Ok(ExchangeResult { reply, rejected }),
            Err(_) => {}
        }
    }
    by_tcp(question, server, message, REJECTED_MAX).await
}

/// RFC 7766: the message is preceded by its length.
async fn by_tcp(
    question: &Question,
    server: SocketAddr,
    message: Vec<u8>,
    rejected: usize,
) -> io::Result<ExchangeResult> {
    let stream = Stream::connect(&Address::Inet(server), TCP_TIMEOUT).await?;
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let framed = [&length.to_be_bytes()[..], &message].concat();
    stream.send(Bytes::from(framed), SendOptions::new(TCP_TIMEOUT)).await?;
    let answer = timeout(TCP_TIMEOUT, receive(&stream)).await??;
    let reply = question.accept(&answer, true);
    Ok(ExchangeResult { reply: reply.map_err(|_| io::ErrorKind::InvalidData)?, rejected })
}

/// One length-prefixed message: 64 KB at most.
async fn receive(stream: &Stream) -> io::Result<Vec<u8>> {
    let mut received = Vec::new();
    loop {
        if let Some((length, rest)) = received.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length));
            if rest.len() >= length {
                return Ok(rest[..length].to_vec());
            }
        }
        let data = stream.recv(TCP_TIMEOUT).await?;
        if data.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.extend_from_slice(&data);
    }
}
