//! State shared by a request and its subrequests, and state of subrequests.
//!
//! Kept in every request; [`subrequest`](crate::subrequest) makes and runs subrequests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use nowait_variables::Slots;

use crate::slots::State;

/// State shared by a request and its subrequests.
#[derive(Default)]
pub struct Shared {
    /// Values of variables that the configuration defines.
    pub(crate) slots: Slots,
    /// `$request_id`, once used.
    pub(crate) id: Cell<Option<[u8; 16]>>,
    /// Subrequests started until now.
    pub(crate) made: Cell<u32>,
    /// State of modules for a request and its subrequests together.
    pub state: State,
    /// Values that `set` assigned to variables of modules.
    changed: RefCell<Vec<(&'static str, Bytes)>>,
    /// Charset of the main response; the other responses are converted to it.
    pub charset: RefCell<Option<Bytes>>,
}

impl Shared {
    /// A subrequest has ended and no longer counts: for modules that start an unlimited number of
    /// them, one after the other.
    pub fn ended(&self) {
        self.made.set(self.made.get().saturating_sub(1));
    }

    /// The value that `set` assigned to a variable of a module.
    pub fn changed(&self, name: &'static str) -> Option<Bytes> {
        let changed = self.changed.borrow();
        changed.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }

    /// Assigns a value to a variable of a module.
    pub fn change(&self, name: &'static str, value: Bytes) {
        let mut changed = self.changed.borrow_mut();
        match changed.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => changed.push((name, value)),
        }
    }

    /// Prepares the shared state for the next request of a connection; if a subrequest still uses
    /// it, it is replaced.
    pub(crate) fn renew(this: &mut Rc<Self>) {
        match Rc::get_mut(this) {
            Some(shared) => {
                shared.slots.clear();
                shared.id.set(None);
                shared.made.set(0);
                shared.state.clear();
                shared.changed.get_mut().clear();
                shared.charset.get_mut().take();
            }
            None => *this = Rc::default(),
        }
    }
}

/// State that only subrequests have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nested {
    /// 1 for a subrequest of the main request, 2 for one of that, and so on.
    pub depth: u8,
    /// Whether the client does not wait for it.
    pub background: bool,
    /// Whether the main request was changed to a GET for an error page, which `$request_method`
    /// shows.
    pub(crate) switched: bool,
    /// Whether a status without content stays as it is, without a page.
    pub bare: bool,
    /// Whether the range filter applies. nginx: `r->subrequest_ranges`.
    pub ranges: bool,
    /// The purpose.
    pub(crate) aim: Aim,
}

/// The purpose of a subrequest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The response.
    #[default]
    Response,
    /// To check whether a client's request would be granted access. Unlike other subrequests, it has an
    /// access phase, and ends before the content.
    Access,
    /// Access has been granted.
    Granted,
}

/// The phase at which a subrequest begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// At the server's rewrite code: its URI determines its location.
    Server,
    /// At the content of its parent's location; it also gets the parent's captures. nginx:
    /// `NGX_HTTP_SUBREQUEST_CLONE`.
    Content,
    /// At the code of a location that the caller chooses.
    Location,
}

/// The reason why a subrequest is refused, which is already logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubrequestError {
    /// Nested deeper than [`NESTED_MAX`](crate::subrequest::NESTED_MAX).
    TooDeep,
    /// More than [`TOTAL_MAX`](crate::subrequest::TOTAL_MAX) of one request, or [`BACKGROUND_MAX`](crate::subrequest::BACKGROUND_MAX) of one worker.
    TooMany,
    /// The subrequest closed the connection instead of responding (`return 444`).
    Closed,
}

impl std::fmt::Display for SubrequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooDeep => "subrequests are nested too deeply",
            Self::TooMany => "too many subrequests",
            Self::Closed => "a subrequest closed the connection",
        })
    }
}

impl std::error::Error for SubrequestError {}
