//! A layer between a connection's user and its socket, such as TLS.
//!
//! The runtime knows only the interface, [`Layer`]. A connection gets its layer by
//! [`Stream::set_layer`] when a handshake has been made on it, and is used as before: its operations
//! receive and send plaintext, file ranges are read and sealed, relays copy. What the layer has to
//! send by itself leaves with the next send, or while something is received.
//!
//! A layer may leave sealing to the kernel ([`Layer::offload`]). From then on, plaintext is sent as on
//! a plain connection, `sendfile` included; only what the layer sends by itself passes through
//! [`Layer::transmit`], between two sends.
//!
//! A connection without a layer pays for one check per operation, and has room for one pointer. An
//! idle connection with a layer holds no buffer: received bytes that are not a whole record are kept
//! in pooled memory, and only as long as the rest is missing.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use rustix::net::SendFlags;

use super::Stream;
use crate::buf::{
    Chain, Chunk, LargeBuf, OutBuf, RECV_BUF_BYTES, ReceivedBuf, RecvBuf, put_recv_memory,
    take_recv_memory,
};
use crate::driver::{AfterSend, Driver};

/// Plaintext sealed at once: the records of one send to the kernel. With what they add, they fit
/// into pooled memory.
const SEAL_BYTES_MAX: usize = 64 * 1024;

/// Chunks sealed by one call, so that heads and small bodies share records.
const PARTS_MAX: usize = 32;

/// Bytes copied to complete a record: the size of the largest, about.
const COMPLETE_BYTES: usize = 17 * 1024;

/// The approximate overhead of a layer for [`SEAL_BYTES_MAX`].
const OVERHEAD_BYTES: usize = 512;

/// The result of [`Layer::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenProgress {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// Bytes of plaintext written.
    pub written: usize,
    /// The peer has ended its side: no more plaintext will follow.
    pub ended: bool,
}

/// A protocol between plaintext and the bytes on the wire. It makes no calls of its own, and has no
/// buffers: all memory is its caller's.
pub trait Layer: Send {
    /// Opens the whole records at the beginning of `input`, in place, and writes plaintext as far
    /// as there is room; 16 KB are enough for one record. Bytes that are not consumed are
    /// unchanged. What is to be sent because of it is appended to `output`, also in case of an
    /// error.
    ///
    /// # Errors
    /// The peer breaks the protocol; each further call fails, too.
    fn open(
        &mut self,
        input: &mut [u8],
        plain: &mut [u8],
        output: &mut Vec<u8>,
    ) -> io::Result<OpenProgress>;

    /// Writes all of `plain`, sealed, at `at`: over what stands there, and beyond the end of `output`. Returns
    /// where it ends.
    ///
    /// # Errors
    /// The layer has failed, or this side has ended.
    fn seal(&mut self, plain: &[&[u8]], output: &mut Vec<u8>, at: usize) -> io::Result<usize>;

    /// Appends the end of this side to `output`, unless it has ended or failed.
    fn end(&mut self, output: &mut Vec<u8>);

    /// The length of a file range from which on the kernel should seal; zero: from the first send on.
    /// `None`: never.
    fn offloads_from(&self) -> Option<u64> {
        None
    }

    /// Lets the kernel seal all further output. Output sealed before is in the socket's queue. False: not
    /// this time; [`seal`](Self::seal) continues.
    ///
    /// # Errors
    /// The layer has failed.
    fn offload(&mut self, _socket: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(false)
    }

    /// Sends messages of the layer's own, which it has appended to output since the kernel seals,
    /// without waiting. Returns the number of bytes that are done with, at least one.
    ///
    /// # Errors
    /// `WouldBlock`: the socket is full. Others: the connection has failed.
    fn transmit(&mut self, _socket: BorrowedFd<'_>, _messages: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The kernel has sealed and sent this many bytes of plaintext, by one call. What is to be sent
    /// because of it is appended to `output`.
    ///
    /// # Errors
    /// No further sends are possible.
    fn sent(&mut self, _bytes: u64, _output: &mut Vec<u8>) -> io::Result<()> {
        Ok(())
    }

    /// The layer itself, for its facts.
    fn as_any(&self) -> &dyn Any;
}

/// A layer that was taken off its connection, to be set on another handle of the same socket,
/// perhaps by another worker.
pub struct DetachedLayer {
    layer: Box<dyn Layer>,
    input: Vec<u8>,
    offloaded: bool,
}

impl DetachedLayer {
    /// Ends this side on a socket that is about to be closed, if the socket accepts that at once.
    pub fn end(mut self, socket: BorrowedFd<'_>) {
        let mut output = Vec::new();
        self.layer.end(&mut output);
        // A full socket is closed without that.
        if self.offloaded {
            let _ = self.layer.transmit(socket, &output);
        } else {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(socket, &output, flags);
        }
    }
}

/// A connection's layer, and the bytes that wait on both sides of it.
pub(super) struct Layered {
    /// `None`: taken off.
    layer: RefCell<Option<Box<dyn Layer>>>,
    /// ReceivedBuf, and not opened: an incomplete record, or records for which there was no room.
    input: RefCell<OutBuf>,
    /// What the handshake has left to send: it leaves with the first output.
    ahead: RefCell<Vec<u8>>,
    /// Sealed, and not taken by the driver; or, if the kernel seals, the layer's own messages.
    output: RefCell<Chain>,
    /// The driver has taken output, and has not reported the result.
    in_flight: Cell<bool>,
    /// A send is under way, which also sends all output.
    sending: Cell<bool>,
    /// The peer has ended its side.
    ended: Cell<bool>,
    /// This side ends with the next send.
    ends: Cell<bool>,
    /// The kernel seals.
    offloaded: Cell<bool>,
    /// The driver watches for the socket to take messages.
    armed: Cell<bool>,
    /// To be performed when all output is sent.
    shutdown: Cell<Option<Shutdown>>,
}

impl Stream {
    /// Puts a layer between the user and the socket. `input` was received already, after the data known to
    /// the layer.
    ///
    /// # Panics
    /// If there is one.
    pub fn set_layer(&self, layer: Box<dyn Layer>, input: &[u8]) {
        self.set_layer_behind(layer, input, Vec::new());
    }

    /// Like [`set_layer`](Self::set_layer), with bytes that the handshake has left to send. They leave with
    /// what is sent first, or when something has to be awaited that `input` does not have.
    ///
    /// # Panics
    /// If there is a layer.
    pub fn set_layer_behind(&self, layer: Box<dyn Layer>, input: &[u8], ahead: Vec<u8>) {
        let mut waiting = OutBuf::new();
        if !input.is_empty() {
            waiting.extend_from_slice(input);
        }
        let layered = Layered {
            layer: RefCell::new(Some(layer)),
            input: RefCell::new(waiting),
            ahead: RefCell::new(ahead),
            output: RefCell::default(),
            in_flight: Cell::new(false),
            sending: Cell::new(false),
            ended: Cell::new(false),
            ends: Cell::new(false),
            offloaded: Cell::new(false),
            armed: Cell::new(false),
            shutdown: Cell::new(None),
        };
        assert!(self.layer.set(Box::new(layered)).is_ok(), "a connection has at most one layer");
    }

    /// Sets a layer that was taken off another handle of the same socket.
    ///
    /// # Panics
    /// If there is one.
    pub fn attach_layer(&self, detached: DetachedLayer) {
        self.set_layer(detached.layer, &detached.input);
        if let Some(layered) = self.layer.get() {
            layered.offloaded.set(detached.offloaded);
        }
    }

    /// Takes the layer off, after [`release`](Stream::release). The connection is then fit only for
    /// giving its descriptor away.
    pub fn detach_layer(&self) -> Option<DetachedLayer> {
        let layered = self.layer.get()?;
        let layer = layered.layer.take()?;
        let input = layered.input.take().to_vec();
        Some(DetachedLayer { layer, input, offloaded: layered.offloaded.get() })
    }

    /// Whether there is a layer.
    pub fn has_layer(&self) -> bool {
        self.layer.get().is_some_and(|layered| layered.layer.borrow().is_some())
    }

    /// The layer, if it is a `T`.
    pub fn with_layer<T: 'static, R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        let layer = self.layer.get()?.layer.borrow();
        layer.as_ref()?.as_any().downcast_ref().map(look)
    }

    /// The next send has the last data of this side, whose end leaves with it. Without a layer, or if the
    /// kernel seals, the end follows when the connection is shut down or closed.
    pub fn end_with_next_send(&self) {
        if let Some(layered) = self.layer.get() {
            layered.ends.set(true);
        }
    }

    /// Whether there is a layer that leaves sealing to the kernel.
    pub fn is_sealed_by_kernel(&self) -> bool {
        self.layer.get().is_some_and(|layered| layered.is_offloaded())
    }

    /// Whether bytes of the layer are still to be sent.
    pub(super) fn has_output(&self) -> bool {
        self.layer.get().is_some_and(|layered| !layered.is_flushed())
    }
}

impl Layered {
    /// Receives plaintext into a regular buffer.
    pub(super) fn poll_recv(
        &self,
        stream: &Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<RecvBuf>> {
        let receive = |driver: &mut Driver, cx: &mut Context<'_>| {
            driver.poll_recv(stream.key, stream.fd(), cx).map_ok(ReceivedBuf::Lent)
        };
        self.poll_regular(stream, cx, receive)
    }

    /// The same with the driver's way of receiving.
    fn poll_regular(
        &self,
        stream: &Stream,
        cx: &mut Context<'_>,
        receive: impl Fn(&mut Driver, &mut Context<'_>) -> Poll<io::Result<ReceivedBuf>>,
    ) -> Poll<io::Result<RecvBuf>> {
        loop {
            // An answer to what has come with the end of the handshake takes along what is left of that.
            if !self.is_flushed() && (self.ahead.borrow().is_empty() || !self.has_input()) {
                self.poll_own_output(stream, cx);
            }
            if self.ended.get() {
                return Poll::Ready(Ok(RecvBuf::empty()));
            }
            if self.has_input()
                && let Some(plain) = self.open_small(stream, None, cx)?
            {
                return Poll::Ready(Ok(plain));
            }
            if self.ended.get() {
                continue;
            }
            let polled = receive(&mut stream.local.driver.borrow_mut(), cx);
            let mut buf = std::task::ready!(polled)?;
            // nginx takes a missing end of the layer as an end, too.
            if buf.is_empty() {
                return Poll::Ready(Ok(RecvBuf::empty()));
            }
            if let Some(plain) = self.open_small(stream, Some(&mut buf), cx)? {
                return Poll::Ready(Ok(plain));
            }
        }
    }

    /// Receives plaintext, perhaps into a large buffer. The amount of received data does not determine the
    /// amount of plaintext, so the bound applies to the returned plaintext, and the rest stays sealed until
    /// the next call.
    pub(super) fn poll_recv_large(
        &self,
        stream: &Stream,
        max_bytes: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<ReceivedBuf>> {
        if max_bytes <= RECV_BUF_BYTES {
            let receive = |driver: &mut Driver, cx: &mut Context<'_>| {
                driver.poll_recv_large(stream.key, stream.fd(), RECV_BUF_BYTES, cx)
            };
            return self.poll_regular(stream, cx, receive).map_ok(ReceivedBuf::Lent);
        }
        loop {
            // An answer to what has come with the end of the handshake takes along what is left of that.
            if !self.is_flushed() && (self.ahead.borrow().is_empty() || !self.has_input()) {
                self.poll_own_output(stream, cx);
            }
            if self.ended.get() {
                return Poll::Ready(Ok(ReceivedBuf::empty()));
            }
            if self.has_input()
                && let Some(plain) = self.open_small(stream, None, cx)?
            {
                return Poll::Ready(Ok(ReceivedBuf::Lent(plain)));
            }
            if self.ended.get() {
                continue;
            }
            let (key, fd) = (stream.key, stream.fd());
            let polled = stream.local.driver.borrow_mut().poll_recv_large(key, fd, max_bytes, cx);
            let mut buf = std::task::ready!(polled)?;
            if buf.is_empty() {
                return Poll::Ready(Ok(buf));
            }
            let most = max_bytes.min(self.input.borrow().len() + buf.len());
            let mut plain = LargeBuf::take(most);
            let room = plain.memory().len().min(max_bytes);
            let written = self.open(stream, Some(&mut buf), &mut plain.memory()[..room], cx)?;
            if written > 0 {
                plain.filled(written);
                return Poll::Ready(Ok(ReceivedBuf::Large(plain)));
            }
        }
    }

    /// Opens into a regular buffer; `None`: there is no plaintext.
    fn open_small(
        &self,
        stream: &Stream,
        received: Option<&mut [u8]>,
        cx: &mut Context<'_>,
    ) -> io::Result<Option<RecvBuf>> {
        let mut memory = take_recv_memory();
        let written = self.open(stream, received, &mut memory[..], cx);
        if let Ok(written @ 1..) = written {
            return Ok(Some(RecvBuf::filled(memory, written)));
        }
        put_recv_memory(memory);
        written.map(|_| None)
    }

    /// Opens what was received before, and now, into `plain`; returns the number of bytes.
    fn open(
        &self,
        stream: &Stream,
        received: Option<&mut [u8]>,
        plain: &mut [u8],
        cx: &mut Context<'_>,
    ) -> io::Result<usize> {
        // Rarely used, and allocated on first use.
        let mut output = Vec::new();
        let opened = self.open_into(received.unwrap_or_default(), plain, &mut output);
        if !output.is_empty() {
            self.push(Bytes::from(output));
            self.poll_own_output(stream, cx);
        }
        opened
    }

    fn open_into(
        &self,
        mut received: &mut [u8],
        plain: &mut [u8],
        output: &mut Vec<u8>,
    ) -> io::Result<usize> {
        let mut waiting = self.input.borrow_mut();
        let mut written = 0;
        if !waiting.is_empty() {
            // The rest of the record that waits is somewhere in here, and is copied; all that
            // follows is opened in place.
            let before = waiting.len();
            let (near, far) = received.split_at(received.len().min(COMPLETE_BYTES));
            waiting.extend_from_slice(near);
            let opened = self.call(|layer| layer.open(&mut waiting, plain, output))?;
            written = opened.written;
            self.ended.set(opened.ended);
            if opened.consumed < before || opened.ended {
                waiting.drain(..opened.consumed);
                waiting.extend_from_slice(far);
                return Ok(written);
            }
            *waiting = OutBuf::new();
            received = &mut received[opened.consumed - before..];
        }
        if !received.is_empty() {
            let opened = self.call(|layer| layer.open(received, &mut plain[written..], output))?;
            written += opened.written;
            self.ended.set(opened.ended);
            if opened.consumed < received.len() {
                waiting.extend_from_slice(&received[opened.consumed..]);
            }
        }
        Ok(written)
    }

    fn call<T>(&self, f: impl FnOnce(&mut dyn Layer) -> io::Result<T>) -> io::Result<T> {
        match &mut *self.layer.borrow_mut() {
            Some(layer) => f(&mut **layer),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends the layer's own output, unless a send does that anyway. If it has to wait, the task is
    /// woken, and the next call continues. A failure is left to the next send to find.
    fn poll_own_output(&self, stream: &Stream, cx: &mut Context<'_>) {
        while !self.sending.get() && !self.is_flushed() {
            if !matches!(self.poll_output(stream, AfterSend::Nothing, cx), Poll::Ready(Ok(()))) {
                break;
            }
        }
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.is_sent() && self.ahead.borrow().is_empty()
    }

    /// Whether nothing is in the output, or under way.
    fn is_sent(&self) -> bool {
        !self.in_flight.get() && self.output.borrow().is_empty()
    }

    /// Appends to the output.
    fn push(&self, bytes: impl Into<Chunk>) {
        let mut output = self.output.borrow_mut();
        let ahead = self.ahead.take();
        if !ahead.is_empty() {
            output.push(Bytes::from(ahead));
        }
        output.push(bytes);
    }

    /// Sends some output; ready when some was taken.
    fn poll_output(
        &self,
        stream: &Stream,
        follows: AfterSend,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let (key, fd) = (stream.key, stream.fd());
        if self.offloaded.get() {
            return self.poll_transmit(stream, cx);
        }
        if !self.ahead.borrow().is_empty() {
            self.push(Bytes::new());
        }
        let mut output = self.output.borrow_mut();
        let polled = stream.local.driver.borrow_mut().poll_send(key, fd, &mut output, follows, cx);
        // It may also wait before it accepts any bytes.
        self.in_flight.set(polled.is_pending() && output.is_empty());
        drop(output);
        let sent = std::task::ready!(polled);
        Poll::Ready(self.output_sent(stream, sent.map(drop)))
    }

    fn output_sent(&self, stream: &Stream, sent: io::Result<()>) -> io::Result<()> {
        if sent.is_err() {
            self.output.take();
        } else if self.is_flushed()
            && let Some(how) = self.shutdown.take()
        {
            stream.local.driver.borrow_mut().shutdown(stream.key, stream.fd(), how)?;
        }
        sent
    }

    /// Has the layer send its own messages, while the kernel seals.
    fn poll_transmit(&self, stream: &Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.armed.get() {
                let (key, fd) = (stream.key, stream.fd());
                let mut armed = true;
                let mut driver = stream.local.driver.borrow_mut();
                std::task::ready!(driver.poll_writable(key, fd, cx, &mut armed))?;
                self.armed.set(false);
            }
            let mut output = self.output.borrow_mut();
            let Some(messages) = output.memory_prefix().next() else { break };
            match self.call(|layer| layer.transmit(stream.fd(), messages.memory())) {
                Ok(done) => output.advance(done as u64),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    drop(output);
                    let (key, fd) = (stream.key, stream.fd());
                    let mut armed = false;
                    let mut driver = stream.local.driver.borrow_mut();
                    let polled = driver.poll_writable(key, fd, cx, &mut armed);
                    self.armed.set(polled.is_pending());
                    std::task::ready!(polled)?;
                }
                Err(error) => {
                    drop(output);
                    return Poll::Ready(self.output_sent(stream, Err(error)));
                }
            }
        }
        Poll::Ready(self.output_sent(stream, Ok(())))
    }

    /// Whether the kernel seals.
    pub(super) fn is_offloaded(&self) -> bool {
        self.offloaded.get()
    }

    /// Whether to try to leave sealing to the kernel before a range of a file of this length is sent;
    /// `None`: before anything else is.
    pub(super) fn wants_offload(&self, range: Option<u64>) -> bool {
        let from = self.layer.borrow().as_ref().and_then(|layer| layer.offloads_from());
        let is_due = from.is_some_and(|from| from == 0 || range.is_some_and(|len| len >= from));
        is_due && !self.offloaded.get() && self.is_flushed()
    }

    /// Lets the kernel seal, if it can. The driver has sent all pending output.
    pub(super) fn offload(&self, stream: &Stream) -> io::Result<bool> {
        let offloaded = self.call(|layer| layer.offload(stream.fd()))?;
        self.offloaded.set(offloaded);
        Ok(offloaded)
    }

    /// Sends messages of the layer's own before plaintext, while the kernel seals. No other call may
    /// send until [`send_done`](Self::send_done).
    pub(super) fn poll_own_messages(
        &self,
        stream: &Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.sending.set(true);
        if self.is_flushed() {
            return Poll::Ready(Ok(()));
        }
        self.poll_transmit(stream, cx)
    }

    /// The kernel has sealed this many bytes.
    pub(super) fn note_sent(&self, bytes: u64) -> io::Result<()> {
        let mut output = Vec::new();
        let noted = self.call(|layer| layer.sent(bytes, &mut output));
        if !output.is_empty() {
            self.push(Bytes::from(output));
        }
        noted
    }

    /// Seals a part of the memory at the beginning of `chain`, and sends some of it. Returns the
    /// number of bytes of plaintext that were sealed.
    pub(super) fn poll_send(
        &self,
        stream: &Stream,
        chain: &mut Chain,
        follows: AfterSend,
        cx: &mut Context<'_>,
    ) -> (usize, Poll<io::Result<()>>) {
        self.sending.set(true);
        let mut sealed = 0;
        if self.is_sent() {
            match self.seal_from(chain, follows) {
                Ok(bytes) => sealed = bytes,
                Err(error) => return (0, Poll::Ready(Err(error))),
            }
        }
        let follows = if chain.is_empty() { follows } else { AfterSend::AtOnce };
        (sealed, self.poll_output(stream, follows, cx))
    }

    /// Seals `data`, and begins to send the result; what is neither sent nor reported as sent stays in the
    /// output. Returns the number of bytes of plaintext that were sealed: all or none.
    pub(super) fn begin_send(&self, stream: &Stream, data: &[u8]) -> io::Result<usize> {
        let sealed_max = self.ahead.borrow().len() + data.len() + OVERHEAD_BYTES;
        let begins = data.len() <= SEAL_BYTES_MAX
            && stream.begins(sealed_max)
            && !self.sending.get()
            && self.is_sent()
            && !self.offloaded.get()
            && !self.wants_offload(None);
        if !begins {
            return Ok(0);
        }
        let (mut output, at) = self.begin_output(sealed_max);
        let end = self.call(|layer| layer.seal(&[data], &mut output, at))?;
        self.end_output(&mut output, end)?;
        stream.begin(&mut output, &mut Bytes::new())?;
        if !output.is_empty() {
            self.output.borrow_mut().push(Chunk::Out(output, 0));
        }
        Ok(data.len())
    }

    /// The send is over.
    pub(super) fn send_done(&self) {
        self.sending.set(false);
    }

    /// Memory for so many bytes of output. What is ahead of them stands at the beginning, and ends at the
    /// position that is returned, too.
    fn begin_output(&self, bytes: usize) -> (OutBuf, usize) {
        let mut output = OutBuf::used(bytes);
        if self.ahead.borrow().is_empty() {
            return (output, 0);
        }
        let ahead = self.ahead.take();
        output.clear();
        output.extend_from_slice(&ahead);
        (output, ahead.len())
    }

    /// Cuts output to what was written to it, and appends the end of this side, if it is to leave with it.
    fn end_output(&self, output: &mut Vec<u8>, end: usize) -> io::Result<()> {
        output.truncate(end);
        if !self.ends.get() {
            return Ok(());
        }
        self.ends.set(false);
        self.call(|layer| {
            layer.end(output);
            Ok(())
        })
    }

    fn seal_from(&self, chain: &mut Chain, follows: AfterSend) -> io::Result<usize> {
        let len: usize = chain.memory_prefix().map(|chunk| chunk.memory().len()).sum();
        let ahead = self.ahead.borrow().len();
        let (mut output, mut end) =
            self.begin_output(ahead + len.min(SEAL_BYTES_MAX) + OVERHEAD_BYTES);
        let mut sealed = 0;
        while sealed < SEAL_BYTES_MAX && !chain.is_empty() {
            let mut parts = [&[][..]; PARTS_MAX];
            let (mut bytes, mut count) = (0, 0);
            for (part, chunk) in parts.iter_mut().zip(chain.memory_prefix()) {
                let memory = chunk.memory();
                *part = &memory[..memory.len().min(SEAL_BYTES_MAX - sealed - bytes)];
                bytes += part.len();
                count += 1;
            }
            if bytes == 0 {
                break;
            }
            end = self.call(|layer| layer.seal(&parts[..count], &mut output, end))?;
            chain.advance(bytes as u64);
            sealed += bytes;
        }
        if chain.is_empty() && follows != AfterSend::AtOnce {
            self.end_output(&mut output, end)?;
        } else {
            output.truncate(end);
        }
        self.output.borrow_mut().push(output);
        Ok(sealed)
    }

    /// Ends this side, and then shuts the socket down; if it does not take all output at once, when
    /// it has.
    pub(super) fn shutdown(&self, stream: &Stream, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Read {
            self.send_end(stream);
            if how == Shutdown::Write && !self.is_flushed() {
                self.shutdown.set(Some(how));
                return Ok(());
            }
        }
        stream.local.driver.borrow_mut().shutdown(stream.key, stream.fd(), how)
    }

    /// Sends the end of this side before the connection is closed, if the socket takes it at once.
    pub(super) fn close(&self, stream: &Stream) {
        if !self.in_flight.get() && self.layer.borrow().is_some() {
            self.send_end(stream);
        }
    }

    /// Sends the end of this side without waiting.
    fn send_end(&self, stream: &Stream) {
        let mut output = Vec::new();
        if let Some(layer) = &mut *self.layer.borrow_mut() {
            layer.end(&mut output);
        }
        self.push(Bytes::from(output));
        if !self.sending.get() && !self.in_flight.get() && !self.offloaded.get() {
            let mut output = self.output.borrow_mut();
            stream.local.driver.borrow_mut().append_behind(stream.key, &mut output);
        }
        self.poll_own_output(stream, &mut Context::from_waker(Waker::noop()));
    }

    /// Before the descriptor is given away: sends all output.
    pub(super) fn poll_release(
        &self,
        stream: &Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_flushed() {
            std::task::ready!(self.poll_output(stream, AfterSend::Nothing, cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether received bytes wait here.
    pub(super) fn has_input(&self) -> bool {
        !self.input.borrow().is_empty()
    }
}
