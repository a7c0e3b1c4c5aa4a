//! How a connection's responses reach the transport: heads, content, and the ends of streams.
//!
//! Called by streams, and by the connection's task when the transport takes more.

use bytes::Bytes;
use nowait_fields::Token;
use nowait_h3::connection::ServerSide;
use nowait_h3::{HeadWriter, StreamId};
use nowait_http::request::Request;
use nowait_http::response::{Body, BodyError, FileBody, Head, Header, Part};
use nowait_quic::WriteError;

use super::connection::{Http3Connection, transport_id};
use super::stream::Http3Stream;
use crate::send_error::{SendError, left};
use crate::streams::connection::StreamConnection;
use crate::streams::outgoing::{COLD_BYTES, COLD_STREAMS, Outgoing};
use crate::streams::response_head::{self, HeadFields};
use crate::streams::stream::RequestStream;

/// Bytes of a file, or of content in memory, that are given to the transport before it is another stream's turn.
const CHUNK_BYTES: usize = 64 * 1024;

/// The same on a connection with many streams, each of which may hold as much of a file.
const CROWDED_CHUNK_BYTES: usize = 16 * 1024;

/// Bytes that are given to the transport before other tasks run.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// Bodies up to this size go to the transport together with their head.
const WHOLE_BYTES_MAX: usize = 64 * 1024;

/// What became of a stream's turn.
enum Written {
    /// All of it, or a chunk.
    Progress(usize),
    /// So much, and the transport takes no more.
    Blocked(usize),
    /// The client reads no more.
    Gone,
}

impl Http3Connection {
    /// Sends an interim response, unless the final one was sent or the client has disconnected.
    pub(super) fn interim(&self, stream: &Http3Stream, status: u16, headers: &[Header]) {
        if self.is_hq() {
            return;
        }
        {
            let mut frames = stream.frames.borrow_mut();
            let mut h3 = self.h3.borrow_mut();
            let Ok(mut head) = h3.interim(stream.id, status, &mut *frames) else { return };
            for header in headers {
                head.field(&header.name, &header.value);
            }
            head.finish(false);
        }
        self.write_frames(stream);
    }

    /// Writes the head of a response. It waits for what follows.
    pub(super) fn write_head(
        &self,
        stream: &Http3Stream,
        request: &Request,
        head: &Head,
        end: bool,
    ) -> Result<(), SendError> {
        if !self.is_hq() {
            let mut frames = stream.frames.borrow_mut();
            let mut h3 = self.h3.borrow_mut();
            let start = frames.len();
            let mut writer =
                h3.respond(stream.id, head.status, &mut *frames).map_err(|_| left())?;
            response_head::write(request, head, &mut writer);
            writer.finish(false);
            request.sent().count_head((frames.len() - start) as u64);
        }
        if end {
            stream.end();
        }
        Ok(())
    }

    /// Ends a response with trailers. Returns their length.
    pub(super) fn write_trailers(&self, stream: &Http3Stream, trailers: &[Header]) -> u64 {
        if self.is_hq() {
            stream.end();
            return 0;
        }
        let bytes = {
            let mut frames = stream.frames.borrow_mut();
            let mut h3 = self.h3.borrow_mut();
            let start = frames.len();
            // A closed stream accepts none.
            if let Ok(mut writer) = h3.trailers_of(stream.id, &mut *frames) {
                for trailer in trailers {
                    writer.field(&trailer.name, &trailer.value);
                }
                writer.finish(true);
            }
            (frames.len() - start) as u64
        };
        stream.end();
        bytes
    }

    /// Begins a DATA frame.
    pub(super) fn begin_data(&self, stream: &Http3Stream, length: u64) {
        if self.is_hq() {
            return stream.frame_left.set(u64::MAX);
        }
        let mut frames = stream.frames.borrow_mut();
        let begun = self.h3.borrow_mut().data_header(stream.id, length, &mut *frames);
        // A closed stream needs none.
        if begun.is_ok() {
            stream.frame_left.set(length);
        }
    }

    /// Sends all of a response's content, if it is small and in memory, and nothing precedes it; returns whether that was
    /// possible. Its DATA frame has begun.
    pub(super) fn send_whole(
        &self,
        stream: &Http3Stream,
        content: &Body,
    ) -> Result<bool, BodyError> {
        if stream.is_blocked.get() || self.h3.borrow().has_ready() {
            return Ok(false);
        }
        let fits = |length: usize| length as u64 == stream.frame_left.get();
        let bytes = match content {
            Body::Bytes(bytes) if bytes.len() <= WHOLE_BYTES_MAX && fits(bytes.len()) => {
                bytes.clone()
            }
            Body::File(file) if file.len <= WHOLE_BYTES_MAX as u64 && fits(file.len as usize) => {
                let length = file.len as usize;
                let mut frames = stream.frames.borrow_mut();
                frames.reserve(length);
                match read_into(file, length, &mut frames) {
                    Ok(true) => Bytes::new(),
                    Ok(false) => return Ok(false),
                    Err(_) if file.elsewhere.is_some() => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            _ => return Ok(false),
        };
        stream.frame_left.set(0);
        {
            let mut outgoing = stream.state().outgoing.borrow_mut();
            outgoing.front = bytes;
            outgoing.ends = true;
        }
        // Its frame needs no other header.
        stream.frame_left.set(stream.state().outgoing.borrow().len());
        self.write(stream);
        Ok(true)
    }

    /// A stream has content to be sent.
    pub(super) fn offer(&self, stream: &Http3Stream) {
        if stream.state().outgoing.borrow().len() == 0 {
            self.write(stream);
            return;
        }
        let mut h3 = self.h3.borrow_mut();
        let has_ready = h3.has_ready();
        h3.set_ready(stream.id, !stream.is_blocked.get());
        drop(h3);
        // Of several streams, the connection's task knows the most urgent one.
        if has_ready || stream.is_blocked.get() || self.fill() {
            self.streams().wake();
        }
    }

    /// A stream's content can't be sent.
    pub(super) fn withdraw(&self, stream: &Http3Stream) {
        self.h3.borrow_mut().set_ready(stream.id, false);
    }

    /// The transport takes more of a stream.
    pub(super) fn writable(&self, id: StreamId) {
        let Some(stream) = self.streams().get(id) else { return };
        stream.is_blocked.set(false);
        if !stream.state().outgoing.borrow().stops() {
            self.h3.borrow_mut().set_ready(id, true);
        } else {
            self.write(&stream);
            stream.state().outgoing.borrow_mut().advanced();
        }
    }

    /// Writes heads that wait.
    pub(super) fn write_frames(&self, stream: &Http3Stream) {
        if stream.state().outgoing.borrow().len() == 0 {
            self.write(stream);
        }
    }

    /// Gives content to the transport, as its windows allow, of all streams in the order of their priorities. Returns
    /// whether there is more for a later turn.
    pub(super) fn fill(&self) -> bool {
        let mut given = 0;
        while given < TURN_BYTES_MAX {
            let Some(id) = self.h3.borrow_mut().next_ready() else { return false };
            match self.streams().get(id) {
                Some(stream) => given += self.write(&stream),
                None => self.h3.borrow_mut().set_ready(id, false),
            }
        }
        self.h3.borrow().has_ready()
    }

    /// Writes a chunk of a stream: heads, content, its end. Returns the number of bytes.
    pub(super) fn write(&self, stream: &Http3Stream) -> usize {
        if stream.is_blocked.get() {
            self.h3.borrow_mut().set_ready(stream.id, false);
            return 0;
        }
        let bytes = match self.write_chunk(stream) {
            Written::Progress(bytes) => bytes,
            Written::Blocked(bytes) => {
                self.h3.borrow_mut().set_ready(stream.id, false);
                bytes
            }
            Written::Gone => {
                self.h3.borrow_mut().set_ready(stream.id, false);
                self.stopped(stream);
                return 0;
            }
        };
        let mut outgoing = stream.state().outgoing.borrow_mut();
        let is_done = outgoing.len() == 0 && stream.frames.borrow().is_empty();
        if is_done && outgoing.ends && !stream.is_finished.replace(true) {
            // One that was stopped needs no end.
            if self.transport().finish(transport_id(stream.id)).is_ok() {
                self.await_delivery(stream.id);
            }
            self.h3.borrow_mut().end(stream.id);
        }
        if outgoing.stops() {
            self.h3.borrow_mut().set_ready(stream.id, false);
        }
        outgoing.advanced();
        if self.h3.borrow().has_output() {
            self.streams().wake();
        }
        bytes
    }

    fn write_chunk(&self, stream: &Http3Stream) -> Written {
        let mut outgoing = stream.state().outgoing.borrow_mut();
        if outgoing.len() > 0 && stream.frame_left.get() == 0 {
            self.begin_data(stream, outgoing.len());
            if stream.frame_left.get() == 0 {
                return Written::Gone;
            }
        }
        let chunk = if self.is_crowded() { CROWDED_CHUNK_BYTES } else { CHUNK_BYTES };
        let max = stream.frame_left.get().min(chunk as u64) as usize;
        let content = match outgoing.take(max) {
            Some(bytes) => bytes,
            None => self.file_chunk(&mut outgoing, max),
        };
        let length = content.len();
        let frames = std::mem::take(&mut *stream.frames.borrow_mut());
        if frames.is_empty() && content.is_empty() {
            return Written::Progress(0);
        }
        let mut chunks = [Bytes::from(frames), content];
        let result = self.write_all(stream.id, &mut chunks);
        let [frames, content] = chunks;
        stream.frame_left.set(stream.frame_left.get() - (length - content.len()) as u64);
        if !frames.is_empty() {
            *stream.frames.borrow_mut() = frames.into();
        }
        if !content.is_empty() {
            outgoing.put_back(content);
        }
        match result {
            Ok((bytes, is_whole)) => {
                stream.is_blocked.set(!is_whole);
                if is_whole { Written::Progress(bytes) } else { Written::Blocked(bytes) }
            }
            // Stopped, or lost with the connection.
            Err(_) => Written::Gone,
        }
    }

    /// Writes chunks. Returns how many bytes were taken, and whether those were all; if not, the transport will say when it
    /// takes more.
    fn write_all(&self, id: StreamId, chunks: &mut [Bytes]) -> Result<(usize, bool), WriteError> {
        let mut bytes = 0;
        while chunks.iter().any(|chunk| !chunk.is_empty()) {
            match self.transport().write(transport_id(id), chunks)? {
                0 => return Ok((bytes, false)),
                taken => bytes += taken,
            }
        }
        Ok((bytes, true))
    }

    /// The next bytes of the file that is a stream's part, if they are in memory.
    fn file_chunk(&self, outgoing: &mut Outgoing, max: usize) -> Bytes {
        let left = outgoing.len();
        // The stream's task is reading them.
        if outgoing.cold.is_some() {
            return Bytes::new();
        }
        let Some(Part::File(file)) = &mut outgoing.part else { return Bytes::new() };
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(max);
        let mut chunk = Vec::with_capacity(bytes);
        match read_into(file, bytes, &mut chunk) {
            Ok(true) => {
                file.offset += bytes as u64;
                file.len -= bytes as u64;
                return Bytes::from(chunk);
            }
            Ok(false) if self.streams().cold.get() < COLD_STREAMS => {
                outgoing.cold = Some(COLD_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX)));
            }
            Ok(false) => outgoing.cold = Some(bytes.min(COLD_BYTES / 4)),
            Err(error) => outgoing.failed = Some(error),
        }
        Bytes::new()
    }
}

/// Appends the first bytes of a file. False: they are not in memory.
fn read_into(file: &FileBody, bytes: usize, out: &mut Vec<u8>) -> Result<bool, BodyError> {
    let start = out.len();
    let read = file.file.try_read(&file.io, file.offset, bytes, out);
    match read {
        Ok(Some(read)) if read == bytes => return Ok(true),
        _ => out.truncate(start),
    }
    match read {
        Ok(None) => Ok(false),
        Ok(Some(_)) => Err(BodyError::Truncated),
        Err(error) => Err(BodyError::File(error)),
    }
}

impl HeadFields for HeadWriter<'_, ServerSide, Vec<u8>> {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        HeadWriter::field(self, name, value);
    }

    fn known(&mut self, token: Token, value: &[u8]) {
        HeadWriter::known(self, token, value);
    }

    fn known_number(&mut self, token: Token, number: u64) {
        HeadWriter::known_number(self, token, number);
    }
}
