//! `limit_rate`: how fast a response is sent.
//!
//! Made by front ends for each response that has a limit. nginx: `ngx_http_write_filter`.

use std::fmt;
use std::time::{Duration, Instant};

use nowait_conf::Size;
use nowait_runtime::now;

use crate::request::Request;

/// `limit_rate`: how fast a response may be sent.
pub struct Rate {
    bytes_per_second: u64,
    after: u64,
    started: Instant,
    /// Bytes sent so far.
    pub sent: u64,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per second", Size(self.bytes_per_second))?;
        match self.after {
            0 => Ok(()),
            after => write!(f, " after the first {}", Size(after)),
        }
    }
}

impl Rate {
    /// Whether there may be a limit.
    pub fn applies(request: &Request) -> bool {
        request.limit_rate().is_some() || request.location().client.limit_rate.is_some()
    }

    /// Of a request's location; `None`: as fast as possible.
    pub fn of(request: &Request) -> Option<Self> {
        let client = &request.location().client;
        let size = |text: &crate::conf::SizeText| {
            let value = request.evaluate(text);
            <Size as nowait_conf::Value>::from_word(&value).map_or(0, |size| size.0)
        };
        let rate = match request.limit_rate() {
            Some(rate) => rate,
            None => client.limit_rate.as_ref().map_or(0, size),
        };
        if rate == 0 {
            return None;
        }
        let after = request.limit_rate_after();
        let after = after.unwrap_or_else(|| client.limit_rate_after.as_ref().map_or(0, size));
        Some(Self { bytes_per_second: rate, after, started: now(), sent: 0 })
    }

    /// The number of bytes that may be sent now, or the time to wait.
    pub fn allowed(&self, now: Instant) -> Result<u64, Duration> {
        let elapsed = now.saturating_duration_since(self.started).as_millis();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        // nginx grants whole seconds: the first one at once.
        let budget =
            self.bytes_per_second.saturating_mul(elapsed / 1000 + 1).saturating_add(self.after);
        match budget.checked_sub(self.sent) {
            Some(left @ 1..) => Ok(left),
            _ => {
                let over = self.sent.saturating_sub(budget) + 1;
                let ms = over.saturating_mul(1000) / self.bytes_per_second;
                Err(Duration::from_millis(ms + 1000 - elapsed % 1000))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_grants_the_first_second_at_once() {
        let started = Instant::now();
        let mut rate = Rate { bytes_per_second: 1000, after: 500, started, sent: 0 };
        assert_eq!(rate.allowed(started), Ok(1500));
        rate.sent = 1500;
        assert!(rate.allowed(started).is_err());
        assert_eq!(rate.allowed(started + Duration::from_secs(1)), Ok(1000));
    }
}
