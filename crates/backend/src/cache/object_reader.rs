//! An object in a file of the cache, complete or growing, with the other sources of its body for a reader
//! whose disk fails or hangs.
//!
//! Made by [`super::hit`] for each response whose body is not in memory; unused until the disk fails. Never
//! reads files itself.

use std::any::Any;
use std::cell::OnceCell;
use std::future::pending;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use nowait_cache::Store;
use nowait_cache::format::ObjectHead as Stored;
use nowait_http::request::Request;
use nowait_http::response::{BodyError, BodySource, FallbackSource, FileBody, LocalFuture, Owner};

use super::origin::Again;
use super::origin_resume::{OriginResume, is_certain};
use super::streaming_hit::StreamingHit;

/// An object with its disk and its origin.
pub(super) struct ObjectReader {
    store: Arc<Store>,
    stored: Arc<Stored>,
    again: Again,
    /// The stamp of the object in the index; `None`: it is being stored.
    stamp: Option<u64>,
    /// The start and length of its body in the file; `None`: it is still growing.
    body: Option<(u64, u64)>,
    /// The origin's representation can be distinguished from others.
    certain: OnceCell<bool>,
}

impl ObjectReader {
    /// For an object in the cache. `body`: its start in the file, and its length.
    pub(super) fn new(
        store: Arc<Store>,
        stored: Arc<Stored>,
        again: Again,
        stamp: u64,
        body: (u64, u64),
    ) -> Rc<Self> {
        let (stamp, body) = (Some(stamp), Some(body));
        Rc::new(Self { store, stored, again, stamp, body, certain: OnceCell::new() })
    }

    /// For an object that is being stored.
    pub(super) fn growing(store: Arc<Store>, stored: Arc<Stored>, again: Again) -> Rc<Self> {
        let (stamp, body) = (None, None);
        Rc::new(Self { store, stored, again, stamp, body, certain: OnceCell::new() })
    }

    /// The location of the object.
    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The file can't be read.
    pub(super) fn note(&self, error: &BodyError) {
        let (identity, stamp) = (&self.stored.identity, self.stamp);
        match error {
            BodyError::File(error) => self.store.body_failed(identity, stamp, error),
            error => self.store.body_failed(identity, stamp, &io::Error::other(error.to_string())),
        }
    }

    /// Requests the rest from the origin; `None`: there are no ranges of such a response.
    pub(super) fn rest(&self, request: &Request) -> Option<Box<OriginResume>> {
        OriginResume::of(request, self.again, &self.stored)
    }
}

impl FallbackSource for ObjectReader {
    fn body(
        self: Rc<Self>,
        owner: &dyn Owner,
        file: FileBody,
        failed: Option<&BodyError>,
    ) -> Option<Box<dyn BodySource>> {
        if let Some(error) = failed {
            self.note(error);
        }
        let body = self.body?;
        let request = (owner as &dyn Any).downcast_ref()?;
        let rest = self.rest(request)?;
        Some(Box::new(StreamingHit::file(file, body, self, rest, failed.is_some())))
    }

    fn hangs(&self) -> LocalFuture<'static, ()> {
        // Otherwise a late result of the disk is better than none.
        match self.certain.get_or_init(|| is_certain(&self.stored)) {
            true => {
                let store = self.store.clone();
                Box::pin(async move { store.hangs().await })
            }
            false => Box::pin(pending()),
        }
    }

    fn answered(&self) {
        self.store.body_read();
    }
}
