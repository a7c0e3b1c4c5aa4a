//! The saved index: written on shutdown and at intervals, restored at startup. Purges are saved
//! too: when they are made, as long as there are files that the index does not know; soft purges
//! always. A purged object must not come back after a crash.
//!
//! They are in the store's directory, so that they move with the disk. Encoding and decoding run in
//! the pool, as they take a while for a million keys. Called by the store's background work, and by
//! the program when it ends. They are trusted only as far as [`crate::snapshot`] states.

use std::io;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_runtime::fs::{self, CreateOptions, Io, OpenOptions};
use nowait_runtime::pool;

use crate::index::How;
use crate::key::Key;
use crate::names::{DIR_MODE, FILE_MODE};
use crate::pace::pause;
use crate::snapshot::{Decoder, Encoder, Restored, SnapshotError};
use crate::store::{Store, now};

/// The interval for saving the index, if objects were stored since.
const INTERVAL: Duration = Duration::from_secs(300);

/// Bytes read or written in one trip to the pool.
const TRIP_BYTES: usize = 1024 * 1024;

/// Saves at intervals until the worker ends or the store has gone.
pub(crate) async fn run(store: Weak<Store>) {
    while pause(INTERVAL).await {
        let Some(this) = store.upgrade() else { return };
        this.save_if_changed().await;
    }
}

impl Store {
    async fn save_if_changed(&self) {
        let stored = self.counters.stored.load(Relaxed);
        if self.health.why_not_store().is_some() || self.saved.swap(stored, Relaxed) == stored {
            return;
        }
        if let Err(error) = self.save(false).await {
            self.note_error("saving the index in", self.names().directory(), &error);
        }
    }

    /// Saves the index. `clean`: no stores or purges follow.
    ///
    /// # Errors
    /// Errors of the disk and of the pool.
    async fn save(&self, clean: bool) -> io::Result<()> {
        self.write(Encoder::new(self.index(), clean, now()), &self.names().snapshot()).await
    }

    /// Resolves when the purge with this stamp survives a crash: its objects are known and gone, or
    /// the purge is on the disk.
    pub(crate) async fn keep_purge(&self, stamp: u64, how: How) {
        // A softly purged object stays on the disk, and its file does not record that it is stale.
        let needed = how == How::Soft || self.index().must_keep_purges();
        if !needed || self.health.why_not_store().is_some() {
            return;
        }
        let Some(_held) = self.keeping.take().await else { return };
        if self.kept.load(Relaxed) < stamp {
            self.keep_purges().await;
        }
    }

    async fn keep_purges(&self) {
        let newest = self.index().newest_stamp();
        let path = self.names().purges();
        match self.write(Encoder::of_purges(self.index(), now()), &path).await {
            Ok(()) => self.kept.store(newest, Relaxed),
            Err(error) => self.note_error("saving purges in", &path, &error),
        }
    }

    /// Writes a stream to a file that gets its name when it is whole.
    async fn write(&self, encoder: Encoder, path: &[u8]) -> io::Result<()> {
        let io = self.own_io();
        let temp = self.names().temp_at_top(Key([0; 16]));
        let result = self.write_as(&io, &temp, encoder, path).await;
        if result.is_err() {
            self.remove_file(&io, &temp).await;
        }
        result
    }

    async fn write_as(
        &self,
        io: &Io,
        temp: &[u8],
        mut encoder: Encoder,
        path: &[u8],
    ) -> io::Result<()> {
        let options = CreateOptions { mode: FILE_MODE, ..CreateOptions::default() };
        let file = fs::create(io, temp, &options).await?;
        let mut offset = 0;
        loop {
            let encode = move || {
                let (mut blocks, mut bytes) = (Vec::new(), 0);
                while bytes < TRIP_BYTES
                    && let Some(block) = encoder.next_block()
                {
                    bytes += block.len();
                    blocks.push(block);
                }
                (encoder, blocks, bytes as u64)
            };
            let (next, blocks, bytes) = pool::blocking(&io.pool, encode).await?;
            if blocks.is_empty() {
                break;
            }
            encoder = next;
            file.write_at(io, offset, blocks).await?;
            offset += bytes;
        }
        // The end of a process loses no written data; losses by a power failure are detected by the blocks'
        // checksums.
        file.publish(io, Bytes::new(), temp, path, DIR_MODE).await?;
        Ok(())
    }

    /// Restores the saved index, if there is one.
    pub(crate) async fn restore(self: &Arc<Self>) {
        let path = self.names().purges();
        match self.restore_from(&path).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => self.error(format_args!("cache purges are lost: {error}")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.note_error("restoring purges from", &path, &error);
                // If the disk does not respond now, restoring is repeated when it does.
                if error.kind() == io::ErrorKind::TimedOut {
                    return;
                }
            }
        }
        if let Err(error) = self.recall_snapshot().await {
            self.note_error("restoring the index from", &self.names().snapshot(), &error);
            // It contains purges, too.
            if error.kind() == io::ErrorKind::TimedOut {
                return;
            }
        }
        self.recalled();
    }

    /// Reading has ended: deferred purges are run again.
    pub(crate) fn recalled(self: &Arc<Self>) {
        self.recall.done(|what, how| {
            if let Err(error) = self.begin_purge(what, how) {
                self.error(format_args!("cache: a deferred purge is lost: {error}"));
            }
        });
    }

    async fn recall_snapshot(self: &Arc<Self>) -> io::Result<()> {
        let begun = nowait_runtime::now();
        let path = self.names().snapshot();
        let restored = match self.restore_from(&path).await {
            Ok(restored) => restored,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        // Files found from now on are compared with all purges.
        self.recalled();
        // The purges that were saved with it stay on the disk.
        if self.index().has_purges() {
            self.keep_purge(self.index().newest_stamp(), How::Soft).await;
        }
        // The snapshot was clean until an object was stored after it.
        self.remove_file(&self.own_io(), &path).await;
        let zone = self.options().zone.clone();
        match restored {
            Ok(Restored { entries, no_room, damaged, .. }) => {
                let ms = nowait_runtime::now().saturating_duration_since(begun).as_millis();
                self.notice(format_args!(
                    "cache \"{zone}\": {entries} objects restored from the saved index in {ms} ms, \
                     {no_room} without room, {damaged} damaged blocks"
                ));
                if entries > 0 {
                    self.save_if_changed().await;
                }
            }
            Err(error) => {
                self.error(format_args!("cache \"{zone}\": {error}; it is loaded from the disk"));
            }
        }
        Ok(())
    }

    async fn restore_from(&self, path: &[u8]) -> io::Result<Result<Restored, SnapshotError>> {
        let io = self.own_io();
        let options = OpenOptions::default();
        let file = self.watch(fs::open(&io, path, &options)).await?;
        let (mut decoder, mut offset) = (Decoder::new(self.index(), now()), 0);
        while offset < file.size() {
            let bytes = self.watch(file.read_at(&io, offset, TRIP_BYTES)).await?;
            if bytes.is_empty() {
                break;
            }
            offset += bytes.len() as u64;
            let decode = move || decoder.push(&bytes).map(|()| decoder);
            match pool::blocking(&io.pool, decode).await? {
                Ok(next) => decoder = next,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(pool::blocking(&io.pool, move || decoder.finish()).await?))
    }

    /// Saves the index for the next start. Called once when the program ends, after all workers
    /// have stopped using the store, on a thread that may wait; for at most `limit`.
    pub fn close(&self, limit: Duration) {
        if self.health.why_not_store().is_some() {
            return;
        }
        // Until the disk has been checked, the contents of the index are uncertain.
        let clean = !self.index().is_cold();
        match block_on(limit, self.save(clean)) {
            // It contains the purges, too.
            Some(Ok(())) if clean => {
                let path = self.names().purges();
                let io = self.own_io();
                let _ = block_on(limit, self.remove_file(&io, &path));
            }
            Some(Ok(())) => {}
            Some(Err(error)) => {
                self.note_error("saving the index in", self.names().directory(), &error);
            }
            None => self.note_limit("saving the index takes too long"),
        }
    }
}

/// Runs a future of the pool on this thread; `None` if it takes longer than `limit`.
fn block_on<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let deadline = Instant::now() + limit;
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
