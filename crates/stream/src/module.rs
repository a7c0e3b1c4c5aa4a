//! The parts of a module: directives, a handler of a phase, a content, variables.
//!
//! A module knows the core and no other module; only [`modules`](crate::modules) knows them all.
//! A server keeps the handlers that its settings call for, in the order of their phases, so nothing
//! is looked up while a session runs.

use std::pin::Pin;

use nowait_conf::{Cx, Row, Scope};

use crate::session::Session;
use crate::status::Status;
use crate::variables::Builtin;

/// A module.
pub struct Module {
    /// The tables of its directives.
    pub rows: &'static [&'static [Row]],
    /// The phase before the content that it takes part in, and how its handler is made for a server.
    pub handler: Option<(Phase, MakeHandler)>,
    /// The variables.
    pub variables: &'static [Builtin],
}

/// The phases before the content, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The client's address.
    PostAccept,
    /// Variables that are set, then limits.
    PreAccess,
    /// Access rules.
    Access,
    /// The TLS handshake.
    Ssl,
    /// The client's first data.
    PreRead,
}

/// Makes the handler for the server that a chain of blocks describes; `None` if the settings call
/// for none.
pub type MakeHandler = fn(&mut Cx<'_>, &[&Scope]) -> Option<Box<dyn Handler>>;

/// A result, available at once or later.
pub enum Step<'s, T> {
    /// The result.
    Done(T),
    /// The rest of the work.
    Wait(Pin<Box<dyn Future<Output = T> + 's>>),
}

impl<T> Step<'_, T> {
    /// Waits if necessary.
    pub async fn finish(self) -> T {
        match self {
            Step::Done(result) => result,
            Step::Wait(rest) => rest.await,
        }
    }
}

/// A handler of a phase before the content.
pub trait Handler: Send + Sync {
    /// Handles a session; an error is the status of a session that ends here.
    fn handle<'s>(&'s self, session: &'s Session) -> Step<'s, Result<(), Status>>;
}

/// The handling of a server's sessions.
pub trait Content: Send + Sync {
    /// Serves a session until it ends.
    fn serve<'s>(&'s self, session: &'s Session) -> Step<'s, Status>;

    /// UDP: after this many datagrams of a client, the next one begins another session. Zero:
    /// never.
    fn datagrams_max(&self) -> u32 {
        1
    }
}

/// Makes the content for the server that a chain of blocks describes.
type MakeContent = Box<dyn FnOnce(&mut Cx<'_>, &[&Scope]) -> Box<dyn Content>>;

/// The content of a server while its block is read. The last directive wins.
#[derive(Default)]
pub struct ContentLayer(Option<MakeContent>);

impl ContentLayer {
    /// Sets the content. It is made when all settings of the block are known.
    pub fn set<C: Content + 'static>(
        &mut self,
        make: impl FnOnce(&mut Cx<'_>, &[&Scope]) -> C + 'static,
    ) {
        self.0 = Some(Box::new(|cx, chain| Box::new(make(cx, chain))));
    }

    /// The content; `None` if no directive has set any.
    pub fn make(self, cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Box<dyn Content>> {
        self.0.map(|make| make(cx, chain))
    }
}
