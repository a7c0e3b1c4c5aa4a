//! An object's file: opening it with its head, changing its state, moving and removing it.
//!
//! Every function that may wait for the disk is watched by the store's [`Health`](crate::health).
//! Called by look-ups, fills and the background work. Never touches the index.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use nowait_runtime::fs::{self, CreateOptions, File, Io, Metadata, OpenOptions, PREFETCH_MAX};

use crate::commits::CommitTicket;
use crate::format::{
    self, FIRST_READ_BYTES, HEAD_BYTES_MAX, HeadError, ObjectHead, ObjectIdentity,
};
use crate::health::{ErrorClass, Why};
use crate::hit::{FileState, LastCheck, OpenedObject};
use crate::index::{self, Learn, Learned, Stored};
use crate::key::Key;
use crate::names::{DIR_MODE, FILE_MODE};
use crate::store::{CacheKey, Store, now};

/// Files up to this size are read whole on the loop when they are resident: one call, and copying
/// them takes some microseconds.
const WHOLE_BYTES_MAX: u64 = 32 * 1024;

/// Bytes that an open object's head may keep beside its own.
const SURPLUS_BYTES_MAX: usize = 512;

/// How many times a head is read again when it needs more bytes: once for the fixed part, once for the
/// rest, and once in reserve.
const HEAD_READS_MAX: usize = 3;

/// Bytes copied per trip to the pool.
const COPY_BYTES: usize = 512 * 1024;

thread_local! {
    /// The path of the last look-up, to be reused.
    static PATH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The names by which an object can be purged.
pub(crate) fn names_of(identity: &ObjectIdentity) -> index::PurgeNames<'_> {
    index::PurgeNames {
        main: &identity.main,
        key_text: &identity.key_text,
        tags: &identity.tags,
        created: identity.created,
    }
}

/// The reason why a file has no object.
#[derive(Debug)]
pub(crate) enum ObjectReadError {
    /// No such file.
    Missing,
    /// The file is foreign or damaged, and must go.
    Bad(HeadError),
    /// A valid object of another key text with the same hash.
    Collision,
    /// The disk can't be read.
    Trouble(io::Error),
}

impl From<io::Error> for ObjectReadError {
    fn from(error: io::Error) -> ObjectReadError {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ObjectReadError::Missing,
            _ => ObjectReadError::Trouble(error),
        }
    }
}

impl ObjectReadError {
    /// The reason why the store can't be used for this look-up, if that is the cause.
    pub(crate) fn why(error: &io::Error) -> Why {
        match ErrorClass::of(error) {
            ErrorClass::Pool => Why::Overloaded,
            ErrorClass::Limit => Why::Full,
            _ if error.kind() == io::ErrorKind::TimedOut => Why::Hanging,
            ErrorClass::Disk | ErrorClass::File => Why::Failing,
        }
    }
}

const OPEN: OpenOptions = OpenOptions { symlinks: fs::Symlinks::Follow, prefetch: PREFETCH_MAX };

impl Store {
    /// Opens an object and reads its head if that needs no disk; `None` if it does.
    pub(crate) fn try_open(
        &self,
        io: &Io,
        target: &CacheKey,
    ) -> Option<Result<OpenedObject, ObjectReadError>> {
        let file = PATH.with_borrow_mut(|path| {
            self.names().write_object(target.key, path);
            fs::try_open(io, path, &OPEN)
        })?;
        let file = match file {
            Ok(file) => file,
            Err(error) => return Some(Err(error.into())),
        };
        let mut want = first_read(file.size());
        for _ in 0..HEAD_READS_MAX {
            let mut buffer = Vec::with_capacity(want);
            match file.try_read(io, 0, want, &mut buffer) {
                Ok(None) => return None,
                Err(error) => return Some(Err(error.into())),
                Ok(Some(_)) => {}
            }
            match check(&file, Bytes::from(buffer), target) {
                Err(ObjectReadError::Bad(HeadError::Short { needed }))
                    if needed > want && needed as u64 <= file.size() =>
                {
                    want = needed;
                }
                result => return Some(result),
            }
        }
        Some(Err(ObjectReadError::Bad(HeadError::Damaged("head"))))
    }

    /// Whether the name of an object in memory still leads to its file; `None`: that needs the disk.
    pub(crate) fn is_in_place(
        &self,
        io: &Io,
        target: &CacheKey,
        object: &OpenedObject,
    ) -> Option<bool> {
        let found = PATH.with_borrow_mut(|path| {
            self.names().write_object(target.key, path);
            fs::try_stat(io, path, fs::Symlinks::Follow)
        })?;
        Some(found.is_ok_and(|metadata| FileState::of(&metadata).is(&object.state)))
    }

    /// Opens an object and reads its head, in the pool.
    pub(crate) async fn open(
        &self,
        io: &Io,
        target: &CacheKey,
    ) -> Result<OpenedObject, ObjectReadError> {
        let path = self.names().object(target.key);
        let file = self.watch(fs::open(io, &path, &OPEN)).await?;
        let mut want = match file.head().len() {
            0 => first_read(file.size()),
            read => read,
        };
        for _ in 0..HEAD_READS_MAX {
            let bytes = self.watch(file.read_at(io, 0, want)).await?;
            match check(&file, bytes, target) {
                Err(ObjectReadError::Bad(HeadError::Short { needed }))
                    if needed > want && needed as u64 <= file.size() =>
                {
                    want = needed;
                }
                result => return result,
            }
        }
        Err(ObjectReadError::Bad(HeadError::Damaged("head")))
    }

    /// Reads the head of any object that has the key.
    pub(crate) async fn open_any(&self, io: &Io, key: Key) -> Result<ObjectHead, ObjectReadError> {
        let path = self.names().object(key);
        let options = OpenOptions { prefetch: FIRST_READ_BYTES, ..OPEN };
        let file = self.watch(fs::open(io, &path, &options)).await?;
        let mut want = FIRST_READ_BYTES;
        for _ in 0..HEAD_READS_MAX {
            let bytes = self.watch(file.read_at(io, 0, want)).await?;
            match format::decode(&bytes) {
                Err(HeadError::Short { needed }) if needed > want => want = needed,
                result => return result.map_err(ObjectReadError::Bad),
            }
        }
        Err(ObjectReadError::Bad(HeadError::Damaged("head")))
    }

    /// Updates the index with facts from a file's head: of an object, or of tags, that it did not
    /// know. `None`: the object was purged or is being replaced, and must not be used.
    pub(crate) fn learn(
        self: &Arc<Self>,
        target: &CacheKey,
        object: &OpenedObject,
    ) -> Option<Stored> {
        let head = &object.head;
        let learn = Learn {
            key: target.key,
            names: names_of(&head.identity),
            length: u64::from(head.layout.body_offset) + object.body_length,
            blocks: object.state.blocks,
            head_bytes: head.layout.body_offset,
            valid_until: head.state.valid_until,
        };
        match self.index().learn(&learn, now()) {
            Learned::Stored(stored) => Some(stored),
            Learned::Unknown(stored) => Some(stored),
            Learned::Purged(victim) => {
                if let Some(victim) = victim {
                    let store = self.clone();
                    drop(nowait_runtime::spawn(async move {
                        store.remove_victim(&store.own_io(), victim).await;
                    }));
                }
                None
            }
        }
    }

    /// Deletes a file that is not an object, unless it was replaced meanwhile. The index does not have it.
    pub(crate) fn delete_damaged(self: &Arc<Self>, target: &CacheKey, error: &HeadError) {
        let path = self.names().object(target.key);
        self.note_damaged(&path, error);
        let turn = RemovalTurn::new(self, target.key);
        drop(nowait_runtime::spawn(async move {
            let (store, place) = (&turn.store, turn.place());
            place.turn().await;
            if store.index().peek(&turn.key).is_none() {
                store.remove_file(&store.own_io(), &path).await;
            }
        }));
    }

    /// Removes the object of this stamp, whose file can't be read: the next request fetches it
    /// again. Keeps it when the whole disk is at fault: the store is out of use, or the disk rejects
    /// writes too.
    pub(crate) fn delete_unreadable(
        self: &Arc<Self>,
        target: &CacheKey,
        stamp: u64,
        part: Unreadable,
    ) {
        if !self.has_stamp(target.key, stamp) || self.health.why_not_store().is_some() {
            return;
        }
        let (turn, target) = (RemovalTurn::new(self, target.key), target.clone());
        drop(nowait_runtime::spawn(async move {
            let (store, place, io) = (&turn.store, turn.place(), turn.store.own_io());
            // These operations are not watched: their success would not prove that reading works.
            if store.probe().await.is_err()
                || (part == Unreadable::Head && store.is_readable(&io, &target).await)
            {
                return;
            }
            place.turn().await;
            if !store.has_stamp(target.key, stamp) || store.health.why().is_some() {
                return;
            }
            let path = store.names().object(target.key);
            match fs::unlink(&io, &path).await {
                Ok(()) => store.note_unreadable(&path),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return store.note_error("unlink", &path, &error),
            }
            store.index().forget(&target.key, stamp);
        }));
    }

    /// The body of an object can't be read. That may be a single bad block: the stored object
    /// of this [stamp](crate::Hit::stamp) is removed, so that the next request stores it in
    /// another place.
    pub fn body_failed(
        self: &Arc<Self>,
        identity: &ObjectIdentity,
        stamp: Option<u64>,
        error: &io::Error,
    ) {
        self.note_error("read", &self.names().object(identity.key), error);
        if let Some(stamp) = stamp {
            let ObjectIdentity { key, main, key_text, .. } = identity;
            let target = CacheKey { key: *key, main: *main, text: key_text.clone() };
            self.delete_unreadable(&target, stamp, Unreadable::Body);
        }
    }

    /// Whether the start of an object's file can be read now.
    async fn is_readable(&self, io: &Io, target: &CacheKey) -> bool {
        let path = self.names().object(target.key);
        let read =
            async { fs::open(io, &path, &OPEN).await?.read_at(io, 0, FIRST_READ_BYTES).await };
        read.await.is_ok()
    }

    pub(crate) fn has_stamp(&self, key: Key, stamp: u64) -> bool {
        self.index().peek(&key).is_some_and(|stored| stored.stamp == stamp)
    }

    /// Copies a finished temporary file to another file system and gives it its name.
    pub(crate) async fn copy_into_place(
        &self,
        io: &Io,
        temp: &[u8],
        path: &[u8],
        beside: &[u8],
    ) -> io::Result<Metadata> {
        let result = self.copy(io, temp, path, beside).await;
        if result.is_err() {
            self.remove_file(io, beside).await;
        }
        result
    }

    async fn copy(&self, io: &Io, temp: &[u8], path: &[u8], beside: &[u8]) -> io::Result<Metadata> {
        let options = OpenOptions { prefetch: 0, ..OPEN };
        let from = self.watch(fs::open(io, temp, &options)).await?;
        let to = self.create_temp(io, beside).await?;
        let mut offset = 0;
        while offset < from.size() {
            let bytes = self.watch(from.read_at(io, offset, COPY_BYTES)).await?;
            if bytes.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let next = offset + bytes.len() as u64;
            self.watch_write(to.write_at(io, offset, vec![bytes])).await?;
            offset = next;
        }
        let metadata =
            self.watch_write(to.publish(io, Bytes::new(), beside, path, DIR_MODE)).await?;
        self.remove_file(io, temp).await;
        Ok(metadata)
    }

    /// Creates a new temporary file and any missing directories.
    pub(crate) async fn create_temp(&self, io: &Io, path: &[u8]) -> io::Result<File> {
        let options = CreateOptions { mode: FILE_MODE, ..CreateOptions::default() };
        match self.watch_create(fs::create(io, path, &options)).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.watch_create(fs::mkdir_parents(io, path, DIR_MODE)).await?;
                self.watch_create(fs::create(io, path, &options)).await
            }
            result => result,
        }
    }
}

/// The part of a file that can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It can't be opened, or its head can't be read.
    Head,
    Body,
}

/// The turn of a removal among the objects of its key that get their name: an object completed
/// later gets its name after the removal. Given up when dropped, at any stage of the removal.
struct RemovalTurn {
    store: Arc<Store>,
    key: Key,
    number: u64,
}

impl RemovalTurn {
    fn new(store: &Arc<Store>, key: Key) -> RemovalTurn {
        RemovalTurn { store: store.clone(), key, number: store.commits.enter(key) }
    }

    fn place(&self) -> CommitTicket<'_> {
        self.store.commits.place(self.key, self.number)
    }
}

impl Drop for RemovalTurn {
    fn drop(&mut self) {
        drop(self.place());
    }
}

/// The bytes of a file that are read for its head.
fn first_read(size: u64) -> usize {
    match size {
        small if small <= WHOLE_BYTES_MAX => small as usize,
        _ => FIRST_READ_BYTES,
    }
}

/// Reads the first bytes of a file.
fn check(file: &File, bytes: Bytes, target: &CacheKey) -> Result<OpenedObject, ObjectReadError> {
    if !file.metadata().is_file() {
        return Err(ObjectReadError::Bad(HeadError::Foreign));
    }
    let mut head = format::decode(&bytes).map_err(ObjectReadError::Bad)?;
    let body_length = head.complete(file.size()).map_err(ObjectReadError::Bad)?;
    if head.identity.key != target.key {
        return Err(ObjectReadError::Bad(HeadError::Damaged("key")));
    }
    if !head.is_of(&target.key, &target.text) {
        return Err(ObjectReadError::Collision);
    }
    let begin = head.layout.body_offset as usize;
    let body = (bytes.len() as u64 == file.size()).then(|| bytes.slice(begin..));
    // The head must not keep a buffer with the beginning of the body.
    if body.is_none() && bytes.len() > begin + SURPLUS_BYTES_MAX {
        head = format::decode(&Bytes::copy_from_slice(&bytes[..begin]))
            .map_err(ObjectReadError::Bad)?;
    }
    Ok(OpenedObject {
        head: Arc::new(head),
        body_length,
        file: Some(file.without_head()),
        body,
        state: FileState::of(file.metadata()),
        check: LastCheck::new(now()),
    })
}

const _: () = assert!(FIRST_READ_BYTES <= HEAD_BYTES_MAX);
