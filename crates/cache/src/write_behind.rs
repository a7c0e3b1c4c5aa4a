//! The task that moves an object from memory to its file: the second half of a
//! [`Fill`](crate::fill::Fill).
//!
//! A small object that is complete before the task runs is written in one trip to the pool:
//! created, written, renamed. Others get a temporary file whose head marks it as incomplete; the
//! last trip completes the head and renames the file. The task runs on the worker of the fill and
//! outlives it, so that the temporary file is always removed.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use nowait_runtime::fs::{self, File, Io, PutModes};

use crate::commits::CommitTicket;
use crate::format::{Encoded, ObjectHead};
use crate::growth::{FillResult, Growth, WriteWork};
use crate::index::{Commit, CommitError, Hold};
use crate::names::{DIR_MODE, FILE_MODE};
use crate::object::names_of;
use crate::statistics::count;
use crate::store::{Store, now};

/// Maximum number of bytes written in one trip to the pool (or one piece, if that is larger).
const TRIP_BYTES_MAX: u64 = 512 * 1024;

/// The data to write.
pub(crate) struct Job {
    pub store: Arc<Store>,
    pub growth: Arc<Growth>,
    pub io: Io,
    pub hold: Hold,
    pub head: Arc<ObjectHead>,
    pub encoded: Encoded,
}

/// Starts writing. The head is already known to readers.
pub(crate) fn start(job: Job) {
    let Job { store, growth, io, hold, head, encoded } = job;
    let hold = Some(hold);
    let writer = FillWriter {
        store,
        growth,
        io,
        hold,
        head,
        encoded,
        temp: Vec::new(),
        file: None,
        finished: false,
    };
    drop(nowait_runtime::spawn(writer.run()));
}

struct FillWriter {
    store: Arc<Store>,
    growth: Arc<Growth>,
    io: Io,
    hold: Option<Hold>,
    head: Arc<ObjectHead>,
    encoded: Encoded,
    /// The temporary file's path, once there may be one.
    temp: Vec<u8>,
    file: Option<File>,
    /// Readers and waiters were notified of the result.
    finished: bool,
}

/// The result of writing.
enum WriteOutcome {
    Stored { body_length: u64, blocks: u64 },
    Ended,
    TooLarge,
}

impl FillWriter {
    async fn run(mut self) {
        let store = self.store.clone();
        let mut place = None;
        let stored = match self.write(&store, &mut place).await {
            Ok(WriteOutcome::Stored { body_length, blocks }) => {
                self.commit(body_length, blocks).await
            }
            Ok(WriteOutcome::Ended) => false,
            Ok(WriteOutcome::TooLarge) => {
                self.store.refused_too_large();
                false
            }
            Err(error) => {
                self.store.refused(&self.temp, &error);
                false
            }
        };
        count(match stored {
            true => &self.store.counters.stored,
            false => &self.store.counters.fills_failed,
        });
        drop(place);
        self.store.fills().leave(&self.growth);
        match stored {
            true => drop(self.growth.end(FillResult::Stored)),
            false => self.growth.drift(),
        }
        self.give_turn_back();
        self.finished = true;
        self.hold = None;
        if !stored && !self.temp.is_empty() {
            self.file = None;
            self.store.remove_file(&self.io, &self.temp).await;
        }
    }

    /// The file has its name: updates the index.
    async fn commit(&mut self, body_length: u64, blocks: u64) -> bool {
        let Some(mut hold) = self.hold.take() else { return false };
        let identity = &self.head.identity;
        let head_bytes = self.head.layout.body_offset;
        let commit = Commit {
            names: names_of(identity),
            length: u64::from(head_bytes) + body_length,
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            head_bytes,
            valid_until: self.head.state.valid_until,
        };
        match hold.commit(&commit, now()) {
            Ok(_) => {
                self.store.supersede(&self.io, identity.key).await;
                self.store.note_stored();
                self.store.feel_size();
                true
            }
            Err(CommitError::Purged) => {
                let path = self.store.names().object(identity.key);
                self.store.remove_file(&self.io, &path).await;
                false
            }
        }
    }

    /// `place`: keeps the object's position until the index has it.
    async fn write<'a>(
        &mut self,
        store: &'a Store,
        place: &mut Option<CommitTicket<'a>>,
    ) -> io::Result<WriteOutcome> {
        let mut written = 0;
        loop {
            match poll_fn(|cx| self.growth.poll_work(cx, TRIP_BYTES_MAX)).await {
                WriteWork::Stop => return Ok(WriteOutcome::Ended),
                WriteWork::Write { pieces, last: true, .. } if self.file.is_none() => {
                    self.turn(store, place).await;
                    return self.write_whole(pieces).await;
                }
                WriteWork::Finish if self.file.is_none() => {
                    self.turn(store, place).await;
                    return self.write_whole(Vec::new()).await;
                }
                WriteWork::Write { offset, pieces, .. } => {
                    written = offset + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
                    if self.store.is_too_large(written) {
                        return Ok(WriteOutcome::TooLarge);
                    }
                    self.write_some(offset, pieces).await?;
                }
                WriteWork::Finish => {
                    self.turn(store, place).await;
                    return self.finish(written).await;
                }
            }
        }
    }

    /// The object may have been completed without reaching its position. Called after the growth has ended.
    fn give_turn_back(&self) {
        let order = self.growth.order();
        if order != 0 {
            drop(self.store.commits.place(self.growth.key(), order));
        }
    }

    /// Waits for objects of the same key that were completed earlier.
    async fn turn<'a>(&self, store: &'a Store, place: &mut Option<CommitTicket<'a>>) {
        let place = place.insert(store.commits.place(self.growth.key(), self.growth.order()));
        place.turn().await;
    }

    /// Whether the file may get its name: no purge has overtaken the object.
    fn may_publish(&mut self) -> bool {
        let names = names_of(&self.head.identity);
        self.hold.as_mut().is_some_and(|hold| hold.may_publish(names))
    }

    /// The whole object in one trip.
    async fn write_whole(&mut self, pieces: Vec<Bytes>) -> io::Result<WriteOutcome> {
        let count = pieces.len();
        let body_length = pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        if self.store.is_too_large(body_length) {
            return Ok(WriteOutcome::TooLarge);
        }
        if self.growth.is_doomed() || !self.may_publish() {
            return Ok(WriteOutcome::Ended);
        }
        let patch = self.encoded.completed(body_length).bytes;
        let rest = self.encoded.bytes.slice(patch.len()..);
        let mut chunks = Vec::with_capacity(count + 2);
        chunks.extend([patch, rest]);
        chunks.extend(pieces);
        let key = self.growth.key();
        // One trip suffices: it is written next to its final place, wherever other temporary files
        // are.
        self.temp = self.store.names().temp_beside(key);
        let path = self.store.names().object(key);
        let modes = PutModes { file: FILE_MODE, dir: DIR_MODE };
        let put = fs::put(&self.io, &self.temp, &path, chunks, modes);
        let metadata = self.store.watch_write(put).await?;
        self.temp.clear();
        Ok(WriteOutcome::Stored { body_length, blocks: metadata.blocks })
    }

    async fn write_some(&mut self, offset: u64, pieces: Vec<Bytes>) -> io::Result<()> {
        let count = pieces.len();
        let begin = self.encoded.bytes.len() as u64;
        match &self.file {
            Some(file) => {
                let write = file.write_at(&self.io, begin + offset, pieces);
                self.store.watch_write(write).await?;
            }
            None => {
                self.temp = self.store.names().temp(self.growth.key());
                let file = self.store.create_temp(&self.io, &self.temp).await?;
                let mut chunks = Vec::with_capacity(count + 1);
                chunks.push(self.encoded.bytes.clone());
                chunks.extend(pieces);
                self.store.watch_write(file.write_at(&self.io, 0, chunks)).await?;
                self.growth.set_file(file.clone(), begin);
                self.file = Some(file);
            }
        }
        self.growth.wrote(count);
        Ok(())
    }

    /// The last trip.
    async fn finish(&mut self, body_length: u64) -> io::Result<WriteOutcome> {
        if self.growth.is_doomed() || !self.may_publish() {
            return Ok(WriteOutcome::Ended);
        }
        let file = self.file.as_ref().expect("finishing comes after writing");
        let patch = self.encoded.completed(body_length);
        let path = self.store.names().object(self.growth.key());
        let publish = file.publish(&self.io, patch.bytes, &self.temp, &path, DIR_MODE);
        let metadata = match self.store.watch_write(publish).await {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                let beside = self.store.names().temp_beside(self.growth.key());
                self.store.copy_into_place(&self.io, &self.temp, &path, &beside).await?
            }
            result => result?,
        };
        self.temp.clear();
        Ok(WriteOutcome::Stored { body_length, blocks: metadata.blocks })
    }
}

impl Drop for FillWriter {
    /// Also called when the worker is forced to end, so that no task waits forever. Files left on the disk
    /// are removed at the next start.
    fn drop(&mut self) {
        if !self.finished {
            self.store.fills().leave(&self.growth);
            self.growth.end(FillResult::Failed);
            self.give_turn_back();
        }
    }
}
