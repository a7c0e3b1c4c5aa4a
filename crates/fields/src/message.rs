//! The state of a message that is being received on a stream: which heads may come, and how much content.
//!
//! Used by the cores of both versions for each of their streams. It never sees fields or content, only facts about
//! them.

use crate::{HeadFacts, Malformed};

/// The kind of a response's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// 1xx: another head follows.
    Interim,
    /// The final response.
    Final,
}

/// A message that is being received: a request, or the response to one that was sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct MessageState {
    /// Content still to come, in bytes, if the message says how much.
    left: Option<u64>,
    /// The request was HEAD: the response has no content.
    head_only: bool,
    /// A tunnel, or of a response: the request asked for one.
    connect: bool,
    /// Interim responses so far.
    interim: u8,
}

impl MessageState {
    /// The response to a request of this method.
    pub fn response_to(method: &[u8]) -> MessageState {
        MessageState {
            head_only: method == b"HEAD",
            connect: method == b"CONNECT",
            ..MessageState::default()
        }
    }

    /// The head of a request has come.
    pub fn request(&mut self, head: &HeadFacts) {
        self.connect = head.connect;
        self.left = head.content_length.filter(|_| !head.connect);
    }

    /// The head of a response has come; `end`: with the end of the stream. At most `interim_max` interim ones may
    /// precede the final one.
    ///
    /// # Errors
    /// [`Malformed::InvalidInterim`]: 101, which neither version has, or an interim response that ends the stream.
    /// [`Malformed::TooManyInterim`]. [`Malformed::ContentTooShort`]: the stream ends, but content should follow.
    pub fn response(
        &mut self,
        head: &HeadFacts,
        end: bool,
        interim_max: u8,
    ) -> Result<ResponseKind, Malformed> {
        if head.status < 200 {
            // RFC 9113 section 8.6, RFC 9114 section 4.5.
            if head.status == 101 || end {
                return Err(Malformed::InvalidInterim);
            }
            if self.interim >= interim_max {
                return Err(Malformed::TooManyInterim);
            }
            self.interim += 1;
            return Ok(ResponseKind::Interim);
        }
        let succeeds = (200..300).contains(&head.status);
        self.left = match head.status {
            204 | 304 => Some(0),
            _ if self.head_only => Some(0),
            _ if self.connect && succeeds => None,
            _ => head.content_length,
        };
        // A CONNECT that was refused has an ordinary response.
        self.connect &= succeeds;
        if end {
            self.end()?;
        }
        Ok(ResponseKind::Final)
    }

    /// Content comes: so many bytes.
    ///
    /// # Errors
    /// [`Malformed::ContentTooLong`]
    #[inline]
    pub fn content(&mut self, bytes: u64) -> Result<(), Malformed> {
        if let Some(left) = self.left {
            self.left = Some(left.checked_sub(bytes).ok_or(Malformed::ContentTooLong)?);
        }
        Ok(())
    }

    /// The message ends here.
    ///
    /// # Errors
    /// [`Malformed::ContentTooShort`]
    #[inline]
    pub fn end(&self) -> Result<(), Malformed> {
        match self.left {
            None | Some(0) => Ok(()),
            Some(_) => Err(Malformed::ContentTooShort),
        }
    }

    /// Content still to come, in bytes, if the message says how much.
    #[inline]
    pub fn left(&self) -> Option<u64> {
        self.left
    }

    /// Whether its content is that of a tunnel, which has no trailers (RFC 9113 section 8.5, RFC 9114 section 4.4).
    /// Known from the final head on.
    #[inline]
    pub fn is_tunnel(&self) -> bool {
        self.connect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, content_length: Option<u64>) -> HeadFacts {
        HeadFacts { status, content_length, connect: false }
    }

    #[test]
    fn content_is_as_long_as_announced() {
        let mut message = MessageState::default();
        message.request(&head(0, Some(10)));
        assert_eq!(message.content(4), Ok(()));
        assert_eq!(message.end(), Err(Malformed::ContentTooShort));
        assert_eq!(message.content(7), Err(Malformed::ContentTooLong));
        assert_eq!(message.left(), Some(6));
        assert_eq!(message.content(6), Ok(()));
        assert_eq!(message.end(), Ok(()));
        assert_eq!(message.content(1), Err(Malformed::ContentTooLong));
        let mut message = MessageState::default();
        message.request(&head(0, None));
        assert_eq!((message.content(u64::MAX), message.content(1)), (Ok(()), Ok(())));
        assert_eq!(message.end(), Ok(()));
    }

    #[test]
    fn responses_without_content() {
        for (method, status) in [("GET", 204), ("GET", 304), ("HEAD", 200), ("HEAD", 404)] {
            let mut message = MessageState::response_to(method.as_bytes());
            let head = head(status, Some(10));
            assert_eq!(
                message.response(&head, true, 0),
                Ok(ResponseKind::Final),
                "{method} {status}"
            );
            assert_eq!(message.content(1), Err(Malformed::ContentTooLong), "{method} {status}");
        }
        let mut message = MessageState::response_to(b"GET");
        let short = message.response(&head(200, Some(10)), true, 0);
        assert_eq!(short, Err(Malformed::ContentTooShort));
    }

    #[test]
    fn interim_responses_are_bounded() {
        let mut message = MessageState::response_to(b"GET");
        assert_eq!(message.response(&head(101, None), false, 2), Err(Malformed::InvalidInterim));
        assert_eq!(message.response(&head(100, None), true, 2), Err(Malformed::InvalidInterim));
        assert_eq!(message.response(&head(100, None), false, 2), Ok(ResponseKind::Interim));
        assert_eq!(message.response(&head(103, None), false, 2), Ok(ResponseKind::Interim));
        assert_eq!(message.response(&head(103, None), false, 2), Err(Malformed::TooManyInterim));
        assert_eq!(message.response(&head(200, None), true, 2), Ok(ResponseKind::Final));
    }

    #[test]
    fn tunnels_begin_with_success() {
        for (status, is_tunnel, left) in
            [(200, true, None), (299, true, None), (407, false, Some(5))]
        {
            let mut message = MessageState::response_to(b"CONNECT");
            let result = message.response(&head(status, Some(5)), false, 0);
            assert_eq!(result, Ok(ResponseKind::Final));
            assert_eq!((message.is_tunnel(), message.left()), (is_tunnel, left), "{status}");
        }
        let mut message = MessageState::default();
        message.request(&HeadFacts { status: 0, content_length: Some(5), connect: true });
        assert_eq!((message.is_tunnel(), message.left()), (true, None));
    }
}
