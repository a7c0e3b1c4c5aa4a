//! Responses in the form of CGI, which end with their length or with the connection: those of SCGI and
//! uwsgi.

use nowait_h1::body::{BodyDecoder, BodyLength};
use nowait_h1::cgi::HeadReader;
use nowait_h1::{BodyEvent as H1Event, Limits, ResponseError};
use nowait_message::{Known, ResponseBuilder};

use crate::{BodyEvent, BodyStep, Error, HeadEvent, HeadStep};

/// The properties of a request that its response depends on.
#[derive(Debug, Clone, Copy, Default)]
pub struct CgiContext {
    /// The method is HEAD: content is of no use.
    pub head: bool,
    /// 101 is followed by another protocol.
    pub upgrade: bool,
    /// The largest head, in bytes.
    pub head_bytes_max: u32,
}

/// A response that is being received.
#[derive(Debug)]
pub struct CgiResponse {
    asked: CgiContext,
    head: HeadReader,
    body: BodyDecoder,
    state: CgiState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CgiState {
    Head,
    Body,
    /// The length was reached, and it is not known whether more follows.
    Complete,
    /// Another protocol.
    Switched,
}

impl CgiResponse {
    /// The response to a request.
    pub fn new(asked: CgiContext) -> Self {
        Self {
            asked,
            head: HeadReader::new(asked.head_bytes_max, true),
            body: BodyDecoder::new(BodyLength::Empty, &Limits::default()),
            state: CgiState::Head,
        }
    }

    /// Reads the head into `head`, which must be the same one for all of it.
    ///
    /// # Errors
    /// The application's error.
    pub fn receive_head(
        &mut self,
        head: &mut ResponseBuilder,
        input: &[u8],
    ) -> Result<HeadStep, Error> {
        let (consumed, done) = self.head.receive(head, input).map_err(|e| of_head(e, head))?;
        if !done {
            return Ok(HeadStep { consumed, event: HeadEvent::NeedMore });
        }
        self.state = match head.status() {
            101 if self.asked.upgrade => CgiState::Switched,
            100..=199 => return Err(ResponseError::UnexpectedInterimResponse.into()),
            _ => CgiState::Body,
        };
        let length = match (self.state, head.status(), head.content_length()) {
            (CgiState::Switched, ..) => BodyLength::UntilClose,
            (_, 204 | 304, _) | (_, _, Some(0)) => BodyLength::Empty,
            _ if self.asked.head => BodyLength::Empty,
            (.., Some(length)) => BodyLength::Known(length),
            (.., None) => BodyLength::UntilClose,
        };
        self.body = BodyDecoder::new(length, &Limits::default());
        Ok(HeadStep { consumed, event: HeadEvent::Done })
    }

    /// Reads what follows the head.
    ///
    /// # Errors
    /// None at present; the body has no framing.
    pub fn receive_body(&mut self, input: &[u8]) -> Result<BodyStep, Error> {
        let step = self.body.receive(input).map_err(ResponseError::from)?;
        let event = match step.event {
            H1Event::NeedMore => BodyEvent::NeedMore,
            H1Event::Data(range) => BodyEvent::Data(range),
            H1Event::End
                if !input.is_empty() && self.state == CgiState::Body && !self.asked.head =>
            {
                self.state = CgiState::Complete;
                BodyEvent::Excess
            }
            H1Event::End => BodyEvent::End,
        };
        Ok(BodyStep { consumed: step.consumed, event })
    }

    /// The application has closed its side.
    ///
    /// # Errors
    /// [`Error::Closed`]: the response is not complete.
    pub fn receive_eof(&mut self) -> Result<(), Error> {
        match self.state {
            CgiState::Head => Err(Error::Closed),
            CgiState::Switched | CgiState::Complete => Ok(()),
            CgiState::Body if self.body.is_complete() || self.body.is_until_close() => Ok(()),
            CgiState::Body => Err(Error::Closed),
        }
    }

    /// Remaining bytes of the body, if known.
    pub fn body_left(&self) -> Option<u64> {
        self.body.remaining()
    }

    /// Whether another protocol follows the head.
    pub fn is_switched(&self) -> bool {
        self.state == CgiState::Switched
    }
}

/// An error in a head, with the text that it is about.
pub(crate) fn of_head(error: ResponseError, head: &ResponseBuilder) -> Error {
    match error {
        ResponseError::InvalidStatus => {
            Error::Status(head.known(Known::Status).unwrap_or_default().to_vec())
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: CgiContext = CgiContext { head: false, upgrade: false, head_bytes_max: 4096 };

    /// The status, the content, and how the response ended.
    fn play(asked: CgiContext, text: &str) -> Result<(u16, String, Vec<BodyEvent>), Error> {
        let mut head = ResponseBuilder::new();
        let mut response = CgiResponse::new(asked);
        let input = text.as_bytes();
        let step = response.receive_head(&mut head, input)?;
        if step.event != HeadEvent::Done {
            response.receive_eof()?;
        }
        let (mut at, mut content, mut events) = (step.consumed, String::new(), Vec::new());
        loop {
            let step = response.receive_body(&input[at..])?;
            if let BodyEvent::Data(range) = &step.event {
                content.push_str(&text[at..][range.clone()]);
            }
            at += step.consumed;
            match step.event {
                BodyEvent::Data(_) => {}
                BodyEvent::NeedMore => {
                    response.receive_eof()?;
                    break;
                }
                end @ BodyEvent::End => {
                    events.push(end);
                    break;
                }
                other => events.push(other),
            }
        }
        Ok((head.status(), content, events))
    }

    #[test]
    fn bodies() {
        let ok = |text: &str| play(ASKED, text).unwrap();
        assert_eq!(ok("A: b\n\nx"), (200, "x".into(), vec![]));
        let end = vec![BodyEvent::End];
        assert_eq!(ok("Content-Length: 2\n\nxy"), (200, "xy".into(), end.clone()));
        assert_eq!(ok("Content-Length: 0\n\n"), (200, String::new(), end.clone()));
        let excess = vec![BodyEvent::Excess, BodyEvent::End];
        assert_eq!(ok("Content-Length: 2\n\nxyz"), (200, "xy".into(), excess));
        assert_eq!(
            ok("HTTP/1.1 304 Not\nContent-Length: 9\n\n"),
            (304, String::new(), end.clone())
        );
        let head = CgiContext { head: true, ..ASKED };
        assert_eq!(play(head, "Content-Length: 2\n\nxy"), Ok((200, String::new(), end)));
        assert_eq!(play(ASKED, "Content-Length: 3\n\nxy"), Err(Error::Closed));
        assert_eq!(play(ASKED, "A: b\n"), Err(Error::Closed));
    }

    #[test]
    fn another_protocol_only_if_asked_for() {
        let text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
        let unexpected = Error::Head(ResponseError::UnexpectedInterimResponse);
        assert_eq!(play(ASKED, text), Err(unexpected));
        let mut response = CgiResponse::new(CgiContext { upgrade: true, ..ASKED });
        let step = response.receive_head(&mut ResponseBuilder::new(), text.as_bytes());
        assert_eq!(step.unwrap().event, HeadEvent::Done);
        assert!(response.is_switched());
    }

    #[test]
    fn an_invalid_status_is_named() {
        let error = play(ASKED, "Status: two\n\n").unwrap_err();
        assert_eq!(error.to_string(), "upstream sent invalid status \"two\"");
    }
}
