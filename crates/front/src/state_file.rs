//! Files with state that requests change: servers of groups, key-value zones.
//!
//! A file is replaced as a whole, in the pool, one writer at a time. Whoever comes while it is being written
//! waits, and one of them writes the newest state for all. This module doesn't know what is in the files.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use bytes::Bytes;
use nowait_runtime::fs::{self, CreateOptions, Io};
use nowait_runtime::pool::blocking;

/// A file, for all workers and generations.
#[derive(Debug)]
pub struct StateFile {
    path: Vec<u8>,
    turns: Mutex<Turns>,
}

/// Who writes, and for whom.
#[derive(Debug, Default)]
struct Turns {
    /// Calls so far.
    calls: u64,
    /// The calls up to this one have been served, with this error of the last writer.
    served: u64,
    error: Option<(io::ErrorKind, Option<i32>)>,
    writing: bool,
    waiters: Vec<Waker>,
}

/// The files in use, by path.
static FILES: Mutex<BTreeMap<Vec<u8>, Weak<StateFile>>> = Mutex::new(BTreeMap::new());

impl StateFile {
    /// The file at a path.
    pub fn of(path: &[u8]) -> Arc<StateFile> {
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(path).and_then(Weak::upgrade) {
            return file;
        }
        files.retain(|_, file| file.strong_count() > 0);
        let file = Arc::new(StateFile { path: path.to_vec(), turns: Mutex::default() });
        files.insert(path.to_vec(), Arc::downgrade(&file));
        file
    }

    /// The path.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Writes the state that `text` returns. It is called in the pool, when it is this call's turn. Returns when
    /// that state, or a newer one, is on the disk.
    ///
    /// # Errors
    /// Those of file operations; the old file is still there.
    pub async fn save(
        &self,
        io: &Io,
        text: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> io::Result<()> {
        let call = {
            let mut turns = self.lock();
            turns.calls += 1;
            turns.calls
        };
        let Some(turn) = poll_fn(|cx| self.turn(call, cx.waker())).await? else { return Ok(()) };
        let written = match blocking(&io.pool, text).await {
            Ok(text) => self.write(io, text).await,
            Err(error) => Err(error.into()),
        };
        turn.end(&written);
        written
    }

    /// The turn to write; `None` if another call has written for this one.
    fn turn(&self, call: u64, waker: &Waker) -> Poll<io::Result<Option<Turn<'_>>>> {
        let mut turns = self.lock();
        if turns.served >= call {
            let error = turns.error.map(|(kind, errno)| match errno {
                Some(errno) => io::Error::from_raw_os_error(errno),
                None => kind.into(),
            });
            return Poll::Ready(error.map_or(Ok(None), Err));
        }
        if turns.writing {
            if !turns.waiters.iter().any(|known| known.will_wake(waker)) {
                turns.waiters.push(waker.clone());
            }
            return Poll::Pending;
        }
        turns.writing = true;
        Poll::Ready(Ok(Some(Turn { file: self, covers: turns.calls })))
    }

    async fn write(&self, io: &Io, text: Vec<u8>) -> io::Result<()> {
        let temp = [&self.path[..], b".tmp"].concat();
        // A leftover of a crash.
        let _ = fs::unlink(io, &temp).await;
        let handle = fs::create(io, &temp, &CreateOptions::default()).await?;
        let written = async {
            if !text.is_empty() {
                handle.write_at(io, 0, vec![Bytes::from(text)]).await?;
            }
            handle.sync(io, false).await?;
            fs::rename(io, &temp, &self.path).await
        };
        let written = written.await;
        if written.is_err() {
            let _ = fs::unlink(io, &temp).await;
        }
        written
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of a writer. Dropped without an end, others write.
struct Turn<'a> {
    file: &'a StateFile,
    covers: u64,
}

impl Turn<'_> {
    fn end(self, written: &io::Result<()>) {
        let mut turns = self.file.lock();
        turns.served = self.covers;
        turns.error = written.as_ref().err().map(|error| (error.kind(), error.raw_os_error()));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = self.file.lock();
        turns.writing = false;
        let waiters = std::mem::take(&mut turns.waiters);
        drop(turns);
        waiters.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_writes_for_all_that_have_come() {
        let file = StateFile::of(b"/nowhere/state");
        assert!(Arc::ptr_eq(&file, &StateFile::of(b"/nowhere/state")));
        file.lock().calls = 2;
        let Poll::Ready(Ok(Some(turn))) = file.turn(1, Waker::noop()) else { panic!("its turn") };
        assert!(file.turn(2, Waker::noop()).is_pending());
        // It comes after the state was read.
        file.lock().calls = 3;
        assert!(file.turn(3, Waker::noop()).is_pending());
        turn.end(&Ok(()));
        assert!(matches!(file.turn(2, Waker::noop()), Poll::Ready(Ok(None))));
        let Poll::Ready(Ok(Some(turn))) = file.turn(3, Waker::noop()) else { panic!("its turn") };
        turn.end(&Err(io::ErrorKind::StorageFull.into()));
        assert!(matches!(file.turn(3, Waker::noop()), Poll::Ready(Err(_))));
    }

    #[test]
    fn a_writer_that_is_dropped_leaves_its_turn() {
        let file = StateFile::of(b"/nowhere/other");
        file.lock().calls = 1;
        let Poll::Ready(Ok(Some(turn))) = file.turn(1, Waker::noop()) else { panic!("its turn") };
        drop(turn);
        assert!(matches!(file.turn(1, Waker::noop()), Poll::Ready(Ok(Some(_)))));
    }
}
