//! Renewal information of an issuer (ARI, RFC 9773).
//!
//! The caller requests the directory, then the URL that [`renewal_url`] finds in it; both with GET.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nowait_message::http_date;

use crate::base64;
use crate::response::{IssueError, IssuerResponse, check_url, shown, text};

/// The lifetime of an answer without `Retry-After` (RFC 9773, 4.3.3: "every 6 hours").
const HOLDS: Duration = Duration::from_secs(6 * 3600);

/// Bounds of `Retry-After` (RFC 9773, 4.3.2: "values under one minute could be treated as one minute, and
/// over one day as one day").
const HOLDS_MIN: Duration = Duration::from_secs(60);
const HOLDS_MAX: Duration = Duration::from_secs(24 * 3600);

/// Maximum length of parts of an identifier: no serial number or key identifier is longer.
const PART_BYTES_MAX: usize = 64;

/// The name of a certificate in requests (RFC 9773, 4.1): from the `keyIdentifier` of its issuer and the
/// contents of its serial number in DER. `None`: it can't have one.
pub fn renewal_id(authority_key: &[u8], serial: &[u8]) -> Option<String> {
    let fits = |part: &[u8]| (1..=PART_BYTES_MAX).contains(&part.len());
    (fits(authority_key) && fits(serial))
        .then(|| format!("{}.{}", base64::encode(authority_key), base64::encode(serial)))
}

/// The URL of a certificate's renewal information, from the issuer's directory. `None`: the issuer does not
/// support it.
///
/// # Errors
/// The response is invalid.
pub fn renewal_url(directory: &IssuerResponse, id: &str) -> Result<Option<String>, IssueError> {
    directory.check("its directory")?;
    let map = directory.json()?;
    if !map.contains_key("renewalInfo") {
        return Ok(None);
    }
    let base = text(&map, "renewalInfo")?;
    let url = format!("{}/{id}", base.trim_end_matches('/'));
    check_url(&url).map(|()| Some(url))
}

/// The renewal window suggested by the issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The beginning of the window.
    pub start: SystemTime,
    /// The end.
    pub end: SystemTime,
    /// The lifetime of this answer, after which it must be requested again.
    pub holds: Duration,
}

impl Renewal {
    /// Reads a response.
    ///
    /// # Errors
    /// The response is invalid.
    pub fn read(received: &IssuerResponse) -> Result<Self, IssueError> {
        received.check("renewal information")?;
        let map = received.json()?;
        let window = map.get("suggestedWindow").and_then(|window| window.as_object());
        let window =
            window.ok_or_else(|| IssueError::new("the issuer's response has no window"))?;
        let time = |name| {
            let text = text(window, name)?;
            let failed =
                || IssueError::new(format!("the issuer sent an invalid time {}", shown(text)));
            rfc3339(text).ok_or_else(failed)
        };
        let (start, end) = (time("start")?, time("end")?);
        // RFC 9773, 4.2: such a window is invalid.
        if end <= start {
            return Err(IssueError::new("the issuer sent a window for renewal that has no length"));
        }
        Ok(Self { start, end, holds: holds(received.retry_after()) })
    }

    /// A time in the window, chosen by `random`.
    pub fn time(&self, random: u16) -> SystemTime {
        let length = self.end.duration_since(self.start).unwrap_or_default();
        self.start + Duration::from_secs(length.as_secs() * u64::from(random) / u64::from(u16::MAX))
    }
}

/// The lifetime of an answer, or the pause after a failure, for this `Retry-After`.
pub(crate) fn holds(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(HOLDS).clamp(HOLDS_MIN, HOLDS_MAX)
}

/// A time as in RFC 3339, between 1970 and 9999; fractions of seconds are dropped.
fn rfc3339(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let (year, month_day) = date.split_once('-')?;
    let (month, day) = month_day.split_once('-')?;
    let month = month.parse::<usize>().ok()?.checked_sub(1)?;
    let month = std::str::from_utf8(*http_date::MONTHS.get(month)?).ok()?;
    let unix = http_date::parse(format!("Day, {day} {month} {year} {time} GMT").as_bytes())?;
    let zone = match rest.strip_prefix('.') {
        None => rest,
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
    };
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = match zone.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let (hours, minutes) = zone[1..].split_once(':')?;
            let two = |text: &str| (text.len() == 2).then(|| text.parse::<u8>().ok()).flatten();
            sign * (i64::from(two(hours)?) * 3600 + i64::from(two(minutes)?) * 60)
        }
    };
    let unix = u64::try_from(unix.checked_sub(offset)?).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(unix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn received(status: u16, body: &str, retry_after: Option<&str>) -> IssuerResponse {
        let fields = retry_after.map(|text| ("retry-after".to_owned(), text.to_owned()));
        IssuerResponse {
            status,
            fields: fields.into_iter().collect(),
            body: body.as_bytes().to_vec(),
        }
    }

    /// The example of RFC 9773, 4.1.
    #[test]
    fn identifiers() {
        let key = [
            0x69, 0x88, 0x5b, 0x6b, 0x87, 0x46, 0x40, 0x41, 0xe1, 0xb3, 0x7b, 0x84, 0x7b, 0xa0,
            0xae, 0x2c, 0xde, 0x01, 0xc8, 0xd4,
        ];
        let serial = [0x00, 0x87, 0x65, 0x43, 0x21];
        let id = renewal_id(&key, &serial).unwrap();
        assert_eq!(id, "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE");
        assert!(renewal_id(b"", &serial).is_none() && renewal_id(&key, &[1; 65]).is_none());
    }

    #[test]
    fn times() {
        let seconds = |text| {
            let time = rfc3339(text)?;
            Some(time.duration_since(UNIX_EPOCH).unwrap().as_secs())
        };
        assert_eq!(seconds("2025-01-02T04:00:00Z"), Some(1_735_790_400));
        assert_eq!(seconds("2025-01-02t04:00:00.123456Z"), Some(1_735_790_400));
        assert_eq!(seconds("2025-01-02T05:30:00+01:30"), Some(1_735_790_400));
        assert_eq!(seconds("2025-01-02T03:00:00-01:00"), Some(1_735_790_400));
        for bad in [
            "",
            "2025-01-02",
            "2025-01-02T04:00:00",
            "2025-13-02T04:00:00Z",
            "2025-00-02T04:00:00Z",
            "2025-02-30T04:00:00Z",
            "2025-01-02T04:00:00+1:00",
            "2025-01-02T04:00:00ä",
            "1969-01-02T04:00:00Z",
            "ä25-01-02T04:00:00Z",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn windows() {
        let window = |start: &str, end: &str| {
            json!({ "suggestedWindow": { "start": start, "end": end } }).to_string()
        };
        let good = window("2025-01-02T04:00:00Z", "2025-01-03T04:00:00Z");
        let read = |status, body: &str, retry| Renewal::read(&received(status, body, retry));
        let renewal = read(200, &good, Some("21600")).unwrap();
        assert_eq!(renewal.holds, HOLDS);
        assert_eq!((renewal.time(0), renewal.time(u16::MAX)), (renewal.start, renewal.end));
        assert_eq!(read(200, &good, None).unwrap().holds, HOLDS);
        assert_eq!(read(200, &good, Some("1")).unwrap().holds, HOLDS_MIN);
        assert_eq!(read(200, &good, Some("999999999")).unwrap().holds, HOLDS_MAX);
        let reverse = window("2025-01-02T04:00:00Z", "2025-01-02T04:00:00Z");
        assert!(read(200, &reverse, None).is_err());
        for bad in ["", "{}", "[]", "{\"suggestedWindow\":7}", &window("x", "y")] {
            assert!(read(200, bad, None).is_err(), "{bad}");
        }
        let failure = read(503, &good, Some("7")).unwrap_err();
        assert!(failure.text.contains("503"), "{}", failure.text);
        assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn directories() {
        let url = |body: &str| renewal_url(&received(200, body, None), "a.b");
        let is = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(url("{\"renewalInfo\":\"https://a.test/info\"}"), is("https://a.test/info/a.b"));
        assert_eq!(
            url("{\"renewalInfo\":\"https://a.test/info/\"}"),
            is("https://a.test/info/a.b")
        );
        assert_eq!(url("{}"), Ok(None));
        for bad in ["", "[]", "{\"renewalInfo\":7}", "{\"renewalInfo\":\"http://a.test\"}"] {
            assert!(url(bad).is_err(), "{bad}");
        }
        assert!(renewal_url(&received(302, "{}", None), "a.b").is_err());
    }
}
