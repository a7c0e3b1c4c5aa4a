//! One try with its connection: what the steps of the engine hand on.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_runtime::buf::RecvBuf;
use nowait_runtime::net::Stream;
use nowait_runtime::now;

use super::{Cause, Codec, Settings, State};
use crate::connection::Connection;

/// A request under way on a connection to an upstream.
pub(super) struct Exchange {
    pub(super) stream: Rc<Stream>,
    /// Received and not yet used.
    pub(super) input: RecvBuf,
    codec: Option<Box<dyn Codec>>,
    pub(super) settings: Arc<Settings>,
    pub(super) state: Rc<State>,
    /// The client's connection.
    #[expect(dead_code, reason = "the pump asks whether the client is still there")]
    pub(super) client: Rc<Connection>,
    /// The try's number, and when it began.
    number: usize,
    began: Instant,
    /// What the connection had sent and received before.
    before: (u64, u64),
    /// The request was sent whole.
    pub(super) request_sent: bool,
    closed: bool,
}

impl Exchange {
    pub(super) fn new(
        stream: Stream,
        codec: Box<dyn Codec>,
        settings: Arc<Settings>,
        state: Rc<State>,
        client: Rc<Connection>,
        (number, began): (usize, Instant),
    ) -> Self {
        let before = (stream.bytes_sent(), stream.bytes_received());
        Self {
            stream: Rc::new(stream),
            input: RecvBuf::empty(),
            codec: Some(codec),
            settings,
            state,
            client,
            number,
            began,
            before,
            request_sent: false,
            closed: false,
        }
    }

    pub(super) fn codec(&mut self) -> &mut dyn Codec {
        &mut **self.codec.as_mut().expect("there until the exchange ends")
    }

    /// The codec and what it has not seen yet.
    pub(super) fn codec_and_input(&mut self) -> (&mut dyn Codec, &mut RecvBuf) {
        (&mut **self.codec.as_mut().expect("there until the exchange ends"), &mut self.input)
    }

    /// Ends the exchange; its connection is closed.
    pub(super) fn into_codec(mut self) -> Box<dyn Codec> {
        self.codec.take().expect("there until the exchange ends")
    }

    pub(super) fn bytes_sent(&self) -> u64 {
        self.stream.bytes_sent() - self.before.0
    }

    fn elapsed(&self) -> Duration {
        now().saturating_duration_since(self.began)
    }

    pub(super) fn connected(&self) {
        let elapsed = self.elapsed();
        self.state.update(self.number, |one| one.connect = Some(elapsed));
    }

    pub(super) fn head_received(&self, status: u16) {
        let elapsed = self.elapsed();
        self.state.update(self.number, |one| {
            one.header = Some(elapsed);
            one.status = status;
        });
    }

    pub(super) fn failed(&self, cause: Cause) {
        self.state.update(self.number, |one| one.status = cause.status());
    }

    /// Counts content.
    pub(super) fn count_content(&self, bytes: usize) {
        self.state.update(self.number, |one| one.response_length += bytes as u64);
    }

    /// The response is complete, or will never be: what logs say of it stands.
    pub(super) fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let elapsed = self.elapsed();
        let sent = self.stream.bytes_sent() - self.before.0;
        let received = self.stream.bytes_received() - self.before.1;
        self.state.update(self.number, |one| {
            one.response = Some(elapsed);
            one.bytes_sent = sent;
            one.bytes_received = received;
        });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.close();
    }
}
