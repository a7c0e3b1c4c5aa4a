//! What a module adds to the core: directives, handlers of phases, the content of locations, filters,
//! variables.
//!
//! A module knows the core and no other module; only the list in `nowait-modules` knows them all. A
//! location keeps the handlers and filters that its settings call for, in their order. They own their
//! settings, so nothing is looked up while a request runs.

use std::fmt;
use std::ops::{Deref, Range};
use std::rc::Rc;

use nowait_conf::{Cx, Diagnostic, Node, Row, Scope, Span};
use nowait_runtime::JoinHandle;

use crate::conf::{HttpConf, LocationId};
use crate::generation::Current;
use crate::outcome::{Outcome, Special};
use crate::request::Request;
use crate::response::{Body, Head, LocalFuture, Response};
use crate::services::Services;
use crate::slots::Settings;
use crate::trace::Trace;
use crate::variables::{Builtin, Changeable, Family};

/// A module.
pub struct Module {
    /// The tables of its directives.
    pub rows: &'static [&'static [Row]],
    /// Adds what takes part in the requests of a location.
    pub build: Option<Build>,
    /// Its variables.
    pub variables: &'static [Builtin],
    /// Its families of variables.
    pub families: &'static [Family],
    /// Those of its variables that `set` may change.
    pub changeable: &'static [Changeable],
    /// Whether the configuration may define one of its variables itself.
    pub replaceable: fn(&str) -> bool,
    /// Checks and adds what only the whole configuration shows; called once, when all locations were
    /// built.
    pub finish: Option<fn(&mut Cx<'_>, &mut HttpConf)>,
    /// Takes over what outlives a configuration from the previous one.
    pub adopt: Option<fn(&mut HttpConf, previous: &HttpConf)>,
    /// Starts its tasks for a configuration on one of the workers.
    pub start: Option<Start>,
}

/// Reads the settings of the location that a chain of blocks describes, and adds the handlers and
/// filters that they call for.
pub type Build = fn(&mut Cx<'_>, &[&Scope], &mut Parts);

/// Starts tasks for the newest configuration on one of the workers; dropping the handles ends them.
pub type Start = fn(&Rc<Services>, &Rc<Current>) -> Vec<JoinHandle<()>>;

impl Module {
    /// A module that adds nothing: the others are described by what they add.
    pub const EMPTY: Module = Module {
        rows: &[],
        build: None,
        variables: &[],
        families: &[],
        changeable: &[],
        replaceable: |_| false,
        finish: None,
        adopt: None,
        start: None,
    };
}

/// Modules. Handlers of one phase have their turns, and filters of one place apply, in this order.
#[derive(Clone, Copy, Default)]
pub struct ModuleList(pub &'static [&'static Module]);

impl Deref for ModuleList {
    type Target = [&'static Module];

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl ModuleList {
    /// The tables of all modules' directives.
    pub fn rows(self) -> impl Iterator<Item = &'static [Row]> {
        self.0.iter().flat_map(|module| module.rows).copied()
    }

    /// Adds what takes part in the requests of the location that a chain of blocks describes.
    pub fn build(self, cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) {
        self.iter().filter_map(|module| module.build).for_each(|build| build(cx, chain, parts));
    }

    /// Lets the modules check and add what only the whole configuration shows.
    pub fn finish(self, cx: &mut Cx<'_>, conf: &mut HttpConf) {
        self.iter().filter_map(|module| module.finish).for_each(|finish| finish(cx, conf));
    }
}

/// The phases in which handlers take part, in order. Between them the core finds the location.
///
/// nginx: `ngx_http_phases`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The head was read; with the settings of the server. Not for subrequests and redirects.
    #[default]
    PostRead,
    /// The rewriting of the server.
    ServerRewrite,
    /// The rewriting of the location.
    Rewrite,
    /// The location is final: limits.
    Preaccess,
    /// Who may use it. Not for subrequests.
    Access,
    /// What precedes the content.
    Precontent,
    /// The content, unless a directive of the location names its handler.
    Content,
}

/// Number of phases.
const PHASES: usize = Phase::Content as usize + 1;

/// Position of a request in the phases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    pub(crate) phase: Phase,
    /// Number of the phase's handler that has the next turn.
    pub(crate) handler: usize,
    /// The location whose handlers have their turns; with `if`, the request's location may be
    /// another one meanwhile.
    pub(crate) location: LocationId,
}

/// The result of a handler. It gives the request back, so that the next one can have it.
pub enum Step<'r> {
    /// The handler has nothing against the request: the next one has its turn.
    Next(&'r mut Request),
    /// Only in [`Phase::Access`]: access is granted, and with `satisfy any` that is sufficient.
    Granted(&'r mut Request),
    /// The decision about the request.
    Done(&'r mut Request, Outcome),
    /// The rest of the handler's work, which may have to wait.
    Wait(LocalFuture<'r, Step<'r>>),
}

impl<'r> Step<'r> {
    /// The rest of the work.
    pub fn wait(rest: impl Future<Output = Step<'r>> + 'r) -> Self {
        Self::Wait(Box::pin(rest))
    }

    /// The decision, or the next handler's turn if there is none.
    pub fn of(request: &'r mut Request, outcome: Option<Outcome>) -> Self {
        match outcome {
            Some(outcome) => Self::Done(request, outcome),
            None => Self::Next(request),
        }
    }
}

/// Takes part in a phase. It begins at once and makes a future only if it must wait.
pub trait Handler: Send + Sync {
    /// Handles a request.
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r>;

    /// Tells `nowait explain` what [`handle`](Self::handle) does with a request. Nobody else may notice:
    /// it sends nothing, changes no file, and counts in no zone.
    fn explain<'a>(
        &'a self,
        _request: &'a mut Request,
        _trace: &'a mut Trace,
    ) -> LocalFuture<'a, Explained> {
        Box::pin(async { Explained::Unknown })
    }
}

impl Explained {
    /// [`Explained::Run`], for [`Handler::explain`].
    pub fn run() -> LocalFuture<'static, Explained> {
        Box::pin(async { Explained::Run })
    }
}

/// How the explanation of a request goes on behind a handler.
pub enum Explained {
    /// By [`Handler::handle`] itself, which does nothing that others could notice.
    Run,
    /// With the next handler.
    Next,
    /// Access is granted: see [`Step::Granted`].
    Granted,
    /// With this decision.
    Done(Outcome),
    /// The response comes from elsewhere: from an upstream server.
    Elsewhere,
    /// It is not known what the handler would do.
    Unknown,
}

/// Changes responses. It sees the head and the body as a whole and may wrap the body; it never sends
/// anything.
pub trait Filter: Send + Sync {
    /// Changes a response.
    ///
    /// # Errors
    /// The status that replaces the response.
    fn apply(&self, request: &mut Request, response: &mut Response) -> Result<(), Box<Special>>;

    /// Whether [`replace`](Self::replace) has to make another response of this one, before the next
    /// filters see it. Filters at [`Place::Replacement`] are asked.
    fn replaces(&self, _request: &mut Request, _response: &Response) -> bool {
        false
    }

    /// Makes another response, and may wait for that.
    ///
    /// # Errors
    /// The status that replaces the response.
    fn replace<'a>(
        &'a self,
        _request: &'a mut Request,
        response: Response,
    ) -> LocalFuture<'a, Result<Response, Box<Special>>> {
        Box::pin(async { Ok(response) })
    }

    /// Tells `nowait explain` what this filter has done with a response; `None`: what it would do with the
    /// response of an upstream server, which is not known. Nobody else may notice.
    fn explain<'a>(
        &'a self,
        _request: &'a mut Request,
        _head: Option<&'a Head>,
        _trace: &'a mut Trace,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Adds trailers after the end of the body, if [`expects_trailers`] or [`trailers_follow`] is
    /// set.
    ///
    /// [`expects_trailers`]: crate::response::Head::expects_trailers
    /// [`trailers_follow`]: crate::response::Head::trailers_follow
    fn trailers(&self, _request: &mut Request) {}
}

impl<F> Filter for F
where
    F: Fn(&mut Request, &mut Response) -> Result<(), Box<Special>> + Send + Sync,
{
    fn apply(&self, request: &mut Request, response: &mut Response) -> Result<(), Box<Special>> {
        self(request, response)
    }
}

/// Where a filter stands, in the order of application. Filters of one place apply in the order of
/// the list in `nowait-modules`.
///
/// The head is finished before the body is wrapped, because what is wrapped later must be known
/// earlier: a range is cut only from a body whose length nobody changes. nginx: header filters and
/// body filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Whether this is the wanted part of a whole.
    Part,
    /// Conditions of the request.
    Conditions,
    /// Fields that are added to the head.
    Fields,
    /// Codings that the client does not accept are undone.
    Decoding,
    /// The whole content becomes another one, which is complete before the response goes on.
    Replacement,
    /// What will change the content.
    Content,
    /// The coding of the content.
    Coding,
    /// Ranges are cut.
    Ranges,
    /// The body: conversion of its characters.
    Conversion,
    /// The body: commands in it are replaced by other content.
    Inclusion,
    /// The body: content around it.
    Surroundings,
    /// The body is encoded.
    Encoding,
}

/// What takes part in the requests of a location, while it is built.
#[derive(Default)]
pub struct Parts {
    handlers: Vec<(Phase, Box<dyn Handler>)>,
    filters: Vec<(Place, Box<dyn Filter>)>,
    /// What modules keep for the location besides.
    pub settings: Settings,
    /// The location rarely answers a request: it is a server that has locations.
    pub rarely_answers: bool,
    /// Conditions and `no-transform` follow the RFCs where nginx intentionally does not.
    pub follows_rfcs: bool,
    /// CONNECT has a meaning here: `tunnel_pass`.
    pub takes_connect: bool,
    /// Number of the first of the locations inside.
    first: u32,
    /// Their settings.
    inside: Vec<Rc<Scope>>,
}

impl Parts {
    /// Nothing yet. `first` is the number that a location inside would have.
    pub fn new(rarely_answers: bool, first: LocationId) -> Self {
        Self { rarely_answers, first: first.0, ..Self::default() }
    }

    /// Makes a location of a block without a URI of its own, such as `if`, in this one: it inherits
    /// the settings that it doesn't state, and the handler of the content.
    pub fn inside(&mut self, scope: Rc<Scope>) -> LocationId {
        let number = u32::try_from(self.inside.len()).unwrap_or(u32::MAX);
        self.inside.push(scope);
        LocationId(self.first.saturating_add(number))
    }

    /// The settings of the locations inside, in the order of their numbers.
    pub fn take_inside(&mut self) -> Vec<Rc<Scope>> {
        std::mem::take(&mut self.inside)
    }

    /// Adds a handler of a phase. Handlers of one phase have their turns in the order of
    /// the list in `nowait-modules`.
    pub fn handler(&mut self, phase: Phase, handler: impl Handler + 'static) {
        self.handlers.push((phase, Box::new(handler)));
    }

    /// Adds a filter.
    pub fn filter(&mut self, place: Place, filter: impl Filter + 'static) {
        self.filters.push((place, Box::new(filter)));
    }

    /// The handlers and filters in their order. `content` precedes the handlers of
    /// [`Phase::Content`], which have their turns if it declines.
    pub fn finish(self, content: Option<Box<dyn Handler>>) -> (Handlers, Filters, Settings) {
        let Self { mut handlers, mut filters, settings, .. } = self;
        let named = content.is_some();
        if let Some(content) = content {
            handlers.insert(0, (Phase::Content, content));
        }
        handlers.sort_by_key(|(phase, _)| *phase);
        filters.sort_by_key(|(place, _)| *place);
        let heads = filters.partition_point(|(place, _)| *place <= Place::Fields);
        let replacing = filters.partition_point(|(place, _)| *place < Place::Replacement)
            ..filters.partition_point(|(place, _)| *place <= Place::Replacement);
        let mut ends = [0; PHASES];
        for (phase, end) in ends.iter_mut().enumerate() {
            *end = handlers.partition_point(|(of, _)| *of as usize <= phase);
        }
        let all = handlers.into_iter().map(|(_, handler)| handler).collect();
        let filters = filters.into_iter().map(|(_, filter)| filter).collect();
        (Handlers { all, ends, named }, Filters { all: filters, heads, replacing }, settings)
    }
}

/// The handlers of a location.
#[derive(Default)]
pub struct Handlers {
    all: Vec<Box<dyn Handler>>,
    /// Where each phase ends among them.
    ends: [usize; PHASES],
    /// A directive names the handler of the content.
    named: bool,
}

impl Handlers {
    /// Handler `number` of a phase, from zero.
    #[inline]
    pub fn get(&self, phase: Phase, number: usize) -> Option<&dyn Handler> {
        let phase = phase as usize;
        let at = if phase == 0 { number } else { self.ends[phase - 1] + number };
        if at < self.ends[phase] { self.all.get(at).map(|handler| &**handler) } else { None }
    }

    /// Whether any take part in the rewriting of the server.
    #[inline]
    pub fn rewrite_server(&self) -> bool {
        self.ends[Phase::PostRead as usize] < self.ends[Phase::ServerRewrite as usize]
    }

    /// Whether any take part between the rewriting and the content.
    #[inline]
    pub fn precede_content(&self) -> bool {
        self.ends[Phase::Rewrite as usize] < self.ends[Phase::Precontent as usize]
    }

    /// Whether a directive such as `proxy_pass` names the handler of the content.
    pub fn names_content(&self) -> bool {
        self.named
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").field("ends", &self.ends).finish_non_exhaustive()
    }
}

/// The filters of a location, in their order.
#[derive(Default)]
pub struct Filters {
    all: Box<[Box<dyn Filter>]>,
    /// The number of those that concern nothing but the head.
    heads: usize,
    /// Those that replace responses.
    replacing: Range<usize>,
}

impl Filters {
    /// Sends a response through all filters, from number `first` on. The result is a filter that has to
    /// replace the response, and the number of the next one.
    ///
    /// # Errors
    /// The status that replaces the response.
    pub fn run(
        &self,
        first: usize,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<Option<(&dyn Filter, usize)>, Box<Special>> {
        let filters = match response.body {
            // Its bytes are no content.
            Body::Tunnel(_) => &self.all[..self.heads],
            _ => &self.all[..],
        };
        for (number, filter) in (first..).zip(filters.get(first..).unwrap_or_default()) {
            if self.replacing.contains(&number) && filter.replaces(request, response) {
                return Ok(Some((&**filter, number + 1)));
            }
            filter.apply(request, response)?;
        }
        Ok(None)
    }

    /// Lets all filters explain what they have done with a response, or would do with one of an upstream
    /// server.
    pub async fn explain(&self, request: &mut Request, head: Option<&Head>, trace: &mut Trace) {
        for filter in &self.all {
            trace.by = "";
            filter.explain(request, head, trace).await;
        }
    }

    /// Adds the trailers of all filters.
    pub fn trailers(&self, request: &mut Request) {
        self.all.iter().for_each(|filter| filter.trailers(request));
    }
}

/// Makes the handler of a location's content when all settings of the location are known.
type Make = dyn Fn(&mut Cx<'_>, &[&Scope], &mut Parts) -> Box<dyn Handler>;

/// The directive that names the handler of a location's content.
#[derive(Clone)]
pub struct Content {
    /// The directive.
    pub name: Rc<str>,
    /// A location that ends with a slash is a directory: `/a` redirects to `/a/`. nginx:
    /// `clcf->auto_redirect`.
    pub auto_redirect: bool,
    span: Span,
    make: Rc<Make>,
}

impl Content {
    /// The handler, for the settings of a chain of blocks; it may add to the location's other parts.
    pub fn make(&self, cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut Parts) -> Box<dyn Handler> {
        (self.make)(cx, chain, parts)
    }
}

/// The directive that names the handler of a block's content. The last one wins.
#[derive(Default)]
pub struct ContentLayer(pub Option<Content>);

/// Sets the handler of the content of the block being read. As in nginx the last directive wins, but
/// with a warning.
pub fn set_content<H: Handler + 'static>(
    cx: &mut Cx<'_>,
    node: &Node,
    make: impl Fn(&mut Cx<'_>, &[&Scope], &mut Parts) -> H + 'static,
) {
    let content = Content {
        name: node.name.to_string().into(),
        auto_redirect: false,
        span: node.name.span,
        make: Rc::new(move |cx, chain, parts| Box::new(make(cx, chain, parts))),
    };
    let name = content.name.clone();
    let last = cx.layer::<ContentLayer>().0.replace(content);
    if let Some(other) = last.filter(|other| other.name != name) {
        let warning = format!(
            "\"{name}\" directive replaces another handler of the same block, only the last one is \
             used"
        );
        let warning = Diagnostic::warn(warning).at(node.name.span);
        cx.report(warning.note(other.span, "the replaced handler"));
    }
}

/// Marks the content of the block being read as a tree of its own: see [`Content::auto_redirect`].
pub fn set_auto_redirect(cx: &mut Cx<'_>) {
    if let Some(content) = &mut cx.layer::<ContentLayer>().0 {
        content.auto_redirect = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Handler for Nothing {
        fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
            Step::Next(request)
        }
    }

    #[test]
    fn handlers_are_found_by_phase() {
        let mut parts = Parts::default();
        parts.handler(Phase::Content, Nothing);
        parts.handler(Phase::PostRead, Nothing);
        parts.handler(Phase::Content, Nothing);
        let (handlers, ..) = parts.finish(None);
        let count = |phase| (0..3).filter(|n| handlers.get(phase, *n).is_some()).count();
        assert_eq!(count(Phase::PostRead), 1);
        assert_eq!(count(Phase::Access), 0);
        assert_eq!(count(Phase::Content), 2);
        assert!(!handlers.names_content() && !handlers.precede_content());
        assert!(!handlers.rewrite_server());
    }

    #[test]
    fn a_named_content_has_the_first_turn() {
        /// Has an address of its own.
        struct Named(#[expect(dead_code, reason = "only its size counts")] u8);

        impl Handler for Named {
            fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
                Step::Next(request)
            }
        }

        let mut parts = Parts::default();
        parts.handler(Phase::Content, Nothing);
        parts.handler(Phase::Access, Nothing);
        parts.handler(Phase::ServerRewrite, Nothing);
        let named = Box::new(Named(0));
        let at = std::ptr::from_ref(&*named).cast::<()>();
        let (handlers, ..) = parts.finish(Some(named));
        let first = handlers.get(Phase::Content, 0).map(|first| std::ptr::from_ref(first).cast());
        assert_eq!(first, Some(at));
        assert!(handlers.get(Phase::Content, 1).is_some());
        assert!(handlers.get(Phase::Content, 2).is_none());
        assert!(handlers.names_content() && handlers.precede_content());
        assert!(handlers.rewrite_server());
    }
}
