//! WebDAV: methods that change files (nginx: `ngx_http_dav_module`), properties and locks (the directives of
//! the third-party module nginx-dav-ext-module).
//!
//! All work on files is done in pools, by the runtime's `fs`: trees are removed and copied in steps, so
//! that they neither hold a thread nor take memory. Operations are completed even if the client
//! disconnects. Paths are resolved under `disable_symlinks`; the last component is never followed by what
//! removes, renames or creates it.

mod access;
mod conf;
mod copy;
pub mod if_header;
mod lock;
mod lock_table;
pub mod properties;
mod propfind;
mod put;
mod remove;
pub mod xml;

use std::sync::Arc;

use nowait_conf::{Cx, Scope};
use nowait_message::{Known, Method, escape};
use nowait_runtime::fs::{Io, Name, Tree};
use nowait_runtime::pool::PoolError;

pub use self::copy::parse_destination;

use self::conf::{
    DAV_EXT_ROWS, DavConf, DavExtConf, DavExtMethods, LockZone, LockZones, UnresolvedLockZones,
};
use self::lock::{ChangeTarget, permit};
use self::lock_table::{Locks, Reach};
use nowait_http::conf::HttpConf;
use nowait_http::directories::{UPLOADS, Uploads};
use nowait_http::exchange::OnHangup;
use nowait_http::files;
use nowait_http::log::Level;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::Outcome;
use nowait_http::request::{BodyLength, Request};
use nowait_http::response::{Body, Head, LocalFuture, Response};
use nowait_http::slots::Key;
use nowait_http::trace::Trace;

/// This module.
pub static MODULE: Module = Module {
    rows: &[DavConf::ROWS, DavExtConf::ROWS, DAV_EXT_ROWS],
    build: Some(build),
    finish: Some(finish),
    adopt: Some(adopt),
    ..Module::EMPTY
};

/// The settings of a location.
struct Dav {
    conf: Arc<DavConf>,
    ext: Arc<DavExtConf>,
}

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let (conf, ext) = (DavConf::resolve(cx, chain), DavExtConf::resolve(cx, chain));
    let dav = Arc::new(Dav { conf, ext });
    if dav.conf.dav_methods.any() || dav.ext.dav_ext_methods.any() {
        parts.handler(Phase::Content, DavHandler(dav.clone()));
        if dav.conf.dav_methods.contains(conf::DavMethods::PUT) {
            parts.settings.set(&UPLOADS, Uploads { may_replace: dav.conf.put_overwrite });
        }
        parts.settings.set(&DAV, dav);
    }
}

/// The settings of a location, for requests in other locations that change its files.
static DAV: Key<Arc<Dav>> = Key::new();

/// The handler of a location.
struct DavHandler(Arc<Dav>);

/// The zones of the configuration.
static ZONES: Key<LockZones> = Key::new();

fn finish(cx: &mut Cx<'_>, conf: &mut HttpConf) {
    let zones = cx.take_global::<UnresolvedLockZones>().resolve(cx);
    conf.settings.set(&ZONES, zones);
}

fn adopt(conf: &mut HttpConf, previous: &HttpConf) {
    if let (Some(zones), Some(previous)) =
        (conf.settings.get_mut(&ZONES), previous.settings.get(&ZONES))
    {
        zones.adopt(previous);
    }
}

impl Dav {
    /// Whether clients may set properties.
    fn keeps_properties(&self) -> bool {
        self.ext.dav_ext_methods.contains(DavExtMethods::PROPPATCH)
    }

    /// Whether collections are what the file system says, with or without a slash at the end of the URI,
    /// and statuses are those of RFC 4918. Otherwise both are nginx's.
    fn follows_rfc(&self) -> bool {
        self.ext.dav_ext_methods.any()
    }

    /// The zone of the location's locks.
    fn zone<'r>(&self, request: &'r Request) -> Option<&'r LockZone> {
        let zones = request.current().conf.settings.get(&ZONES)?;
        zones.0.get(self.ext.dav_ext_lock?.0)
    }

    /// The location's locks.
    fn locks<'r>(&self, request: &'r Request) -> Option<&'r Arc<Locks>> {
        self.zone(request).map(|zone| &zone.locks)
    }

    /// Whether a method is allowed.
    fn allows(&self, method: Method) -> bool {
        let locks = matches!(method, Method::Lock | Method::Unlock);
        self.conf.dav_methods.allow(method)
            || self.ext.dav_ext_methods.allow(method) && (!locks || self.ext.dav_ext_lock.is_some())
    }

    /// The response to OPTIONS.
    fn options(&self) -> Outcome {
        let methods = DavExtMethods::METHODS.map(|(method, _)| method);
        let own = conf::DavMethods::METHODS.map(|(method, _)| method);
        let all = [Method::Get, Method::Head].into_iter();
        let all = all.chain(own.into_iter().chain(methods).filter(|method| self.allows(*method)));
        let names: Vec<&str> = all.map(Method::as_str).collect();
        let mut head = Head::new(200);
        head.add("Allow", names.join(", "));
        head.add("DAV", if self.allows(Method::Lock) { "1, 2" } else { "1" });
        // Without this field, Microsoft's clients assume a FrontPage server.
        head.add("MS-Author-Via", "DAV");
        head.content_length = Some(0);
        Response { head, ..Response::default() }.into()
    }
}

impl Handler for DavHandler {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        let dav = &*self.0;
        match request.method() {
            method if !dav.allows(method) => return Step::Next(request),
            Method::Options => return Step::Done(request, dav.options()),
            _ => {}
        }
        Step::wait(async move {
            nowait_runtime::stats::set_label("dav");
            let outcome = match request.method() {
                Method::Put => put::put(request, dav).await,
                Method::Propfind => propfind::propfind(request, dav).await,
                Method::Proppatch => propfind::proppatch(request, dav).await,
                Method::Lock => lock::lock(request, dav).await,
                Method::Unlock => lock::unlock(request, dav).await,
                _ => {
                    // A half-done change is worse than a response to a closed connection.
                    let _watch = request.watch(OnHangup::Ignore);
                    match request.method() {
                        Method::Delete => remove::delete(request, dav).await,
                        Method::Mkcol => make_collection(request, dav).await,
                        _ => copy::copy_or_move(request, dav).await,
                    }
                }
            };
            Step::Done(request, outcome)
        })
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        _: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        let changes = request.method() != Method::Options && self.0.allows(request.method());
        Box::pin(async move {
            if changes { HandlerExplanation::Unknown } else { HandlerExplanation::Run }
        })
    }
}

/// MKCOL.
async fn make_collection(request: &mut Request, dav: &Dav) -> Outcome {
    if has_body(request) {
        return refuse(request, 415, format_args!("MKCOL with body is unsupported"));
    }
    if request.uri().path.last() != Some(&b'/') && !dav.follows_rfc() {
        return refuse(request, 409, format_args!("MKCOL can create a collection only"));
    }
    let name = match file(request) {
        Ok(name) => name,
        Err(outcome) => return outcome,
    };
    let reach = Reach { parent: true, below: false };
    let change = ChangeTarget::of(request, dav, &name, reach).await;
    if let Err(outcome) = permit(request, dav, &[change]).await {
        return outcome;
    }
    match name.make_dir(&io(request), dav.conf.dav_access.directories()).await {
        Ok(()) => created(request),
        Err(error) => failed(request, &error, 409, "mkdir()", &name.path),
    }
}

/// A path without repeated slashes and a slash at its end.
fn clean(path: &[u8]) -> Vec<u8> {
    let mut path = path.to_vec();
    path.dedup_by(|byte, last| *byte == b'/' && *last == b'/');
    if path.last() == Some(&b'/') {
        path.pop();
    }
    path
}

/// A response with XML.
fn xml_response(status: u16, reason: &str, body: Body) -> Outcome {
    let mut head = Head::new(status);
    head.status_line = Some(format!("{status} {reason}").into());
    head.content_type = Some("text/xml".into());
    head.charset = Some("utf-8".into());
    head.content_length = body.len();
    Response { head, body }.into()
}

/// The context of file operations for the client.
fn io(request: &Request) -> Io {
    request.io().for_client(request.client().number)
}

/// The file of the request's URI.
fn file(request: &Request) -> Result<Name, Outcome> {
    if !request.has_file() {
        return Err(Outcome::status(500));
    }
    let mut path = Vec::new();
    request.append_file(&mut path);
    if path.contains(&0) {
        return Err(Outcome::status(404));
    }
    let symlinks = files::symlinks(request, &path);
    Ok(Name { path, symlinks })
}

/// Whether the request has a body.
fn has_body(request: &Request) -> bool {
    !matches!(request.body_length(), BodyLength::None | BodyLength::Known(0))
}

/// Logs the fault of a request and responds with a status.
fn refuse(request: &Request, status: u16, message: std::fmt::Arguments<'_>) -> Outcome {
    request.log(Level::Error, message);
    Outcome::status(status)
}

/// Logs the error of a file operation and chooses the status; `not_found` is the one for missing files.
/// nginx: `ngx_http_dav_error`.
fn failed(
    request: &Request,
    error: &std::io::Error,
    not_found: u16,
    call: &str,
    path: &[u8],
) -> Outcome {
    use std::io::ErrorKind as Kind;
    if let Some(error) = PoolError::of(error) {
        return refuse(request, 500, format_args!("{error}"));
    }
    let (level, status) = match error.kind() {
        Kind::NotFound | Kind::NotADirectory | Kind::InvalidFilename => (Level::Error, not_found),
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => (Level::Error, 403),
        _ if files::is_symlink(error) => (Level::Error, 403),
        Kind::AlreadyExists => (Level::Error, 405),
        Kind::StorageFull | Kind::QuotaExceeded => (Level::Crit, 507),
        _ => (Level::Crit, 500),
    };
    let (path, errno) = (String::from_utf8_lossy(path), files::errno(error));
    request.log(level, format_args!("{call} \"{path}\" failed {errno}"));
    Outcome::status(status)
}

/// Finishes the walk through a tree. The error is the response to the first failure.
async fn walk(request: &Request, io: &Io, mut tree: Tree) -> Result<(), Outcome> {
    let mut first = None;
    loop {
        let step = match tree.step(io).await {
            Ok(step) => step,
            Err(error) => return Err(failed(request, &error, 500, "readdir()", b"")),
        };
        for failure in &step.failures {
            let outcome = failed(request, &failure.error, 404, failure.call, &failure.path);
            first.get_or_insert(outcome);
        }
        if step.done {
            return first.map_or(Ok(()), Err);
        }
    }
}

/// 201 with the URI of the new resource.
fn created(request: &Request) -> Outcome {
    let mut head = Head::new(201);
    let mut location = Vec::with_capacity(request.uri().path.len());
    escape::push_uri(&mut location, escape::Set::Uri, &request.uri().path);
    head.location = Some(location.into());
    head.content_length = Some(0);
    Response { head, ..Response::default() }.into()
}

/// A response without content.
fn empty(status: u16) -> Outcome {
    let mut head = Head::new(status);
    if status != 204 {
        head.content_length = Some(0);
    }
    Response { head, ..Response::default() }.into()
}

/// `Depth`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Zero,
    One,
    Infinity,
}

impl Depth {
    /// The one of a request; `None`: it is invalid, which is logged.
    fn of(request: &Request, default: Depth) -> Option<Depth> {
        match request.head().header(Known::Depth) {
            None => Some(default),
            Some(b"0") => Some(Depth::Zero),
            Some(b"1") => Some(Depth::One),
            Some(b"infinity") => Some(Depth::Infinity),
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                request.log(
                    Level::Error,
                    format_args!("client sent invalid \"Depth\" header: \"{other}\""),
                );
                None
            }
        }
    }
}
