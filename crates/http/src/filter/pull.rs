//! A body as pieces in memory, for filters that need its bytes.

use std::collections::VecDeque;

use bytes::Bytes;
use nowait_runtime::pool::PoolError;

use crate::response::{Body, BodyError, BodySource, Part};

/// Largest piece, in bytes.
const PIECE_BYTES_MAX: u64 = 32 * 1024;

/// Yields a body in memory, piece by piece.
pub struct Pull {
    parts: VecDeque<Part>,
    source: Option<Box<dyn BodySource>>,
}

impl Pull {
    pub fn new(body: Body) -> Self {
        let mut source = None;
        let parts = match body {
            Body::Empty | Body::Tunnel(_) => VecDeque::new(),
            Body::Bytes(bytes) => VecDeque::from([Part::Bytes(bytes)]),
            Body::File(file) => VecDeque::from([Part::File(file)]),
            Body::Parts(parts) => parts,
            Body::Stream(stream) => {
                source = Some(stream);
                VecDeque::new()
            }
        };
        Self { parts, source }
    }

    /// Whether the pieces taken must be sent before the wait for more.
    pub fn is_urgent(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.is_urgent())
    }

    /// The next piece, not empty; `None` at the end.
    ///
    /// Dropping the future loses no data, unless the piece is read from a file.
    ///
    /// # Errors
    /// The body can't be completed.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            match self.parts.front_mut() {
                Some(Part::Bytes(bytes)) => {
                    let bytes = std::mem::take(bytes);
                    self.parts.pop_front();
                    if !bytes.is_empty() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Part::File(file)) if file.len > 0 => {
                    let wanted = file.len.min(PIECE_BYTES_MAX);
                    let len = usize::try_from(wanted).unwrap_or(usize::MAX);
                    let read = file.read(&file.io, len).await;
                    if let (Err(error), Some(source)) = (&read, &mut self.source)
                        && PoolError::of(error).is_none()
                        && source.retry(file.len)
                    {
                        self.parts.clear();
                        continue;
                    }
                    let bytes = read.map_err(|error| match PoolError::of(&error) {
                        Some(overflow) => BodyError::Overflow(overflow.to_string()),
                        None => BodyError::File(error),
                    })?;
                    if bytes.len() != len {
                        return Err(BodyError::Truncated);
                    }
                    file.offset += wanted;
                    file.len -= wanted;
                    return Ok(Some(bytes));
                }
                Some(Part::File(_)) => drop(self.parts.pop_front()),
                None => match &mut self.source {
                    None => return Ok(None),
                    Some(source) => match source.next().await? {
                        None => return Ok(None),
                        Some(part) => self.parts.push_back(part),
                    },
                },
            }
        }
    }
}
