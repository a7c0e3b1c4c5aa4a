//! Reading HTTP/1 messages, independently of the code under test.

use std::rc::Rc;
use std::time::Duration;

use nowait_runtime::net::Stream;

/// Longer than any time that the configuration allows: a longer wait is a bug.
pub const PATIENCE: Duration = Duration::from_secs(1800);

/// Why a message is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The connection ended before its first byte.
    Nothing,
    /// The connection ended within it.
    Cut,
    /// Nothing came for [`PATIENCE`].
    Forgotten,
    /// It violates the protocol.
    Malformed(String),
}

/// Reads messages from a connection.
pub struct Reader {
    stream: Rc<Stream>,
    buffer: Vec<u8>,
    /// Pauses before each receive, at most.
    pub pause_max: Duration,
}

impl Reader {
    pub fn new(stream: Rc<Stream>) -> Reader {
        Reader { stream, buffer: Vec::new(), pause_max: Duration::ZERO }
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The connection, and what is left of what was received.
    pub fn into_parts(self) -> (Rc<Stream>, Vec<u8>) {
        (self.stream, self.buffer)
    }

    /// Whether nothing is left of what was received.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Receives more. False at the end of the stream, however it ended.
    pub async fn more(&mut self) -> Result<bool, Broken> {
        if !self.pause_max.is_zero() {
            let millis = self.pause_max.as_millis() as u64;
            nowait_runtime::sleep(Duration::from_millis(nowait_runtime::sim::random(millis))).await;
        }
        match self.stream.recv(PATIENCE).await {
            Ok(data) => {
                self.buffer.extend_from_slice(&data);
                Ok(!data.is_empty())
            }
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Err(Broken::Forgotten),
            Err(_) => Ok(false),
        }
    }

    async fn need(&mut self) -> Result<(), Broken> {
        match self.more().await? {
            true => Ok(()),
            false => Err(Broken::Cut),
        }
    }

    /// The next head, with the empty line.
    pub async fn head(&mut self) -> Result<String, Broken> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return String::from_utf8(head).map_err(|_| Broken::Malformed("head".to_owned()));
            }
            if !self.more().await? {
                return Err(if self.is_empty() { Broken::Nothing } else { Broken::Cut });
            }
        }
    }

    /// The body after this head. `to_end`: without a length it ends with the connection.
    pub async fn body(&mut self, head: &str, to_end: bool) -> Result<Vec<u8>, Broken> {
        if field(head, "transfer-encoding").is_some_and(|coding| coding == "chunked") {
            return self.chunks().await;
        }
        if let Some(len) = field(head, "content-length") {
            let len = len.parse().map_err(|_| Broken::Malformed(format!("length {len}")))?;
            return self.exactly(len).await;
        }
        if to_end {
            while self.more().await? {}
            return Ok(std::mem::take(&mut self.buffer));
        }
        Ok(Vec::new())
    }

    /// So many bytes.
    pub async fn exactly(&mut self, len: usize) -> Result<Vec<u8>, Broken> {
        while self.buffer.len() < len {
            self.need().await?;
        }
        Ok(self.buffer.drain(..len).collect())
    }

    /// A line, without its end.
    pub async fn line(&mut self) -> Result<String, Broken> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            self.need().await?;
        }
    }

    async fn chunks(&mut self) -> Result<Vec<u8>, Broken> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let len = usize::from_str_radix(&line, 16)
                .map_err(|_| Broken::Malformed(format!("chunk {line:?}")))?;
            body.extend(self.exactly(len).await?);
            if !self.line().await?.is_empty() {
                return Err(Broken::Malformed("end of a chunk".to_owned()));
            }
            if len == 0 {
                return Ok(body);
            }
        }
    }
}

/// The value of a field.
pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
