//! The logs of a generation: which lines of which requests go where.
//!
//! Request code calls [`access`] and [`Request::log`]; both only copy a line into the ring of the log
//! writer.

use std::cell::Cell;
use std::fmt;

use nowait_front::logs::{self, BlockLogs};
use nowait_message::Known;

use crate::address;
use crate::conf::HttpConf;
use crate::conf::log::TaskLogs;
use crate::log::error::{Details, RequestDetails};
use crate::log::{Level, Logged};
use crate::request::Request;
use crate::response::BodyError;
use crate::upstream_state::{Notice, UpstreamState};

/// The logs of all locations, and then, at [`task_block`], those of tasks.
pub fn blocks(conf: &HttpConf) -> impl Iterator<Item = BlockLogs<'_>> {
    let TaskLogs { access, error } = &conf.task_logs;
    let locations = conf.locations().iter();
    locations
        .map(|location| BlockLogs { access: &location.access_logs, error: &location.log.error_log })
        .chain([BlockLogs { access, error }])
}

/// The number of the block of tasks.
pub fn task_block(conf: &HttpConf) -> usize {
    conf.locations().len()
}

impl Request {
    /// Writes a line about this request to the error logs of its location.
    // Cold: keeps the code out of requests without log messages.
    #[cold]
    pub fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        let about = logs::About {
            block: self.location_id().0 as usize,
            connection: self.client().number,
            peer: &self.client().peer,
            details: Some(&About(self)),
        };
        self.current().logs.about(about, level, message);
    }

    /// Logs the received head at level debug.
    #[inline]
    pub fn log_head(&self) {
        if self.current().logs.debugs() {
            self.log_head_lines();
        }
    }

    #[inline(never)]
    fn log_head_lines(&self) {
        let text = |bytes| String::from_utf8_lossy(bytes);
        let line = self.head().request_line();
        debug!(self, "http request line: \"{}\"", text(&line));
        for field in self.head().fields().iter() {
            debug!(self, "http header: \"{}: {}\"", text(field.name), text(field.value));
        }
    }
}

/// Logs a line about a request at level debug. Its text is only formatted if the level is enabled.
#[macro_export]
macro_rules! debug {
    ($request:expr, $($message:tt)+) => {
        if $request.current().logs.debugs() {
            $request.log($crate::log::Level::Debug, ::std::format_args!($($message)+));
        }
    };
}
pub use crate::debug;

/// The description of a request in error lines.
struct About<'a>(&'a Request);

impl About<'_> {
    /// Calls `with` with the parts.
    fn describe(&self, with: &mut dyn FnMut(&RequestDetails<'_>)) {
        let request = self.0;
        let mut client = Vec::new();
        address::append_ip(request.peer(), &mut client);
        let line = request.head().request_line();
        let listen;
        let server = if line.is_empty() {
            listen = request.client().listen.to_string();
            listen.as_bytes()
        } else {
            request.server_name()
        };
        let state = UpstreamState::get(request.state());
        let mut upstream = Vec::new();
        if let Some(state) = state {
            state.append_url(request.head().uri(), &mut upstream);
        }
        with(&RequestDetails {
            action: state.and_then(|state| state.action()),
            upstream: &upstream,
            client: &client,
            server,
            request: &line,
            subrequest: if request.is_nested() { &request.uri().path } else { &[] },
            host: request.head().header(Known::Host),
            referrer: request.head().header(Known::Referer),
        });
    }
}

impl Details for About<'_> {
    fn append(&self, out: &mut Vec<u8>) {
        self.describe(&mut |details| details.append(out));
    }

    fn fields(&self, field: &mut dyn FnMut(&str, &[u8])) {
        thread_local! {
            static IN_TAGS: Cell<bool> = const { Cell::new(false) };
        }
        self.describe(&mut |details| details.fields(field));
        let request = self.0;
        let tags = &request.location().log.error_log_tag;
        // A variable may log a line itself, such as the failure of an expression: without tags.
        if tags.is_empty() || IN_TAGS.replace(true) {
            return;
        }
        let mut value = Vec::new();
        for tag in tags {
            value.clear();
            tag.value.append(request, &mut value);
            if !value.is_empty() {
                field(&tag.name, &value);
            }
        }
        IN_TAGS.set(false);
    }
}

/// Logs why the body of a response could not be completed.
pub fn body_error(request: &Request, error: &BodyError) {
    let level = match error {
        BodyError::Overflow(_)
        | BodyError::Coding(_)
        | BodyError::Nested(_)
        | BodyError::Upstream(_) => Level::Error,
        BodyError::File(_) | BodyError::Truncated => Level::Alert,
    };
    request.log(level, format_args!("{error}"));
}

/// Shows a finished request to the observers of its location, and writes its access log lines, after the error
/// log lines that were kept until then.
pub fn access(request: &Request) {
    if let Some(state) = UpstreamState::get(request.state()) {
        for Notice { level, text, action } in state.take_notices() {
            state.set_action(action);
            request.log(level, format_args!("{text}"));
        }
    }
    for observer in request.location().handlers.observers() {
        observer.ended(request);
    }
    request.current().logs.access(request.location_id().0 as usize, request);
}

impl Logged for Request {
    fn append_root(&self, out: &mut Vec<u8>) {
        self.location().path.append_root(self, out);
    }
}
