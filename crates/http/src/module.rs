//! The parts of a module: directives, handlers of phases, the content of locations, filters, variables.
//!
//! A module depends on the core and on no other module; only the list in `nowait-modules` depends on
//! all of them. A location keeps the handlers and filters required by its settings, in their order.
//! They own their settings, so nothing is looked up while a request runs.

use std::fmt;
use std::ops::{Deref, Range};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use nowait_conf::{Cx, Diagnostic, Node, Row, Scope, Span};
use nowait_runtime::JoinHandle;

use crate::conf::{HttpConf, LocationId};
use crate::generation::Current;
use crate::outcome::{Outcome, StatusResponse};
use crate::request::Request;
use crate::response::{Body, Head, LocalFuture, Response};
use crate::services::Services;
use crate::slots::Settings;
use crate::trace::Trace;
use crate::variables::{Builtin, Family, SettableBuiltin};

/// A module.
pub struct Module {
    /// The tables of its directives.
    pub rows: &'static [&'static [Row]],
    /// Adds the handlers and filters of a location.
    pub build: Option<Build>,
    /// The variables.
    pub variables: &'static [Builtin],
    /// The families of variables.
    pub families: &'static [Family],
    /// The variables among them that `set` may change.
    pub changeable: &'static [SettableBuiltin],
    /// Whether the configuration may define one of its variables itself.
    pub replaceable: fn(&str) -> bool,
    /// Checks and adds what only the whole configuration shows; called once, when all locations were
    /// built.
    pub finish: Option<fn(&mut Cx<'_>, &mut HttpConf)>,
    /// Takes over state that outlives a configuration from the previous one.
    pub adopt: Option<fn(&mut HttpConf, previous: &HttpConf)>,
    /// Starts its tasks for a configuration on one of the workers.
    pub start: Option<Start>,
}

/// Reads the settings of the location that a chain of blocks describes, and adds the handlers and
/// filters that they call for.
pub type Build = fn(&mut Cx<'_>, &[&Scope], &mut LocationBuilder);

/// Starts tasks for the newest configuration on one of the workers; dropping the handles ends them.
pub type Start = fn(&Rc<Services>, &Rc<Current>) -> Vec<JoinHandle<()>>;

impl Module {
    /// A module without parts, the base of all others.
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

/// Modules. Handlers of the same phase and filters of the same stage run in this order.
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

    /// Adds the handlers and filters of the location that a chain of blocks describes.
    pub fn build(self, cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
        self.iter().filter_map(|module| module.build).for_each(|build| build(cx, chain, parts));
    }

    /// Calls the modules after the whole configuration was read.
    pub fn finish(self, cx: &mut Cx<'_>, conf: &mut HttpConf) {
        self.iter().filter_map(|module| module.finish).for_each(|finish| finish(cx, conf));
    }
}

/// The phases with handlers, in order. Between them, the core finds the location.
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
    /// Access control. Skipped for subrequests.
    Access,
    /// The phase before the content.
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
    /// The location whose handlers run; with `if`, the request's location may be another one meanwhile.
    pub(crate) location: LocationId,
}

/// The result of a handler. It returns the request for the next one.
pub enum Step<'r> {
    /// Continue with the next handler.
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

    /// Work that rarely has to wait, such as opening a file whose name is cached. It begins here, and
    /// mostly ends here: the price is the memory of its future. Otherwise, the task that waits for the rest
    /// polls it again at once, so nothing that happens meanwhile is missed.
    pub fn start(work: impl Future<Output = Step<'r>> + 'r) -> Self {
        let mut work = Box::pin(work);
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(step) => step,
            Poll::Pending => Self::Wait(work),
        }
    }

    /// The decision; without one, continue with the next handler.
    pub fn of(request: &'r mut Request, outcome: Option<Outcome>) -> Self {
        match outcome {
            Some(outcome) => Self::Done(request, outcome),
            None => Self::Next(request),
        }
    }
}

/// A handler of a phase. It begins at once; work that may have to wait is a future ([`Step::start`],
/// [`Step::wait`]).
pub trait Handler: Send + Sync {
    /// Handles a request.
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r>;

    /// Explains what [`handle`](Self::handle) does with a request, for `nowait explain`. Without side
    /// effects: it sends no data, changes no file, and counts in no zone.
    fn explain<'a>(
        &'a self,
        _request: &'a mut Request,
        _trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        Box::pin(async { HandlerExplanation::Unknown })
    }
}

impl HandlerExplanation {
    /// [`HandlerExplanation::Run`], for [`Handler::explain`].
    pub fn run() -> LocalFuture<'static, HandlerExplanation> {
        Box::pin(async { HandlerExplanation::Run })
    }
}

/// The continuation of a request's explanation after a handler.
pub enum HandlerExplanation {
    /// Call [`Handler::handle`] itself, which has no side effects.
    Run,
    /// Continue with the next handler.
    Next,
    /// Access is granted: see [`Step::Granted`].
    Granted,
    /// The request has this outcome.
    Done(Outcome),
    /// The response comes from an upstream server.
    Elsewhere,
    /// The result of the handler is unknown.
    Unknown,
}

/// Changes responses. A filter has access to the head and the body as a whole and may wrap the body; it
/// never sends data.
pub trait Filter: Send + Sync {
    /// Changes a response. A response that replaces another one, such as an error page, passes through the filters
    /// again; subrequests pass, too.
    ///
    /// # Errors
    /// The status that replaces the response.
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>>;

    /// Whether [`replace`](Self::replace) has to make another response of this one, before the next filters
    /// run. Filters at [`FilterStage::Part`] and [`FilterStage::Replacement`] are called.
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
    ) -> LocalFuture<'a, Result<Response, Box<StatusResponse>>> {
        Box::pin(async { Ok(response) })
    }

    /// Tells `nowait explain` what this filter has done with a response; `None`: what it would do with the
    /// unknown response of an upstream server. Without side effects.
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
    F: Fn(&mut Request, &mut Response) -> Result<(), Box<StatusResponse>> + Send + Sync,
{
    fn apply(
        &self,
        request: &mut Request,
        response: &mut Response,
    ) -> Result<(), Box<StatusResponse>> {
        self(request, response)
    }
}

/// The stage of a filter, in the order of application. Filters of the same stage run in the order of the
/// list in `nowait-modules`.
///
/// The head is finished before the body is wrapped, because what is wrapped later must be known
/// earlier: a range is cut only from a body whose length no later filter changes. nginx: header
/// filters and body filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterStage {
    /// Whether this is the wanted part of a whole.
    Part,
    /// Conditions of the request.
    Conditions,
    /// Fields that are added to the head.
    Fields,
    /// Codings that the client does not accept are undone.
    Decoding,
    /// The whole content is replaced before the response continues.
    Replacement,
    /// Decisions to change the content.
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

/// The handlers, filters and settings of a location that is being built.
#[derive(Default)]
pub struct LocationBuilder {
    handlers: Vec<(Phase, Box<dyn Handler>)>,
    filters: Vec<(FilterStage, Box<dyn Filter>)>,
    observers: Vec<Box<dyn Observer>>,
    /// What modules keep for the location besides.
    pub settings: Settings,
    /// The location rarely answers a request: it is a server that has locations.
    pub rarely_answers: bool,
    /// Conditions and `no-transform` follow the RFCs where nginx intentionally does not.
    pub follows_rfcs: bool,
    /// CONNECT has a meaning here: `tunnel_pass`.
    pub takes_connect: bool,
    /// [`note_times`](Self::note_times) was called.
    pub(crate) notes_times: bool,
    /// Number of the first of the locations inside.
    first: u32,
    /// Their settings.
    inside: Vec<Rc<Scope>>,
}

impl LocationBuilder {
    /// An empty location. `first` is the number of the next location inside.
    pub fn new(rarely_answers: bool, first: LocationId) -> Self {
        Self { rarely_answers, first: first.0, ..Self::default() }
    }

    /// Makes a location of a block without a URI of its own, such as `if`, in this one: it inherits the
    /// settings that it does not set, and the handler of the content.
    pub fn inside(&mut self, scope: Rc<Scope>) -> LocationId {
        let number = u32::try_from(self.inside.len()).unwrap_or(u32::MAX);
        self.inside.push(scope);
        LocationId(self.first.saturating_add(number))
    }

    /// The settings of the locations inside, in the order of their numbers.
    pub fn take_inside(&mut self) -> Vec<Rc<Scope>> {
        std::mem::take(&mut self.inside)
    }

    /// Adds a handler of a phase. Handlers of the same phase run in the order of the list in
    /// `nowait-modules`.
    pub fn handler(&mut self, phase: Phase, handler: impl Handler + 'static) {
        self.handlers.push((phase, Box::new(handler)));
    }

    /// Adds a filter.
    pub fn filter(&mut self, place: FilterStage, filter: impl Filter + 'static) {
        self.filters.push((place, Box::new(filter)));
    }

    /// Adds an observer of ended requests.
    pub fn observer(&mut self, observer: impl Observer + 'static) {
        self.observers.push(Box::new(observer));
    }

    /// The handlers and filters in their order. `content` precedes the handlers of
    /// [`Phase::Content`], which have their turns if it declines.
    pub fn finish(self, content: Option<Box<dyn Handler>>) -> (Handlers, Filters, Settings) {
        let Self { mut handlers, mut filters, observers, settings, .. } = self;
        let named = content.is_some();
        if let Some(content) = content {
            handlers.insert(0, (Phase::Content, content));
        }
        handlers.sort_by_key(|(phase, _)| *phase);
        filters.sort_by_key(|(place, _)| *place);
        let heads = filters.partition_point(|(place, _)| *place <= FilterStage::Fields);
        let parts = filters.partition_point(|(place, _)| *place <= FilterStage::Part);
        let replacing = filters.partition_point(|(place, _)| *place < FilterStage::Replacement)
            ..filters.partition_point(|(place, _)| *place <= FilterStage::Replacement);
        let mut ends = [0; PHASES];
        for (phase, end) in ends.iter_mut().enumerate() {
            *end = handlers.partition_point(|(of, _)| *of as usize <= phase);
        }
        let all = handlers.into_iter().map(|(_, handler)| handler).collect();
        let filters = filters.into_iter().map(|(_, filter)| filter).collect();
        let handlers = Handlers { all, ends, named, observers };
        (handlers, Filters { all: filters, heads, parts, replacing }, settings)
    }
}

/// Sees the requests that ended in a location, whether they got a response or not, when they are logged. Not
/// for subrequests. nginx: a handler of `NGX_HTTP_LOG_PHASE`.
pub trait Observer: Send + Sync {
    /// A request has ended.
    fn ended(&self, request: &Request);
}

/// The handlers of a location.
#[derive(Default)]
pub struct Handlers {
    all: Vec<Box<dyn Handler>>,
    /// The observers of its ended requests.
    observers: Vec<Box<dyn Observer>>,
    /// The end of each phase among them.
    ends: [usize; PHASES],
    /// A directive names the handler of the content.
    named: bool,
}

impl Handlers {
    /// The observers of ended requests.
    #[inline]
    pub fn observers(&self) -> &[Box<dyn Observer>] {
        &self.observers
    }

    /// Handler `number` of a phase, from zero.
    #[inline]
    pub fn get(&self, phase: Phase, number: usize) -> Option<&dyn Handler> {
        let phase = phase as usize;
        let at = if phase == 0 { number } else { self.ends[phase - 1] + number };
        if at < self.ends[phase] { self.all.get(at).map(|handler| &**handler) } else { None }
    }

    /// Whether the server has rewrite handlers.
    #[inline]
    pub fn rewrite_server(&self) -> bool {
        self.ends[Phase::PostRead as usize] < self.ends[Phase::ServerRewrite as usize]
    }

    /// Whether there are handlers between the rewriting and the content.
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
    /// The number of filters that change only the head.
    heads: usize,
    /// The number of filters at [`FilterStage::Part`], which may replace responses.
    parts: usize,
    /// The other filters that replace responses.
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
    ) -> Result<Option<(&dyn Filter, usize)>, Box<StatusResponse>> {
        let filters = match response.body {
            // The bytes are not content.
            Body::Tunnel(_) => &self.all[..self.heads],
            _ => &self.all[..],
        };
        for (number, filter) in (first..).zip(filters.get(first..).unwrap_or_default()) {
            let may_replace = number < self.parts || self.replacing.contains(&number);
            if may_replace && filter.replaces(request, response) {
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
type Make = dyn Fn(&mut Cx<'_>, &[&Scope], &mut LocationBuilder) -> Box<dyn Handler>;

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
    pub fn make(
        &self,
        cx: &mut Cx<'_>,
        chain: &[&Scope],
        parts: &mut LocationBuilder,
    ) -> Box<dyn Handler> {
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
    make: impl Fn(&mut Cx<'_>, &[&Scope], &mut LocationBuilder) -> H + 'static,
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
        let mut parts = LocationBuilder::default();
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

        let mut parts = LocationBuilder::default();
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
