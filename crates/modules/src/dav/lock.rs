//! LOCK and UNLOCK, and checks of locks for other methods.

use std::sync::Arc;

use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::Body;
use nowait_message::{escape, etag};
use nowait_runtime::fs::{Name, stat};
use nowait_runtime::now;
use nowait_runtime::time::process_start;

use super::copy::parse_destination;
use super::if_header::{If, Test};
use super::lock_table::{Lock, LockError, Locks, OWNER_BYTES_MAX, Reach, Token};
use super::properties::push_lock;
use super::propfind::body;
use super::xml::{self, Element, push_text};
use super::{Dav, Depth, clean, empty, failed, file, io, refuse, xml_response};

/// The time for locks, in seconds since the process began.
pub(super) fn seconds() -> u64 {
    now().saturating_duration_since(process_start()).as_secs()
}

/// A resource that a request is about to change.
pub(super) struct ChangeTarget {
    /// The path of its locks.
    pub path: Vec<u8>,
    pub reach: Reach,
    /// The zone of its location.
    pub locks: Option<Arc<Locks>>,
}

impl ChangeTarget {
    /// The target for a name in a location with these settings.
    pub async fn of(request: &Request, dav: &Dav, name: &Name, reach: Reach) -> ChangeTarget {
        let path = lock_path(request, dav, name, false).await;
        ChangeTarget { path, reach, locks: dav.locks(request).cloned() }
    }
}

/// The path under which a file's locks are kept. All names of a file have the same path: repeated slashes,
/// a final slash and links on the way are resolved. With `follow`, the file itself may be a link, which is
/// resolved, too: LOCK applies to its target, DELETE to the link.
pub(super) async fn lock_path(request: &Request, dav: &Dav, name: &Name, follow: bool) -> Vec<u8> {
    let path = clean(&name.path);
    if dav.locks(request).is_none() {
        return path;
    }
    let name = Name { path, symlinks: name.symlinks };
    // A resource that can't be reached is not changed either.
    let real = name.real(&io(request), follow).await.ok();
    real.filter(|real| real.first() == Some(&b'/')).unwrap_or(name.path)
}

/// Checks the conditions of `If`, and that no lock is in the way of these changes. The error is the
/// response.
pub(super) async fn permit(
    request: &mut Request,
    dav: &Dav,
    changes: &[ChangeTarget],
) -> Result<(), Outcome> {
    if changes.iter().all(|change| change.locks.is_none()) {
        return Ok(());
    }
    let tokens = conditions(request, dav).await?;
    for change in changes {
        let Some(locks) = &change.locks else { continue };
        if let Err(root) = locks.check(&change.path, change.reach, &tokens, seconds()) {
            return Err(locked(&root));
        }
    }
    Ok(())
}

/// The response for a locked resource.
fn locked(root: &str) -> Outcome {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\">\
         <D:lock-token-submitted><D:href>",
    );
    push_text(&mut text, root);
    text.push_str("</D:href></D:lock-token-submitted></D:error>\n");
    xml_response(423, "Locked", Body::Bytes(text.into()))
}

/// Evaluates `If`; the tokens in it. The error is the response: 400 or 412.
async fn conditions(request: &mut Request, dav: &Dav) -> Result<Vec<Token>, Outcome> {
    let lines: Vec<&[u8]> = request.head().fields().named(b"If").collect();
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let text = lines.join(&b' ');
    let Some(field) = If::parse(&text) else {
        return Err(refuse(request, 400, format_args!("client sent invalid \"If\" header")));
    };
    let mut last: Option<(Option<&[u8]>, State)> = None;
    for list in &field.0 {
        let state = match last.take() {
            Some((resource, state)) if resource == list.resource => state,
            _ => State::of(request, dav, list.resource).await?,
        };
        let holds = list.conditions.iter().all(|condition| {
            let is_so = match condition.test {
                Test::Token(token) => {
                    Token::parse(token).is_some_and(|token| state.tokens.contains(&token))
                }
                Test::Tag(tag) => state.tag.as_deref() == Some(tag),
            };
            is_so != condition.not
        });
        if holds {
            return Ok(field.tokens().filter_map(Token::parse).collect());
        }
        last = Some((list.resource, state));
    }
    Err(Outcome::status(412))
}

/// The state that conditions are compared with: the tokens of a resource's locks, and its entity tag.
#[derive(Default)]
struct State {
    tokens: Vec<Token>,
    tag: Option<Vec<u8>>,
}

impl State {
    /// The state of a URI or of the request's resource; empty if the resource is not on this server.
    async fn of(
        request: &mut Request,
        dav: &Dav,
        resource: Option<&[u8]>,
    ) -> Result<State, Outcome> {
        let name = match resource {
            None => file(request)?,
            Some(uri) => {
                let Ok(path) = parse_destination(uri, request.host()) else {
                    return Ok(State::default());
                };
                let own = request.replace_path(path);
                let name = file(request);
                request.replace_path(own);
                name?
            }
        };
        let path = lock_path(request, dav, &name, true).await;
        let tokens = dav.locks(request).map(|locks| locks.of(&path, seconds()));
        let tokens = tokens.into_iter().flatten().map(|lock| lock.token).collect();
        let found = stat(&io(request), &name.path, name.symlinks).await;
        let tag = found.ok().filter(|found| found.is_file() && request.location().files.etag);
        Ok(State { tokens, tag: tag.map(|found| etag::of_file(found.mtime, found.size).to_vec()) })
    }
}

/// The body of a LOCK request (`lockinfo`).
struct LockInfo {
    exclusive: bool,
    owner: String,
}

impl LockInfo {
    /// Reads the body; `None`: it is malformed.
    fn parse(body: &[u8]) -> Option<LockInfo> {
        let root = xml::parse(body).ok().filter(|root| root.name.is_dav("lockinfo"))?;
        root.dav("locktype")?.dav("write")?;
        let scope = root.dav("lockscope")?;
        let exclusive = match (scope.dav("exclusive"), scope.dav("shared")) {
            (Some(_), None) => true,
            (None, Some(_)) => false,
            _ => return None,
        };
        let mut owner = String::new();
        if let Some(element) = root.dav("owner") {
            Element::write_content(element, "", &mut owner);
        }
        (owner.len() <= OWNER_BYTES_MAX).then_some(LockInfo { exclusive, owner })
    }
}

/// The timeout requested by a LOCK in seconds, at most `max`.
fn timeout(text: &[u8], max: u64) -> u64 {
    let mut wishes = text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let seconds = wishes.find_map(|wish| {
        if wish.eq_ignore_ascii_case(b"infinite") {
            return Some(max);
        }
        let (word, number) = wish.split_at_checked(7)?;
        let digits = word.eq_ignore_ascii_case(b"second-") && number.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(number).ok().filter(|_| digits)?;
        Some(number.parse().unwrap_or(max))
    });
    seconds.unwrap_or(max).clamp(1, max)
}

/// Locks a resource, which is created if it is missing, or extends a lock.
pub(super) async fn lock(request: &mut Request, dav: &Dav) -> Outcome {
    let body = match body(request).await {
        Ok(body) => body,
        Err(outcome) => return outcome,
    };
    match take(request, dav, &body).await {
        Ok(outcome) | Err(outcome) => outcome,
    }
}

async fn take(request: &mut Request, dav: &Dav, body: &[u8]) -> Result<Outcome, Outcome> {
    let Some(zone) = dav.zone(request) else { return Ok(Outcome::status(405)) };
    let (locks, max) = (zone.locks.clone(), zone.timeout);
    let name = file(request)?;
    let path = lock_path(request, dav, &name, true).await;
    let wish = request.head().fields().named(b"Timeout").next().unwrap_or_default();
    let time = timeout(wish, max);
    let tokens = conditions(request, dav).await?;
    if body.is_empty() {
        let lock = locks.refresh(&path, &tokens, seconds() + time, seconds());
        let Some(lock) = lock else { return Ok(Outcome::status(412)) };
        return Ok(answer(&lock, 200));
    }
    let Some(wanted) = LockInfo::parse(body) else {
        return Err(refuse(request, 400, format_args!("client sent invalid LOCK body")));
    };
    let infinite = match Depth::of(request, Depth::Infinity) {
        Some(Depth::Zero) => false,
        Some(Depth::Infinity) => true,
        _ => {
            let text = format_args!("\"Depth\" header must be 0 or infinity");
            return Err(refuse(request, 400, text));
        }
    };
    let io = io(request);
    let missing = match stat(&io, &name.path, name.symlinks).await {
        Ok(_) => false,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(failed(request, &error, 409, "stat()", &name.path)),
    };
    if missing {
        if request.uri().path.last() == Some(&b'/') {
            return Err(refuse(request, 409, format_args!("LOCK can create a file only")));
        }
        let reach = Reach { parent: true, below: false };
        if let Err(root) = locks.check(&path, reach, &tokens, seconds()) {
            return Err(locked(&root));
        }
    }
    let root = escape::uri(escape::Set::Uri, &request.uri().path);
    let lock = Lock {
        token: Token::new(nowait_http::random::bytes()),
        path,
        root: String::from_utf8_lossy(&root).into_owned(),
        owner: wanted.owner,
        infinite,
        exclusive: wanted.exclusive,
        expires: seconds() + time,
    };
    match locks.add(lock.clone(), seconds()) {
        Ok(()) => {}
        Err(LockError::Locked(root)) => return Err(locked(&root)),
        Err(LockError::Full) => {
            let name = String::from_utf8_lossy(&zone_name(request, dav)).into_owned();
            return Err(refuse(request, 507, format_args!("lock zone \"{name}\" is full")));
        }
    }
    let mut status = 200;
    if missing {
        match name.make_file(&io, dav.conf.dav_access.0).await {
            Ok(made) => status = if made { 201 } else { 200 },
            Err(error) => {
                locks.remove(&lock.path, lock.token, seconds());
                return Err(failed(request, &error, 409, "open()", &name.path));
            }
        }
    }
    Ok(answer(&lock, status))
}

fn zone_name(request: &Request, dav: &Dav) -> Vec<u8> {
    dav.zone(request).map(|zone| zone.name.clone()).unwrap_or_default()
}

/// The response with a lock.
fn answer(lock: &Lock, status: u16) -> Outcome {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery>",
    );
    push_lock(&mut text, lock, seconds());
    text.push_str("</D:lockdiscovery></D:prop>\n");
    let reason = if status == 201 { "Created" } else { "OK" };
    let mut outcome = xml_response(status, reason, Body::Bytes(text.into()));
    if let Outcome::Response(response) = &mut outcome {
        response.head.add("Lock-Token", format!("<{}>", lock.token));
    }
    outcome
}

/// Removes a lock.
pub(super) async fn unlock(request: &mut Request, dav: &Dav) -> Outcome {
    let Some(locks) = dav.locks(request).cloned() else { return Outcome::status(405) };
    let text = request.head().fields().named(b"Lock-Token").next().map(<[u8]>::trim_ascii);
    let token = text.and_then(|text| text.strip_prefix(b"<")?.strip_suffix(b">"));
    let Some(token) = token else {
        return refuse(request, 400, format_args!("client sent no valid \"Lock-Token\" header"));
    };
    let token = Token::parse(token);
    let name = match file(request) {
        Ok(name) => name,
        Err(outcome) => return outcome,
    };
    if let Err(outcome) = conditions(request, dav).await {
        return outcome;
    }
    let path = lock_path(request, dav, &name, true).await;
    match token {
        Some(token) if locks.remove(&path, token, seconds()) => empty(204),
        _ => refuse(request, 409, format_args!("there is no such lock to UNLOCK")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        for (text, expected) in [
            ("", 60),
            ("Second-10", 10),
            ("Second-100", 60),
            ("Second-99999999999999999999", 60),
            ("Infinite", 60),
            ("Extend, second-5", 5),
            ("Second-0", 1),
            ("Second-x", 60),
        ] {
            assert_eq!(timeout(text.as_bytes(), 60), expected, "{text}");
        }
    }

    #[test]
    fn bodies_of_lock() {
        let parse = |scope: &str, rest: &str| {
            let body = format!(
                "<lockinfo xmlns='DAV:'><lockscope>{scope}</lockscope>\
                 <locktype><write/></locktype>{rest}</lockinfo>"
            );
            LockInfo::parse(body.as_bytes()).map(|wanted| (wanted.exclusive, wanted.owner))
        };
        assert_eq!(parse("<exclusive/>", ""), Some((true, String::new())));
        let owner = "<owner><href>a&amp;b</href></owner>";
        let written = "<href xmlns=\"DAV:\">a&amp;b</href>".to_owned();
        assert_eq!(parse("<shared/>", owner), Some((false, written)));
        assert_eq!(parse("", ""), None);
        assert_eq!(parse("<shared/><exclusive/>", ""), None);
        let long = format!("<owner>{}</owner>", "x".repeat(OWNER_BYTES_MAX + 1));
        assert_eq!(parse("<shared/>", &long), None);
    }
}
