//! What the paths of the API share: the body of a request, its arguments, the response, the log.

use bytes::Bytes;
use nowait_http::credentials::{Credentials, VERIFIED};
use nowait_http::log::Level;
use nowait_http::request::{Request, RequestBody};
use nowait_http::request_body;
use serde_json::{Map, Value};

use super::error::ApiError;

/// Maximum size of the body of a request, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// A response: its status, and its content.
pub(super) struct Answer {
    pub(super) status: u16,
    /// JSON.
    pub(super) text: Option<String>,
}

impl Answer {
    pub(super) fn ok(value: &Value) -> Self {
        Self { status: 200, text: Some(value.to_string()) }
    }

    pub(super) fn created(value: &Value) -> Self {
        Self { status: 201, text: Some(value.to_string()) }
    }

    /// 204
    pub(super) const EMPTY: Self = Self { status: 204, text: None };
}

/// The members of the body, an object in JSON.
pub(super) async fn object(request: &mut Request) -> Result<Map<String, Value>, ApiError> {
    members(&content(request, BODY_BYTES_MAX).await?)
}

/// The body, of at most `max` bytes.
pub(super) async fn content(request: &mut Request, max: usize) -> Result<Bytes, ApiError> {
    request_body::read_into_memory(request, max).await.map_err(|status| match status {
        413 => ApiError::TOO_LARGE,
        _ => ApiError::BODY,
    })?;
    match request.body() {
        RequestBody::Memory(text) => Ok(text.clone()),
        _ => Err(ApiError::JSON),
    }
}

/// The members of an object in JSON.
pub(super) fn members(text: &[u8]) -> Result<Map<String, Value>, ApiError> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(members)) => Ok(members),
        // Not an object, or not JSON.
        _ => Err(ApiError::JSON),
    }
}

/// Logs a change with the client that asked for it.
pub(super) fn note(request: &Request, what: &str) {
    let verified = request.state().get(&VERIFIED).is_some();
    match Credentials::of(request).filter(|_| verified) {
        Some(credentials) => {
            let user = credentials.user.escape_ascii();
            request.log(Level::Notice, format_args!("api: {what}, by user \"{user}\""));
        }
        None => request.log(Level::Notice, format_args!("api: {what}")),
    }
}

/// The argument `fields`.
pub(super) fn fields(request: &Request) -> Option<Vec<String>> {
    let list = argument(request, "fields")?;
    Some(list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// An argument of the query, decoded.
pub(super) fn argument(request: &Request, name: &str) -> Option<String> {
    let query = request.uri().query().split(|byte| *byte == b'&');
    let value = query.filter_map(|argument| argument.strip_prefix(name.as_bytes()));
    let value = value.filter_map(|rest| rest.strip_prefix(b"=")).next()?;
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [byte, tail @ ..] = rest {
        let hex = |byte: &u8| char::from(*byte).to_digit(16);
        (out, rest) = match (byte, tail) {
            (b'%', [high, low, tail @ ..]) if hex(high).is_some() && hex(low).is_some() => {
                let value = hex(high)? * 16 + hex(low)?;
                out.push(u8::try_from(value).ok()?);
                (out, tail)
            }
            (b'+', tail) => {
                out.push(b' ');
                (out, tail)
            }
            (byte, tail) => {
                out.push(*byte);
                (out, tail)
            }
        };
    }
    String::from_utf8(out).ok()
}
