//! Where a request goes: its URI, the location, and its way through the phases.
//!
//! Changed by the phases, by `rewrite` and `try_files`, and by what makes requests.

use std::cell::RefCell;

use nowait_variables::Captures;

use super::{Request, Uri};
use crate::conf::{Location, LocationId, Server, ServerId};
use crate::module::{Phase, Position};
use crate::nested::Entry;
use crate::outcome::StatusResponse;
use crate::progress::{Realpath, RewriteState};

impl Request {
    /// Settings of the virtual server.
    #[inline]
    pub fn server(&self) -> &Server {
        self.current().conf.server(self.routing.server)
    }

    /// The virtual server.
    #[inline]
    pub fn server_id(&self) -> ServerId {
        self.routing.server
    }

    /// Settings of the location.
    #[inline]
    pub fn location(&self) -> &Location {
        self.current().conf.location(self.routing.location)
    }

    /// The location; before one is found, the server's own settings.
    #[inline]
    pub fn location_id(&self) -> LocationId {
        self.routing.location
    }

    /// The current target: internal redirects change it.
    #[inline]
    pub fn uri(&self) -> &Uri {
        &self.routing.uri
    }

    /// The current URI comes from the server itself: `internal` locations are allowed.
    #[inline]
    pub fn is_internal(&self) -> bool {
        self.routing.internal
    }

    /// The changes of its URI.
    #[inline]
    pub fn rewriting(&self) -> &RewriteState {
        &self.routing.rewriting
    }

    /// Captures of the last regular expression that matched.
    #[inline]
    pub(crate) fn last_captures(&self) -> &RefCell<Captures> {
        &self.routing.captures
    }

    /// Forgets the captures: another regular expression has not matched. For `rewrite`.
    pub fn clear_captures(&self) {
        self.routing.captures.borrow_mut().clear();
    }

    /// Chooses another virtual server and its top-level settings. For the
    /// [interpretation](crate::interpret) of heads.
    pub(crate) fn set_server(&mut self, server: ServerId) {
        self.routing.server = server;
        self.leave_location();
    }

    /// Chooses the location. For the phases, the blocks of `if`, and requests that no client has
    /// sent.
    #[inline]
    pub fn enter_location(&mut self, location: LocationId) {
        self.routing.location = location;
    }

    /// Leaves the location: another one is going to be found.
    pub(crate) fn leave_location(&mut self) {
        self.routing.location = self.server().root;
    }

    /// Whether the content of its location is being produced, or was.
    pub fn is_at_content(&self) -> bool {
        self.position.phase == Phase::Content
    }

    /// The content of its location is going to be produced. For probes, which pass no phases.
    pub fn enter_content(&mut self) {
        self.position.phase = Phase::Content;
    }

    /// The position in the phases.
    #[inline]
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    #[inline]
    pub(crate) fn set_position(&mut self, position: Position) {
        self.position = position;
    }

    /// A handler gets its turn: the phases continue with the next one.
    #[inline]
    pub(crate) fn pass_handler(&mut self) {
        self.position.handler += 1;
    }

    /// The state of a subrequest.
    #[inline]
    pub(crate) fn entry(&self) -> Entry {
        self.routing.entry
    }

    pub(crate) fn set_entry(&mut self, entry: Entry) {
        self.routing.entry = entry;
    }

    /// With `satisfy any`: the refusal to respond with unless a handler grants access.
    #[inline]
    pub(crate) fn refusal_mut(&mut self) -> &mut Option<Box<StatusResponse>> {
        &mut self.routing.refusal
    }

    /// `$realpath_root`.
    #[inline]
    pub(crate) fn realpath(&self) -> &Realpath {
        &self.routing.realpath
    }

    pub(crate) fn realpath_mut(&mut self) -> &mut Realpath {
        &mut self.routing.realpath
    }

    /// Takes the target over from the head, with or without merged slashes. False: it is malformed.
    pub(crate) fn adopt_target(&mut self, merge_slashes: bool) -> bool {
        let Ok(normalized) = self.incoming.head.normalize(merge_slashes) else { return false };
        let routing = &mut self.routing;
        routing.uri.path.clear();
        routing.uri.path.extend_from_slice(&normalized.path);
        routing.uri.args = normalized.args.map(<[u8]>::to_vec);
        // "http://host?args" has no path that could be passed on unchanged.
        routing.rewriting.unparsed = self.incoming.head.uri().first() != Some(&b'?');
        true
    }

    /// Whether the text of the request line may stand for the URI.
    pub(crate) fn set_unparsed(&mut self, unparsed: bool) {
        self.routing.rewriting.unparsed = unparsed;
    }

    /// Gives a request that no client has sent its target.
    pub(crate) fn set_uri(&mut self, uri: Uri) {
        self.routing.uri = uri;
    }

    /// Changes the path, and returns the one before. For `try_files`, whose files stand for other
    /// URIs, and for handlers that ask about another URI for a moment.
    pub fn replace_path(&mut self, path: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.routing.uri.path, path)
    }

    /// The path is that of a file below the value of an `alias` with captures. For `try_files`.
    pub fn set_path_of_file(&mut self, path: Vec<u8>) {
        self.routing.uri.path = path;
        self.routing.rewriting.is_file = true;
    }

    /// Changes the query string, for which the text of the request line can't stand any more. For
    /// `rewrite`.
    pub fn set_args(&mut self, args: Vec<u8>) {
        self.routing.uri.args = Some(args);
        self.routing.rewriting.unparsed = false;
    }

    /// Changes the path, likewise. For `rewrite`.
    pub fn rewrite_path(&mut self, path: Vec<u8>) {
        self.routing.uri.path = path;
        self.routing.rewriting.unparsed = false;
    }

    /// Whether `internal` locations are allowed. For `rewrite`, whose URIs are the server's own.
    pub fn set_internal(&mut self, internal: bool) {
        self.routing.internal = internal;
    }

    /// A location has to be found for the changed URI. For `rewrite`.
    pub fn search_location(&mut self) {
        self.routing.rewriting.changed = true;
    }

    /// The request stays in its location, although its URI was changed. For `rewrite`.
    pub fn stay_in_location(&mut self) {
        self.routing.rewriting.changed = false;
        self.routing.rewriting.rewritten = true;
    }

    /// The location is found, or being looked for.
    #[inline]
    pub(crate) fn end_search(&mut self) {
        self.routing.rewriting.changed = false;
    }

    /// Counts a change of its URI. False: there was one too many.
    pub(crate) fn count_change(&mut self) -> bool {
        let left = &mut self.routing.rewriting.changes_left;
        *left = left.saturating_sub(1);
        *left != 0
    }

    /// Goes to another URI, whose location has to be found.
    pub(crate) fn redirect_to(&mut self, uri: Uri) {
        let routing = &mut self.routing;
        routing.uri = uri;
        routing.rewriting.is_file = false;
        routing.rewriting.rewritten = false;
        routing.rewriting.unparsed = false;
        routing.internal = true;
        self.leave_location();
    }

    /// Goes to a named location with the same URI.
    pub(crate) fn redirect_to_named(&mut self, location: LocationId) {
        self.routing.internal = true;
        self.routing.rewriting.changed = false;
        self.routing.location = location;
    }

    /// Moves the request to the position of another one.
    pub(crate) fn copy_place(&mut self, other: &Request) {
        let (routing, other) = (&mut self.routing, &other.routing);
        routing.location = other.location;
        routing.rewriting.rewritten = other.rewriting.rewritten;
        routing.rewriting.is_file = other.rewriting.is_file;
        routing.captures = RefCell::new(other.captures.borrow().clone());
        routing.realpath.root = other.realpath.root.clone();
        routing.realpath.of = other.realpath.of;
    }
}
