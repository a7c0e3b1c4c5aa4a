//! Responses of an issuer: read within bounds, and texts that are safe to show.

use std::time::Duration;

use nowait_message::http_date;
use serde_json::{Map, Value};

/// Maximum size of a response's body.
pub const BODY_BYTES_MAX: usize = 256 * 1024;

/// Chains besides the default one.
const ALTERNATES_MAX: usize = 5;

/// Maximum length of URLs and nonces.
pub(crate) const TEXT_BYTES_MAX: usize = 2048;

/// Maximum length of an issuer's text in errors.
const SHOWN_MAX: usize = 300;

/// The reason why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueError {
    /// For the log.
    pub text: String,
    /// The pause requested by the issuer.
    pub retry_after: Option<Duration>,
}

impl IssueError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), retry_after: None }
    }
}

/// A response of the issuer.
#[derive(Clone, Debug, Default)]
pub struct IssuerResponse {
    /// The status.
    pub status: u16,
    /// The fields, with names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl IssuerResponse {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.trim())
    }

    /// The pause requested by the issuer (RFC 9110, 10.2.3): seconds, or a date, which is compared with
    /// that of the response.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let text = self.field("retry-after")?;
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let date = |text: &str| http_date::parse(text.as_bytes());
        let seconds = date(text)?.checked_sub(date(self.field("date")?)?)?;
        u64::try_from(seconds).ok().map(Duration::from_secs)
    }

    /// Whether it is a success.
    pub(crate) fn check(&self, what: &str) -> Result<(), IssueError> {
        if (200..300).contains(&self.status) {
            return Ok(());
        }
        let value = self.json().ok().map(Value::Object);
        let mut text =
            format!("the issuer refused the request for {what} with status {}", self.status);
        if let Some((kind, detail)) = problem(value.as_ref()).filter(|(kind, _)| !kind.is_empty()) {
            text.push_str(&format!(" ({}: {detail})", shown(&kind)));
        }
        Err(IssueError { text, retry_after: self.retry_after() })
    }

    pub(crate) fn json(&self) -> Result<Map<String, Value>, IssueError> {
        if self.body.len() > BODY_BYTES_MAX {
            return Err(IssueError::new("the issuer sent too large a response"));
        }
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(map)) => Ok(map),
            _ => Err(IssueError::new("the issuer sent a response that is no JSON object")),
        }
    }

    /// URLs of a relation (RFC 8288).
    pub(crate) fn links(&self, relation: &str) -> impl Iterator<Item = &str> {
        let links = self.fields.iter().filter(|(name, _)| name == "link");
        let links = links.flat_map(|(_, value)| value.split(','));
        let links = links.filter_map(move |link| {
            let (url, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
            let mut values = rest.split(';').filter_map(|one| one.trim().strip_prefix("rel="));
            values.any(|value| value.trim_matches('"') == relation).then_some(url)
        });
        links.filter(|url| check_url(url).is_ok())
    }

    /// Other chains of the certificate (RFC 8555, 7.4.2).
    pub(crate) fn alternates(&self) -> Vec<String> {
        self.links("alternate").take(ALTERNATES_MAX).map(str::to_owned).collect()
    }
}

pub(crate) fn check_url(url: &str) -> Result<(), IssueError> {
    let is_good = url.starts_with("https://")
        && url.len() <= TEXT_BYTES_MAX
        && url.bytes().all(|byte| byte.is_ascii_graphic());
    match is_good {
        true => Ok(()),
        false => Err(IssueError::new(format!("the issuer sent an invalid URL \"{}\"", shown(url)))),
    }
}

pub(crate) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect::<String>().escape_debug().to_string()
}

pub(crate) fn text<'m>(map: &'m Map<String, Value>, name: &str) -> Result<&'m str, IssueError> {
    map.get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| IssueError::new(format!("the issuer's response lacks \"{name}\"")))
}

pub(crate) fn url(map: &Map<String, Value>, name: &str) -> Result<String, IssueError> {
    let url = text(map, name)?;
    check_url(url).map(|()| url.to_owned())
}

/// The issuer's description of an error (RFC 7807).
pub(crate) fn problem(value: Option<&Value>) -> Option<(String, String)> {
    let problem = value?.as_object()?;
    let part = |name| problem.get(name).and_then(Value::as_str).unwrap_or_default();
    let kind = part("type").rsplit(':').next().unwrap_or_default().to_owned();
    Some((kind, shown(part("detail"))))
}
