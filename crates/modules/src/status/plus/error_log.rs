//! `nowait/1/error_log`: the level of all error logs while the server runs, until the next reload.

use nowait_front::log::error::{common_level, set_common_level};
use nowait_http::log::Level;
use nowait_http::request::Request;
use serde_json::{Value, json};

use super::answer::{Answer, note, object};
use super::error::ApiError;

const CODE: &str = "ErrorLogFormatError";

/// GET: the level; null if each log has its own.
pub(super) fn read() -> Answer {
    Answer::ok(&json!({ "level": common_level().map(Level::name) }))
}

/// PATCH: sets it.
pub(super) async fn change(request: &mut Request) -> Result<Answer, ApiError> {
    let refuse = |text: String| ApiError::new(400, text, CODE);
    let mut members = object(request).await?;
    let level = match members.remove("level") {
        Some(Value::Null) => None,
        Some(Value::String(name)) => match Level::from_name(name.as_bytes()) {
            Some(level) => Some(level),
            None => return Err(refuse(format!("unknown level \"{}\"", name.escape_default()))),
        },
        Some(_) => return Err(refuse("invalid \"level\" value".into())),
        None => return Err(refuse("\"level\" is required".into())),
    };
    if let Some((name, _)) = members.into_iter().next() {
        return Err(refuse(format!("unknown parameter \"{}\"", name.escape_default())));
    }
    let what = match level {
        Some(level) => format!("all error logs have the level \"{level}\" until the next reload"),
        None => "all error logs have their own levels again".to_owned(),
    };
    // The line is written if either level lets it pass.
    let says_less = level.is_some_and(|level| level < Level::Notice);
    if says_less {
        note(request, &what);
    }
    set_common_level(level);
    if !says_less {
        note(request, &what);
    }
    Ok(read())
}
