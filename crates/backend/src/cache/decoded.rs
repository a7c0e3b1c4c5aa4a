//! The decoded heads of a worker's most requested objects, with the responses made from them, which
//! each hit would otherwise make again from the same bytes. Used by [`super::find`] and
//! [`super::hit`].
//!
//! A copy that belongs to one worker. An entry is found by the head that the store returns for an
//! object, which differs for another object or another state of it. Bounded in entries and in
//! bytes; an entry holds no memory of the store.

use std::cell::RefCell;
use std::rc::{Rc, Weak as LocalWeak};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use nowait_cache::format::ObjectHead as Stored;
use nowait_caching::meta::Meta;
use nowait_http::conf::LocationId;
use nowait_http::generation::Current;
use nowait_http::request::Request;
use nowait_http::response::Head;

/// The number of heads that one worker keeps.
const HEADS_MAX: usize = 256;

/// A larger head is decoded each time.
const HEAD_BYTES_MAX: usize = 4096;

/// A stored response without its body.
#[derive(Debug)]
pub(super) struct Decoded {
    /// The input of the rules.
    pub(super) meta: Meta,
    /// Our response, where it is the same for all requests of a location.
    response: RefCell<Option<Answer>>,
    /// Other requests will find it here.
    kept: bool,
}

/// A response as made for a location.
#[derive(Debug)]
struct Answer {
    current: LocalWeak<Current>,
    location: LocationId,
    head: Head,
}

struct Entry {
    stored: Weak<Stored>,
    decoded: Rc<Decoded>,
}

thread_local! {
    /// By a part of the key.
    static ENTRIES: RefCell<[Option<Entry>; HEADS_MAX]> =
        const { RefCell::new([const { None }; HEADS_MAX]) };
}

impl Decoded {
    /// Decodes a head, unless it is decoded already; `None` if the bytes are malformed.
    pub(super) fn of(stored: &Arc<Stored>) -> Option<Rc<Self>> {
        let at = usize::from(stored.identity.key.0[0]);
        let found = ENTRIES.with_borrow(|entries| {
            let entry = entries[at].as_ref()?;
            let is_it = std::ptr::eq(entry.stored.as_ptr(), Arc::as_ptr(stored));
            is_it.then(|| entry.decoded.clone())
        });
        if found.is_some() {
            return found;
        }
        let state = &stored.state;
        let kept = state.meta.len() + state.header.len() <= HEAD_BYTES_MAX;
        // The bytes are a part of the buffer that holds the whole object.
        let bytes = if kept { Bytes::copy_from_slice(&state.meta) } else { state.meta.clone() };
        let meta = Meta::decode(bytes)?;
        let decoded = Rc::new(Self { meta, response: RefCell::new(None), kept });
        if kept {
            let entry = Entry { stored: Arc::downgrade(stored), decoded: decoded.clone() };
            ENTRIES.with_borrow_mut(|entries| entries[at].replace(entry));
        }
        Some(decoded)
    }

    /// Our response, if it was made for this location before.
    pub(super) fn response(&self, request: &Request) -> Option<Box<Head>> {
        let answer = self.response.borrow();
        let answer = answer.as_ref()?;
        let is_it = answer.location == request.location_id()
            && std::ptr::eq(answer.current.as_ptr(), Rc::as_ptr(request.current()));
        is_it.then(|| Box::new(answer.head.clone()))
    }

    /// Keeps a response that is the same for all requests of the location.
    pub(super) fn keep(&self, request: &Request, head: &Head) {
        if self.kept {
            let current = Rc::downgrade(request.current());
            let answer = Answer { current, location: request.location_id(), head: head.clone() };
            self.response.replace(Some(answer));
        }
    }

    /// The bytes of the fields, without those of the object.
    pub(super) fn fields(&self, stored: &Stored) -> Bytes {
        match self.kept {
            true => Bytes::copy_from_slice(&stored.state.header),
            false => stored.state.header.clone(),
        }
    }
}
