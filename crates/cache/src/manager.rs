//! The manager of a store. It removes objects that are unused for too long (`inactive`), exceed
//! `max_size`, `min_free` or the keys zone, or have no room on a full disk, and it tries a disk
//! that is out of use.
//!
//! One task per store, see [`crate::background`]. It works in steps (`manager_files`,
//! `manager_threshold`, `manager_sleep`), is woken when space or keys run out, and wakes when the
//! next object expires. Never makes a request wait.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nowait_runtime::events::{self, EventKind};
use nowait_runtime::fs;
use nowait_runtime::task::{Either, select};
use nowait_runtime::worker::stopping;
use nowait_runtime::{now, sleep, spawn};

use crate::health::{ErrorClass, PAUSE_MAX, PAUSE_MIN};
use crate::index::Victim;
use crate::key::Key;
use crate::pace::Pace;
use crate::statistics::count;
use crate::store::{BLOCK_BYTES, Store};

/// The number of files removed at the same time.
const BATCH: usize = 8;

/// The longest interval between two runs of the manager, as in nginx.
const IDLE: Duration = Duration::from_secs(10);

/// The bytes written to try a disk.
static PROBE: [u8; 4096] = [b'n'; 4096];

/// Manages until the worker ends or the store is gone.
pub(crate) async fn run(store: Weak<Store>) {
    let mut probes = Probes { next: None, pause: PAUSE_MIN };
    loop {
        let Some(this) = store.upgrade() else { return };
        let work = async {
            match this.health.why_not_store() {
                None => this.manage().await,
                Some(_) => this.probe_when_due(&mut probes).await,
            }
        };
        let Either::Right(wait) = select(stopping(), work).await else { return };
        let index = this.index().clone();
        drop(this);
        let woken = poll_fn(|cx| index.poll_pressure(cx));
        if let Either::Left(()) = select(stopping(), select(sleep(wait), woken)).await {
            return;
        }
    }
}

/// The time of the next try of a disk that is out of use.
struct Probes {
    next: Option<Instant>,
    pause: Duration,
}

impl Store {
    /// Removes all due objects. Returns the time until the next run.
    async fn manage(self: &Arc<Self>) -> Duration {
        let mut pace = Pace::new(self.options().manager);
        // A full disk reports that before `min_free` does, or although `min_free` is not set.
        let mut wanted = self.take_wanted_bytes();
        loop {
            let expired = self.index().expire(crate::store::now(), BATCH);
            let mut removed = self.remove(expired.victims, &self.counters.expired).await;
            let surplus = self.index().relieve(BATCH);
            removed += self.evict(surplus).await;
            let excess = self.excess_bytes().await.max(wanted);
            if excess > 0 {
                let before = self.bytes();
                let victims = self.index().evict(self.objects_in(excess));
                let evicted = self.evict(victims).await;
                removed += evicted;
                // A small file may take no block of its own.
                let freed = before.saturating_sub(self.bytes());
                wanted = wanted.saturating_sub(freed.max(evicted as u64 * BLOCK_BYTES));
            }
            if removed == 0 && !expired.next.is_zero() {
                return expired.next.min(IDLE);
            }
            if !pace.did(removed).await || self.health.why_not_store().is_some() {
                return IDLE;
            }
        }
    }

    /// Bytes on the disk beyond the limits.
    async fn excess_bytes(&self) -> u64 {
        let options = self.options();
        let used = self.bytes();
        let beyond = options.max_bytes.map_or(0, |max| used.saturating_sub(max));
        let Some(min_free) = options.min_free.filter(|_| used > 0) else { return beyond };
        let io = self.own_io();
        match self.watch(fs::free_bytes(&io, self.names().directory())).await {
            Ok(free) => beyond.max(min_free.saturating_sub(free)),
            Err(error) => {
                self.note_error("statvfs of", self.names().directory(), &error);
                beyond
            }
        }
    }

    /// The number of objects that occupy about this many bytes; at most a batch.
    fn objects_in(&self, bytes: u64) -> usize {
        let usage = self.index().usage();
        let average = (usage.blocks * BLOCK_BYTES / usage.stored.max(1)).max(1);
        usize::try_from(bytes / average).unwrap_or(BATCH).clamp(1, BATCH)
    }

    /// Removes objects that no longer have room, or moves them to the slower store.
    async fn evict(self: &Arc<Self>, victims: Vec<Victim>) -> usize {
        for victim in &victims {
            self.offer_to_slower(victim).await;
        }
        self.remove(victims, &self.counters.evicted).await
    }

    /// Removes the files of victims, all at the same time. Returns their number.
    pub(crate) async fn remove(
        self: &Arc<Self>,
        victims: Vec<Victim>,
        counter: &AtomicU64,
    ) -> usize {
        let (io, mut under_way) = (self.own_io(), Vec::with_capacity(victims.len()));
        for victim in victims {
            let (store, io) = (self.clone(), io.clone());
            under_way.push(spawn(async move { store.remove_victim(&io, victim).await }));
            count(counter);
        }
        let removed = under_way.len();
        for one in under_way {
            // A panic was reported by the worker; dropping the victim has freed its key.
            let _ = one.await;
        }
        removed
    }

    /// Tries the disk if it is time. Returns the time until the next try.
    async fn probe_when_due(&self, probes: &mut Probes) -> Duration {
        let next = *probes.next.get_or_insert_with(|| now() + probes.pause);
        let left = next.saturating_duration_since(now());
        if !left.is_zero() {
            return left;
        }
        // No time limit: a second try beside one that hangs would only occupy another thread.
        match self.probe().await {
            Ok(()) => {
                self.return_to_use();
                *probes = Probes { next: None, pause: PAUSE_MIN };
                Duration::ZERO
            }
            // The disk responds again, but can't be written.
            Err(error) if ErrorClass::is_read_only(&error) && self.health.why().is_some() => {
                self.return_to_use();
                self.note_change(self.health.seal(true));
                *probes = Probes { next: None, pause: PAUSE_MIN };
                Duration::ZERO
            }
            Err(_) => {
                probes.pause = (probes.pause * 2).min(PAUSE_MAX);
                probes.next = Some(now() + probes.pause);
                probes.pause
            }
        }
    }

    /// The disk responds again.
    fn return_to_use(&self) {
        let was_sealed = self.health.why() != self.health.why_not_store();
        let outage = self.health.restore();
        self.rescan();
        let directory = String::from_utf8_lossy(self.names().directory());
        if was_sealed {
            let text = format_args!("cache \"{directory}\" stores objects again");
            events::record(EventKind::CacheStores, &directory, text);
            self.notice(text);
        } else {
            let seconds = outage.as_secs();
            let text = format_args!("cache \"{directory}\" is in use again after {seconds} s");
            events::record(EventKind::DiskBack, &directory, text);
            self.notice(text);
        }
    }

    /// Writes to the disk and reads its directory.
    pub(crate) async fn probe(&self) -> io::Result<()> {
        let io = self.own_io();
        let path = self.names().temp_at_top(Key([0; 16]));
        let options = fs::CreateOptions::default();
        let file = fs::create(&io, &path, &options).await?;
        let written = async {
            file.write_at(&io, 0, vec![Bytes::from_static(&PROBE)]).await?;
            file.sync(&io, true).await
        };
        let result = written.await;
        let removed = fs::unlink(&io, &path).await;
        if removed.is_err() {
            self.remove_file(&io, &path).await;
        }
        result.and(removed)
    }
}
