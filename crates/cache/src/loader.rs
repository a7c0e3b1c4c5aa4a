//! The loader of a store: enters the files on the disk into the index.
//!
//! At startup the saved index is restored, so that its objects are found at once. Then the
//! directories are walked in steps (`loader_files`, `loader_threshold`, `loader_sleep`). Files that
//! the index does not know are added by name and size; their heads are read on first use. Restored
//! entries without a file are forgotten. Temporary files of dead processes and files that can't be
//! objects are deleted. The walk is repeated after the disk was out of use.
//!
//! One task per store, see [`crate::background`]. Never makes a request wait, and never reads contents.

use std::io;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::{Arc, Weak};
use std::time::Duration;

use nowait_runtime::fs::{
    self, DirReader, FileKind, ListingEntry, Metadata, ReadDirOptions, Symlinks,
};
use nowait_runtime::task::{Either, select};
use nowait_runtime::worker::stopping;

use crate::index::{Cursor, LoadResult, Record};
use crate::key::Key;
use crate::names::{Owner, join, owner};
use crate::pace::{Pace, pause};
use crate::statistics::count;
use crate::store::{Store, now};

/// The number of directory entries in memory at a time.
const ENTRIES: usize = 256;

/// The length of the shortest possible head, in bytes.
const HEAD_BYTES_MIN: u64 = 96;

/// The interval of checking whether the disk must be walked again, and of repeating failed removals.
const IDLE: Duration = Duration::from_secs(5);

/// A temporary file of another living process that was not written for this long is abandoned.
const LEFTOVER_AFTER_SECS: i64 = 24 * 3600;

/// Loads until the worker ends or the store is gone.
pub(crate) async fn run(store: Weak<Store>) {
    if let Some(this) = store.upgrade() {
        match this.index().is_cold() {
            true => this.restore().await,
            false => this.recalled(),
        }
    }
    loop {
        {
            let Some(this) = store.upgrade() else { return };
            if this.health.why().is_none() && !this.recall.is_known() {
                // The disk did not respond then.
                this.restore().await;
            }
            if this.health.why().is_none() {
                this.remove_leftovers().await;
            }
            if this.health.why().is_none() && this.walk_wanted.swap(false, AcqRel) {
                let begun = nowait_runtime::now();
                match select(stopping(), this.walk()).await {
                    Either::Left(()) => return,
                    Either::Right(Ok(())) => this.walked(begun),
                    Either::Right(Err(error)) => {
                        this.note_error("loading", this.names().directory(), &error);
                        this.walk_wanted.store(true, Release);
                    }
                }
            }
        }
        if !pause(IDLE).await {
            return;
        }
    }
}

impl Store {
    /// The disk must be walked again: it may hold files that the index does not know.
    pub(crate) fn rescan(&self) {
        self.walk_wanted.store(true, Release);
    }

    fn walked(&self, begun: std::time::Instant) {
        let took = nowait_runtime::now().saturating_duration_since(begun);
        let (zone, objects) = (&self.options().zone, self.index().usage().stored);
        self.notice(format_args!(
            "cache \"{zone}\": {objects} objects on the disk, checked in {} ms",
            took.as_millis()
        ));
    }

    /// One complete walk.
    async fn walk(self: &Arc<Self>) -> io::Result<()> {
        let mut pace = Pace::new(self.options().loader);
        let own = fs::stat_only(&self.own_io(), self.names().directory(), Symlinks::Follow).await;
        if let Ok(found) = own {
            self.device.store(found.dev, Relaxed);
        }
        if let Some(directory) = self.names().temp_directory() {
            let directory = directory.to_vec();
            let found = self.each_entry(&directory, &mut pace, &mut |_| {}).await;
            ignore_missing(found)?;
        }
        let levels: Vec<usize> = self.names().levels().digits().collect();
        let mut directories = vec![(self.names().directory().to_vec(), 0)];
        while let Some((directory, depth)) = directories.pop() {
            let digits = levels.get(depth).copied();
            let found = self
                .each_entry(&directory, &mut pace, &mut |entry| {
                    if is_level(entry, digits) {
                        directories.push((join(&directory, &entry.name), depth + 1));
                    }
                })
                .await;
            ignore_missing(found)?;
        }
        self.forget_missing(&mut pace).await?;
        let was_cold = self.index().is_cold();
        self.index().set_warm();
        if was_cold {
            for purge in self.index().unfinished_purges() {
                self.walk_purge(purge).await;
            }
        }
        Ok(())
    }

    /// Lists one directory, in pieces; enters its files into the index, and passes the rest to
    /// `other`.
    async fn each_entry(
        self: &Arc<Self>,
        directory: &[u8],
        pace: &mut Pace,
        other: &mut dyn FnMut(&ListingEntry),
    ) -> io::Result<()> {
        let io = self.own_io();
        let options = ReadDirOptions { entries_max: ENTRIES, metadata: true };
        let mut reader = self.watch(DirReader::open(&io, directory)).await?;
        loop {
            let listing = self.watch(reader.next(&io, &options)).await?;
            for entry in &listing.entries {
                match &entry.metadata {
                    Some(metadata) if metadata.is_file() => {
                        self.file(directory, &entry.name, metadata).await;
                    }
                    _ => other(entry),
                }
            }
            // An empty directory counts as work, too.
            if !pace.did(listing.entries.len().max(1)).await {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if !listing.truncated {
                return Ok(());
            }
        }
    }

    /// One file.
    async fn file(self: &Arc<Self>, directory: &[u8], name: &[u8], metadata: &Metadata) {
        let path = join(directory, name);
        if let Some(owner) = owner(name) {
            if is_left_over(owner, metadata) {
                count(&self.counters.leftovers);
                let _ = self.try_remove(&self.own_io(), &path).await;
            }
            return;
        }
        let Some(key) = Key::from_file_name(name) else {
            // nginx deletes every file that it finds. Here only files that certainly belonged to a
            // cache go: its temporary files are named like objects, with a number appended.
            if is_foreign_temp(name) {
                count(&self.counters.leftovers);
                let _ = self.try_remove(&self.own_io(), &path).await;
            }
            return;
        };
        let is_ours = path == self.names().object(key) && metadata.size >= HEAD_BYTES_MIN;
        if !is_ours {
            // With other `levels`, or too short for a head: no look-up would find the file.
            count(&self.counters.damaged);
            let _ = self.try_remove(&self.own_io(), &path).await;
            return;
        }
        let blocks = u32::try_from(metadata.blocks).unwrap_or(u32::MAX);
        let record = Record::found(key, metadata.size, blocks, now());
        if self.index().found(&record) == LoadResult::Full {
            count(&self.counters.evicted);
            let _ = self.try_remove(&self.own_io(), &path).await;
        }
    }

    /// Forgets entries of the saved index whose files do not exist.
    async fn forget_missing(&self, pace: &mut Pace) -> io::Result<()> {
        let (io, mut cursor) = (self.own_io(), Some(Cursor::default()));
        let mut keys = Vec::new();
        while let Some(at) = cursor {
            cursor = self.index().unverified(at, ENTRIES, &mut keys);
            for (key, stamp) in keys.drain(..) {
                let path = self.names().object(key);
                match self.watch(fs::stat(&io, &path, Symlinks::Follow)).await {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        self.index().forget(&key, stamp);
                    }
                    Err(error) => return Err(error),
                }
                if !pace.did(1).await {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
        }
        Ok(())
    }
}

/// Whether the entry is a directory of the next level.
fn is_level(entry: &ListingEntry, digits: Option<usize>) -> bool {
    let is_directory =
        entry.metadata.as_ref().map_or(entry.kind, |known| known.kind) == FileKind::Directory;
    is_directory
        && digits == Some(entry.name.len())
        && entry.name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A temporary file of nginx: `KEY.NUMBER`.
fn is_foreign_temp(name: &[u8]) -> bool {
    name.split_at_checked(32).is_some_and(|(key, rest)| {
        Key::from_file_name(key).is_some()
            && rest.first() == Some(&b'.')
            && rest.len() > 1
            && rest[1..].iter().all(u8::is_ascii_digit)
    })
}

fn is_left_over(owner: Owner, metadata: &Metadata) -> bool {
    match owner {
        Owner::Us => false,
        Owner::Gone => true,
        Owner::Process(pid) => {
            let age =
                i64::try_from(now().secs()).unwrap_or(i64::MAX).saturating_sub(metadata.mtime);
            !nowait_sys::process::is_alive(pid) || age > LEFTOVER_AFTER_SECS
        }
    }
}

/// A missing directory counts as empty.
fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
