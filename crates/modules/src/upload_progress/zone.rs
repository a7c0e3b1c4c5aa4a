//! A zone: the uploads of `upload_progress` by their identifiers, shared by all workers and kept across reloads.
//!
//! The lock is held for a look-up: when an upload begins and ends, and for a report. What has been received is
//! counted without it. Finished uploads are removed when their time is over, a few whenever the zone is used, and
//! earlier if another one needs the room; those in progress stay.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nowait_http::special_pages::internal::CLIENT_CLOSED;
use nowait_runtime::now;
use nowait_runtime::time::process_start;

/// Longer identifiers are not tracked. nginx: the length has one byte.
pub(super) const ID_BYTES_MAX: usize = 255;

/// Charged for each upload besides its identifier, about what it takes.
const FIXED: u64 = 200;

/// Number of uploads whose time is over that are removed whenever the zone is used.
const EXPIRED_MAX: usize = 4;

/// The uploads of a zone.
#[derive(Debug)]
pub(super) struct Uploads {
    bytes_max: u64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<Arc<[u8]>, Entry>,
    /// The finished ones, in the order in which they are removed.
    finished: BTreeMap<Removal, Arc<[u8]>>,
    /// What they are charged.
    bytes: u64,
    /// Number of the last one that finished.
    last: u64,
}

/// The time at which a finished upload is removed, in milliseconds, and its number.
type Removal = (u64, u64);

#[derive(Debug)]
struct Entry {
    upload: Arc<Upload>,
    /// `None`: in progress.
    removal: Option<Removal>,
}

/// An upload.
#[derive(Debug)]
pub(super) struct Upload {
    /// `None`: the client has not said it.
    length: Option<u64>,
    received: AtomicU64,
    /// The status of its response, if that is a redirect or an error; otherwise zero.
    status: AtomicU16,
}

/// The progress of an upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Length of the content; zero if it is unknown or there is none.
    pub length: u64,
    /// Bytes received.
    pub received: u64,
    /// The status of a redirect or an error; otherwise zero.
    pub status: u16,
    /// The request has ended.
    pub finished: bool,
}

/// The reason why an upload is not tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untracked {
    /// Another one in progress has this identifier.
    Duplicate,
    /// The zone is full of uploads in progress.
    Full,
}

impl Upload {
    fn new(length: Option<u64>) -> Self {
        Self { length, received: AtomicU64::new(0), status: AtomicU16::new(0) }
    }

    /// Counts content.
    pub(super) fn count(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    fn progress(&self, finished: bool) -> Progress {
        Progress {
            length: self.length.unwrap_or(0),
            received: self.received.load(Ordering::Relaxed),
            status: self.status.load(Ordering::Relaxed),
            finished,
        }
    }
}

/// An upload in progress; it has finished when this is dropped.
#[derive(Debug)]
pub(super) struct TrackedUpload {
    uploads: Arc<Uploads>,
    upload: Arc<Upload>,
    id: Arc<[u8]>,
    /// How long it is remembered after its end.
    timeout_ms: u64,
    /// The response had a status.
    has_status: Cell<bool>,
}

impl TrackedUpload {
    /// What is counted.
    pub(super) fn upload(&self) -> &Arc<Upload> {
        &self.upload
    }

    /// The progress so far.
    pub(super) fn progress(&self) -> Progress {
        self.upload.progress(false)
    }

    /// The status of the response.
    pub(super) fn set_status(&self, status: u16) {
        self.has_status.set(true);
        self.upload.status.store(kept(status), Ordering::Relaxed);
    }
}

impl Drop for TrackedUpload {
    fn drop(&mut self) {
        if !self.has_status.get() {
            self.set_status(CLIENT_CLOSED);
        }
        let now = clock();
        let mut table = self.uploads.lock();
        table.forget_expired(now);
        // Otherwise another one has its place.
        if let Some(entry) = table.by_id.get_mut(&self.id)
            && Arc::ptr_eq(&entry.upload, &self.upload)
        {
            table.finish(self.id.clone(), now.saturating_add(self.timeout_ms));
        }
    }
}

impl Uploads {
    /// A zone of this many bytes.
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes_max: bytes, table: Mutex::default() }
    }

    /// Bytes that it may charge.
    pub(super) fn size(&self) -> u64 {
        self.bytes_max
    }

    /// Tracks an upload. A finished one with the same identifier makes room for it.
    ///
    /// # Errors
    /// [`Untracked`].
    pub(super) fn begin(
        self: &Arc<Self>,
        id: &[u8],
        length: Option<u64>,
        timeout_ms: u64,
    ) -> Result<TrackedUpload, Untracked> {
        let mut table = self.lock();
        let (id, upload) = table.add(id, length, self.bytes_max, clock())?;
        drop(table);
        let has_status = Cell::new(false);
        Ok(TrackedUpload { uploads: self.clone(), upload, id, timeout_ms, has_status })
    }

    /// Remembers that an upload was refused before it was tracked.
    ///
    /// # Errors
    /// [`Untracked`].
    pub(super) fn refuse(&self, id: &[u8], status: u16, timeout_ms: u64) -> Result<(), Untracked> {
        let now = clock();
        let mut table = self.lock();
        let (id, upload) = table.add(id, None, self.bytes_max, now)?;
        upload.status.store(kept(status), Ordering::Relaxed);
        table.finish(id, now.saturating_add(timeout_ms));
        Ok(())
    }

    /// The progress of an upload; `None` if it is unknown.
    pub(super) fn progress(&self, id: &[u8]) -> Option<Progress> {
        let now = clock();
        let mut table = self.lock();
        table.forget_expired(now);
        let entry = table.by_id.get(id)?;
        let expired = entry.removal.is_some_and(|(time, _)| time <= now);
        (!expired).then(|| entry.upload.progress(entry.removal.is_some()))
    }

    /// A panic while it is locked would be a bug; the table is usable nevertheless.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn add(
        &mut self,
        id: &[u8],
        length: Option<u64>,
        bytes_max: u64,
        now: u64,
    ) -> Result<(Arc<[u8]>, Arc<Upload>), Untracked> {
        self.forget_expired(now);
        match self.by_id.get(id).map(|entry| entry.removal) {
            Some(None) => return Err(Untracked::Duplicate),
            Some(Some(removal)) => self.forget(removal),
            None => {}
        }
        let charge = charge(id.len());
        while self.bytes + charge > bytes_max {
            let oldest = self.finished.first_key_value().map(|(removal, _)| *removal);
            self.forget(oldest.ok_or(Untracked::Full)?);
        }
        let id: Arc<[u8]> = id.into();
        let upload = Arc::new(Upload::new(length));
        self.bytes += charge;
        self.by_id.insert(id.clone(), Entry { upload: upload.clone(), removal: None });
        Ok((id, upload))
    }

    /// Notes that an upload has finished, and when it is to be removed.
    fn finish(&mut self, id: Arc<[u8]>, time: u64) {
        self.last += 1;
        let removal = (time, self.last);
        if let Some(entry) = self.by_id.get_mut(&id) {
            entry.removal = Some(removal);
            self.finished.insert(removal, id);
        }
    }

    fn forget_expired(&mut self, now: u64) {
        for _ in 0..EXPIRED_MAX {
            match self.finished.first_key_value() {
                Some((&removal, _)) if removal.0 <= now => self.forget(removal),
                _ => break,
            }
        }
    }

    /// Removes a finished upload.
    fn forget(&mut self, removal: Removal) {
        if let Some(id) = self.finished.remove(&removal) {
            self.by_id.remove(&id);
            self.bytes -= charge(id.len());
        }
    }
}

/// The charge for an upload.
fn charge(id_bytes: usize) -> u64 {
    (FIXED + id_bytes as u64).next_power_of_two()
}

/// The status that a report may show. nginx: `up->err_status`.
fn kept(status: u16) -> u16 {
    if status >= 300 { status } else { 0 }
}

/// Milliseconds since the start of the process.
fn clock() -> u64 {
    let since = now().saturating_duration_since(process_start());
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough for every test.
    const LATER: u64 = 1_000_000;

    /// A zone for this many uploads with short identifiers.
    fn zone(uploads: u64) -> Arc<Uploads> {
        Arc::new(Uploads::new(256 * uploads))
    }

    #[test]
    fn an_upload_is_counted_until_its_end() {
        let zone = zone(2);
        assert_eq!(zone.progress(b"a"), None);
        let tracked = zone.begin(b"a", Some(10), LATER).unwrap();
        let begun = Progress { length: 10, ..Progress::default() };
        assert_eq!(zone.progress(b"a"), Some(begun));
        tracked.upload().count(4);
        assert_eq!(zone.progress(b"a"), Some(Progress { received: 4, ..begun }));
        tracked.upload().count(6);
        tracked.set_status(200);
        drop(tracked);
        let done = Progress { received: 10, finished: true, ..begun };
        assert_eq!(zone.progress(b"a"), Some(done));
    }

    #[test]
    fn errors_are_remembered() {
        let zone = zone(3);
        zone.begin(b"a", None, LATER).unwrap().set_status(413);
        drop(zone.begin(b"b", None, LATER).unwrap());
        zone.refuse(b"c", 403, LATER).unwrap();
        let status = |id: &[u8]| zone.progress(id).map(|progress| progress.status);
        assert_eq!([status(b"a"), status(b"b"), status(b"c")], [Some(413), Some(499), Some(403)]);
    }

    #[test]
    fn an_identifier_has_one_upload_at_a_time() {
        let zone = zone(9);
        let first = zone.begin(b"a", Some(1), LATER).unwrap();
        assert_eq!(zone.begin(b"a", Some(2), LATER).err(), Some(Untracked::Duplicate));
        assert_eq!(zone.refuse(b"a", 403, LATER), Err(Untracked::Duplicate));
        drop(first);
        let second = zone.begin(b"a", Some(2), LATER).unwrap();
        let progress = Progress { length: 2, ..Progress::default() };
        assert_eq!(zone.progress(b"a"), Some(progress));
        drop(second);
        assert_eq!(zone.lock().finished.len(), 1);
    }

    #[test]
    fn finished_uploads_make_room_and_others_do_not() {
        let zone = zone(2);
        drop(zone.begin(b"early", None, LATER).unwrap());
        drop(zone.begin(b"earlier", None, LATER - 1).unwrap());
        let third = zone.begin(b"third", None, LATER).unwrap();
        assert_eq!(zone.progress(b"earlier"), None);
        assert!(zone.progress(b"early").is_some());
        let fourth = zone.begin(b"fourth", None, LATER).unwrap();
        assert_eq!(zone.progress(b"early"), None);
        assert_eq!(zone.begin(b"fifth", None, LATER).err(), Some(Untracked::Full));
        drop((third, fourth));
        // A long identifier takes the room of both.
        zone.begin(&[b'x'; 255], None, LATER).unwrap();
        assert_eq!(zone.progress(b"fourth"), None);
        assert_eq!(zone.lock().by_id.len(), 1);
    }

    #[test]
    fn the_time_of_finished_uploads_ends() {
        let zone = zone(99);
        for n in 0..EXPIRED_MAX as u8 {
            drop(zone.begin(&[n], None, 0).unwrap());
        }
        drop(zone.begin(b"a", None, LATER).unwrap());
        assert_eq!(zone.progress(&[0]), None);
        let table = zone.lock();
        assert_eq!((table.by_id.len(), table.finished.len(), table.bytes), (1, 1, 256));
    }

    #[test]
    fn workers_share_a_zone() {
        let zone = zone(64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..5000_u32 {
                        if let Ok(upload) = zone.begin(&(n % 90).to_be_bytes(), None, LATER) {
                            upload.upload().count(1);
                            upload.set_status(200);
                        }
                    }
                });
            }
        });
        let table = zone.lock();
        assert_eq!(table.bytes, 256 * table.by_id.len() as u64);
        assert_eq!(table.finished.len(), table.by_id.len());
        assert!(table.by_id.len() <= 64);
    }
}
