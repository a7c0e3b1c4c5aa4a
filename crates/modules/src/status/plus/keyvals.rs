//! `http/keyvals/NAME` and `stream/keyvals/NAME`: reads, adds, changes and removes pairs of key-value zones.

use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::Errno;
use nowait_front::keyval::KeyvalZone;
use nowait_front::keyval::table::PairError;
use nowait_front::state_file::StateFile;
use nowait_http::keyvals::KEYVALS;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_message::Method;
use nowait_runtime::clock;
use nowait_runtime::fs::Io;
use nowait_runtime::pool::blocking;
use serde_json::{Map, Value};

use super::answer::{Answer, argument, content, fields, members, note};
use super::error::ApiError;

/// Maximum size of the body of a request, in bytes; `client_max_body_size` is smaller by default.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The code of most errors in a body.
const FORMAT: &str = "KeyvalFormatError";

fn zones(request: &Request, protocol: &str) -> Vec<Arc<KeyvalZone>> {
    let current = request.current();
    match protocol {
        "http" => current.conf.settings.get(&KEYVALS).cloned().unwrap_or_default(),
        _ => current.sessions.as_ref().map(|report| report().keyvals).unwrap_or_default(),
    }
}

fn zone(request: &Request, protocol: &str, name: &str) -> Result<Arc<KeyvalZone>, ApiError> {
    let found = zones(request, protocol).into_iter().find(|zone| zone.name == name);
    found.ok_or_else(|| ApiError::missing(&[protocol, "keyvals", name]))
}

fn text(value: &Bytes) -> Value {
    String::from_utf8_lossy(value).into()
}

fn pairs(zone: &KeyvalZone) -> Value {
    let all = zone.pairs.all(clock().unix_ms());
    Value::Object(all.into_iter().map(|(key, value)| (key.to_string(), text(&value))).collect())
}

/// Runs what may be long with many pairs on a thread of a pool.
async fn off_loop<T: Send + 'static>(
    request: &Request,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    blocking(request.current().compute_pool(), work).await.unwrap_or_else(|error| {
        request.log(Level::Error, format_args!("api: {error}"));
        Err(ApiError::BUSY)
    })
}

/// GET of all zones, or of one, or with the argument `key` of one pair.
pub(super) async fn read(
    request: &Request,
    protocol: &str,
    rest: &[&str],
) -> Result<Answer, ApiError> {
    match rest {
        [] => {
            let zones = zones(request, protocol);
            if fields(request).is_some_and(|fields| fields.is_empty()) {
                let names = zones.iter().map(|zone| Value::String(zone.name.clone()));
                return Ok(Answer::ok(&names.collect()));
            }
            let all = move || zones.iter().map(|zone| (zone.name.clone(), pairs(zone))).collect();
            off_loop(request, move || Ok(Answer::ok(&Value::Object(all())))).await
        }
        [name] => {
            let zone = zone(request, protocol, name)?;
            let Some(key) = argument(request, "key") else {
                return off_loop(request, move || Ok(Answer::ok(&pairs(&zone)))).await;
            };
            let value = zone.pairs.get(&key, clock().unix_ms());
            let value = value.ok_or_else(|| refusal(PairError::NotFound, &zone))?;
            Ok(Answer::ok(&Value::Object(Map::from_iter([(key, text(&value))]))))
        }
        _ => Err(ApiError::PATH),
    }
}

/// POST, PATCH and DELETE.
pub(super) async fn change(
    request: &mut Request,
    method: Method,
    protocol: &str,
    rest: &[&str],
) -> Result<Answer, ApiError> {
    let [name] = rest else { return Err(ApiError::PATH) };
    let zone = zone(request, protocol, name)?;
    let of = zone.clone();
    let (answer, what) = match method {
        Method::Post => {
            let content = content(request, BODY_BYTES_MAX).await?;
            let added = off_loop(request, move || add(&of, members(&content)?)).await?;
            (Answer { status: 201, text: None }, format!("{added} added to"))
        }
        Method::Patch => {
            let content = content(request, BODY_BYTES_MAX).await?;
            let what = off_loop(request, move || modify(&of, members(&content)?)).await?;
            (Answer::EMPTY, format!("{what} in"))
        }
        Method::Delete => {
            let clear = move || {
                of.pairs.clear();
                Ok(())
            };
            off_loop(request, clear).await?;
            (Answer::EMPTY, "all pairs removed from".to_owned())
        }
        _ => return Err(ApiError::METHOD),
    };
    // Values may be secrets: the log has keys only.
    note(request, &format!("{what} {protocol} keyval zone \"{}\"", zone.name.escape_default()));
    save(request, &zone).await;
    Ok(answer)
}

/// A value of the body, and when it ends.
fn member(
    zone: &KeyvalZone,
    name: &str,
    value: Value,
) -> Result<(Option<String>, Option<u64>), ApiError> {
    let refuse = |text: String| Err(ApiError::new(400, text, FORMAT));
    match value {
        Value::String(text) => Ok((Some(text), None)),
        Value::Object(mut members) => {
            let (text, expire) = (members.remove("value"), members.remove("expire"));
            if let Some(other) = members.keys().next() {
                return refuse(format!("unknown parameter \"{other}\""));
            }
            let text = match text {
                Some(Value::String(text)) => Some(text),
                None => None,
                Some(_) => return refuse(format!("invalid value of key \"{name}\"")),
            };
            let end = match expire.map(|expire| expire.as_u64()) {
                None => None,
                Some(_) if zone.timeout_ms.is_none() => {
                    return refuse("keyval timeout is not enabled".into());
                }
                Some(Some(expire)) => Some(clock().unix_ms().saturating_add(expire)),
                Some(None) => return refuse(format!("invalid \"expire\" of key \"{name}\"")),
            };
            Ok((text, end))
        }
        _ => refuse(format!("invalid value of key \"{name}\"")),
    }
}

/// The end of a pair for which the request sets none.
fn default_end(zone: &KeyvalZone) -> Option<u64> {
    zone.timeout_ms.map(|timeout| clock().unix_ms().saturating_add(timeout))
}

/// Adds pairs; returns what the log calls them.
fn add(zone: &KeyvalZone, members: Map<String, Value>) -> Result<String, ApiError> {
    let mut pairs = Vec::with_capacity(members.len());
    for (key, value) in members {
        let (value, end) = member(zone, &key, value)?;
        let Some(value) = value else {
            return Err(ApiError::new(400, format!("key \"{key}\" has no value"), FORMAT));
        };
        pairs.push((key, value, end.or_else(|| default_end(zone))));
    }
    let Some((first, ..)) = pairs.first() else {
        return Err(ApiError::new(400, "key required", FORMAT));
    };
    match zone.pairs.add(&pairs, clock().unix_ms()) {
        Ok(true) if pairs.len() == 1 => Ok(format!("key \"{}\"", first.escape_default())),
        Ok(true) => Ok(format!("{} keys", pairs.len())),
        Ok(false) => {
            Err(ApiError::new(400, "only one key can be added to a zone with others", FORMAT))
        }
        Err(error) => Err(refusal(error, zone)),
    }
}

/// Changes or removes the pair in the body; returns what the log says.
fn modify(zone: &KeyvalZone, members: Map<String, Value>) -> Result<String, ApiError> {
    if members.len() > 1 {
        return Err(ApiError::new(400, "only one key can be updated", FORMAT));
    }
    let Some((key, value)) = members.into_iter().next() else {
        return Err(ApiError::new(400, "key required", FORMAT));
    };
    let (now, shown) = (clock().unix_ms(), key.escape_default());
    if value.is_null() {
        zone.pairs.remove(&key, now).map_err(|error| refusal(error, zone))?;
        return Ok(format!("key \"{shown}\" removed"));
    }
    let (value, end) = member(zone, &key, value)?;
    let end = end.or_else(|| default_end(zone));
    let changed = zone.pairs.change(&key, value.as_deref(), end, now);
    changed.map_err(|error| refusal(error, zone))?;
    Ok(format!("key \"{shown}\" changed"))
}

fn refusal(error: PairError, zone: &KeyvalZone) -> ApiError {
    match error {
        PairError::Format => ApiError::new(400, "invalid key format", FORMAT),
        PairError::Exists => ApiError::new(409, "key already exists", "KeyvalKeyExists"),
        PairError::NotFound => ApiError::new(404, "keyval key not found", "KeyvalKeyNotFound"),
        PairError::Full => {
            let (_, size) = zone.pairs.usage();
            let text = format!("keyval zone \"{}\" has no room: its size is {size}", zone.name);
            ApiError::new(413, text, "KeyvalOutOfMemory")
        }
    }
}

/// Writes the state file, if there is one. The change is in use already, so an error is logged only.
async fn save(request: &Request, zone: &Arc<KeyvalZone>) {
    let Some(path) = &zone.state else { return };
    let io = Io::new(request.current().default_pool().clone());
    let pairs = zone.pairs.clone();
    let saved = StateFile::of(path).save(&io, move || pairs.state_text(clock().unix_ms())).await;
    if let Err(error) = saved {
        let (name, path) = (zone.name.escape_default(), String::from_utf8_lossy(path));
        request.log(
            Level::Crit,
            format_args!(
                "api: pairs of keyval zone \"{name}\" were not saved in \"{path}\" ({})",
                Errno(&error)
            ),
        );
    }
}
