//! HTTP Basic authentication. nginx: `ngx_http_auth_basic_module`.
//!
//! Missing credentials are detected at once; the file with the users is
//! checked through the runtime's `fs`, and passwords are verified in the thread pool ([`password`]).
//! Nothing a client sends causes a panic, and nothing in the file makes a verification cost more than
//! the limits of [`password`].

pub mod conf;

mod des_crypt;
mod md5_crypt;
mod password;
mod user_file;

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Cx, Scope};
use nowait_front::access::AccessVerdict;
use nowait_http::credentials::{Credentials, VERIFIED};
use nowait_http::log::Level;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::{Outcome, StatusResponse};
use nowait_http::request::Request;
use nowait_http::response::{Header, LocalFuture};
use nowait_http::trace::{Trace, TraceSubject, quoted};
use nowait_message::Method;
use nowait_runtime::pool::{Class, Op};
use password::Check;
use user_file::{LoadError, UserFile};

use self::conf::AuthConf;

/// All password checks share one key of the pool, so that a flood of them leaves threads to
/// requests that need files.
const POOL_KEY: u64 = u64::MAX;

/// This module.
pub static MODULE: Module = Module { rows: &[AuthConf::ROWS], build: Some(build), ..Module::EMPTY };

/// `auth_basic`
struct BasicAuth {
    conf: Arc<AuthConf>,
    /// `auth_basic_user`
    users: UserFile,
}

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = AuthConf::resolve(cx, chain);
    if !parts.rarely_answers {
        conf.warn_if_open(cx);
    }
    if conf.auth_basic.is_some() && conf.has_users() {
        let users = UserFile::of_lines(conf.auth_basic_user.iter().map(|user| &user.line[..]));
        parts.handler(Phase::Access, BasicAuth { conf, users });
    }
}

impl Handler for BasicAuth {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        Step::start(async move {
            let result = authenticate(request, self).await;
            settle(request, result)
        })
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        trace.by = "auth_basic";
        let text = match (realm(request, &self.conf), Credentials::of(request)) {
            (None, _) => "auth_basic: off for this request".to_owned(),
            (Some(realm), None) => {
                format!("auth_basic: realm {}, the request has no user name", quoted(&realm))
            }
            (Some(realm), Some(Credentials { user, .. })) => {
                format!("auth_basic: realm {}, user {}", quoted(&realm), quoted(&user))
            }
        };
        trace.add(TraceSubject::Access, None, text);
        HandlerExplanation::run()
    }
}

fn settle(request: &mut Request, result: Authentication) -> Step<'_> {
    match result {
        Authentication::Settled(AccessVerdict::None) => Step::Next(request),
        Authentication::Settled(AccessVerdict::Allowed) => {
            request.state_mut().set(&VERIFIED, ());
            Step::Granted(request)
        }
        Authentication::Settled(AccessVerdict::Refused) => {
            Step::Done(request, Outcome::status(403))
        }
        Authentication::Unauthorized(realm) => {
            let outcome = unauthorized(request, &realm);
            Step::Done(request, outcome)
        }
        Authentication::Failed(outcome) => Step::Done(request, outcome),
    }
}

/// Result of basic authentication.
enum Authentication {
    /// No password is required, or the user is authenticated.
    Settled(AccessVerdict),
    /// 401 with this realm, or 407 for CONNECT.
    Unauthorized(Bytes),
    /// Another response, which no other check overrules.
    Failed(Outcome),
}

/// Checks the password against the users, if one is required and given.
async fn authenticate(request: &Request, auth: &BasicAuth) -> Authentication {
    let Some(realm) = realm(request, &auth.conf) else {
        return Authentication::Settled(AccessVerdict::None);
    };
    let Some(Credentials { user, password }) = Credentials::of(request) else {
        request.log(
            Level::Info,
            format_args!("no user/password was provided for basic authentication"),
        );
        return Authentication::Unauthorized(realm);
    };
    let file = auth.conf.auth_basic_user_file.as_ref().filter(|_| !auth.users.has(&user));
    let (path, users) = match file {
        None => (Bytes::from_static(b"auth_basic_user"), auth.users.clone()),
        Some(file) => {
            let path = file.path(request);
            match user_file::load(request, &path).await {
                Ok(users) => (path, users),
                Err(error) => return refuse(request, &path, &error),
            }
        }
    };
    let check = match users.check_at_once(&user, &password) {
        Some(check) => check,
        None => match check_in_pool(request, users, user.clone(), password).await {
            Ok(check) => check,
            Err(outcome) => return Authentication::Failed(outcome),
        },
    };
    let name = String::from_utf8_lossy(&user);
    let shown = String::from_utf8_lossy(&path);
    match check {
        Check::Right => return Authentication::Settled(AccessVerdict::Allowed),
        Check::Wrong => {
            request.log(Level::Error, format_args!("user \"{name}\": password mismatch"));
        }
        Check::Unusable => request.log(
            Level::Error,
            format_args!(
                "user \"{name}\": password mismatch: the entry in \"{shown}\" is malformed, too \
                 costly or of an unknown kind"
            ),
        ),
        Check::Unknown => {
            request.log(Level::Error, format_args!("user \"{name}\" was not found in \"{shown}\""))
        }
    }
    Authentication::Unauthorized(realm)
}

/// The response that requests a password. nginx: `ngx_http_auth_basic_set_realm`.
fn unauthorized(request: &Request, realm: &[u8]) -> Outcome {
    let value = [b"Basic realm=\"", realm, b"\""].concat();
    // The realm may contain data from the client, by variables.
    let value: Bytes = value.into_iter().filter(|b| !matches!(b, b'\r' | b'\n' | 0)).collect();
    let (status, name) = match request.method() {
        Method::Connect => (407, &b"Proxy-Authenticate"[..]),
        _ => (401, &b"WWW-Authenticate"[..]),
    };
    let name = Bytes::from_static(name);
    Outcome::Status(StatusResponse {
        status,
        location: None,
        headers: vec![Header { name, value }],
    })
}

/// The protected realm; `None` if no password is required.
fn realm(request: &Request, conf: &AuthConf) -> Option<Bytes> {
    let realm = request.evaluate(&conf.auth_basic.as_ref()?.text);
    (realm != b"off"[..]).then_some(realm)
}

async fn check_in_pool(
    request: &Request,
    users: UserFile,
    user: Vec<u8>,
    password: Vec<u8>,
) -> Result<Check, Outcome> {
    let pool = request.current().compute_pool();
    let work = move || users.check(&user, &password);
    pool.run(Class::Bulk, POOL_KEY, Op::Blocking, work).await.map_err(|error| {
        request.log(Level::Error, format_args!("{error}"));
        Outcome::status(500)
    })
}

/// The file can't be used: 403 if it does not exist, otherwise 500.
fn refuse(request: &Request, path: &[u8], error: &LoadError) -> Authentication {
    let shown = String::from_utf8_lossy(path);
    match error {
        LoadError::Missing(error) => {
            let errno = nowait_http::files::errno(error);
            request.log(Level::Error, format_args!("open() \"{shown}\" failed {errno}"));
            Authentication::Settled(AccessVerdict::Refused)
        }
        LoadError::Failed(error) => {
            let errno = nowait_http::files::errno(error);
            request.log(Level::Crit, format_args!("open() \"{shown}\" failed {errno}"));
            Authentication::Failed(Outcome::status(500))
        }
        LoadError::Overflow(overflow) => {
            request.log(Level::Error, format_args!("{overflow}"));
            Authentication::Failed(Outcome::status(500))
        }
    }
}
