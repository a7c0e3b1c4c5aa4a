//! Warnings about certificates that expire: in the log and in the events of status pages.
//!
//! Used by the control thread: a check after each new configuration, and every hour. A certificate is reported when
//! it comes near its end, when it has expired, and once a day in between. No clock: the caller tells the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use nowait_front::tls::certificates::{self, CertificateUse};
use nowait_runtime::events::{self, EventKind};

/// The time between two checks.
const PAUSE: Duration = Duration::from_secs(3600);

/// Certificates are reported from this time before their end on.
const NEAR_S: i64 = 10 * 86_400;

/// The time until a certificate is reported again.
const AGAIN: Duration = Duration::from_secs(86_400);

/// Reported certificates, by source and serial number.
type Reported = BTreeMap<(String, String), (EventKind, Instant)>;

/// The state of the checks.
#[derive(Debug, Default)]
pub struct CertificateWatch {
    /// The time of the next check; `None`: no configuration is in use.
    next: Option<Instant>,
    reported: Reported,
}

impl CertificateWatch {
    /// Other certificates are in use: the next check is due.
    pub fn check_now(&mut self) {
        self.next = Some(Instant::now());
    }

    /// The time of the next check.
    pub fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Checks the certificates if that is due.
    pub fn check(&mut self, now: Instant, wall: SystemTime) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        self.next = Some(now + PAUSE);
        let all = certificates::snapshot();
        for (kind, certificate) in self.due(&all, now, wall) {
            report(kind, certificate, wall);
        }
    }

    /// The certificates to be reported.
    fn due<'c>(
        &mut self,
        all: &'c [CertificateUse],
        now: Instant,
        wall: SystemTime,
    ) -> Vec<(EventKind, &'c CertificateUse)> {
        let mut due = Vec::new();
        let mut reported = Reported::new();
        for one in all {
            let kind = match one.seconds_left(wall) {
                ..=0 => EventKind::CertificateExpired,
                left if left < NEAR_S => EventKind::CertificateExpiring,
                _ => continue,
            };
            let key = (one.source.clone(), one.serial.clone());
            let last = self.reported.get(&key).copied();
            let last = last.filter(|(old, at)| *old == kind && *at + AGAIN > now);
            if last.is_none() {
                due.push((kind, one));
            }
            reported.insert(key, last.unwrap_or((kind, now)));
        }
        self.reported = reported;
        due
    }
}

fn report(kind: EventKind, certificate: &CertificateUse, wall: SystemTime) {
    let (name, source) = (certificate.name(), &certificate.source);
    let left = certificate.seconds_left(wall);
    match kind {
        EventKind::CertificateExpired => {
            let text = format_args!("the certificate for {name} in \"{source}\" has expired");
            events::announce(kind, name, text);
        }
        _ => {
            let (days, hours) = (left / 86_400, left % 86_400 / 3600);
            let text = format_args!(
                "the certificate for {name} in \"{source}\" expires in {days} days and {hours} hours"
            );
            events::announce(kind, name, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn certificate(days: u32) -> CertificateUse {
        CertificateUse {
            source: "/etc/a.pem".to_owned(),
            names: vec!["a.example".to_owned()],
            issuer: String::new(),
            serial: days.to_string(),
            begin: SystemTime::UNIX_EPOCH,
            end: SystemTime::UNIX_EPOCH + days * DAY,
        }
    }

    #[test]
    fn each_stage_is_reported_once_a_day() {
        let all = [certificate(100)];
        let mut watch = CertificateWatch::default();
        let start = Instant::now();
        let mut due = |days: u32, hours: u32| {
            let passed = days * DAY + hours * PAUSE;
            let due = watch.due(&all, start + passed, SystemTime::UNIX_EPOCH + passed);
            due.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        assert_eq!(due(89, 23), []);
        assert_eq!(due(90, 1), [EventKind::CertificateExpiring]);
        assert_eq!(due(90, 2), []);
        assert_eq!(due(91, 1), [EventKind::CertificateExpiring]);
        assert_eq!(due(99, 23), [EventKind::CertificateExpiring]);
        assert_eq!(due(100, 0), [EventKind::CertificateExpired]);
        assert_eq!(due(100, 23), []);
        assert_eq!(due(101, 0), [EventKind::CertificateExpired]);
    }

    #[test]
    fn a_new_certificate_ends_the_warnings() {
        let mut watch = CertificateWatch::default();
        let now = Instant::now();
        let wall = SystemTime::UNIX_EPOCH + 95 * DAY;
        assert_eq!(watch.due(&[certificate(100)], now, wall).len(), 1);
        assert_eq!(watch.due(&[certificate(190)], now, wall), []);
        assert!(watch.reported.is_empty());
    }

    #[test]
    fn checks_are_an_hour_apart() {
        let mut watch = CertificateWatch::default();
        let now = Instant::now();
        watch.check(now, SystemTime::UNIX_EPOCH);
        assert_eq!(watch.deadline(), None);
        watch.check_now();
        let later = now + Duration::from_secs(60);
        watch.check(later, SystemTime::UNIX_EPOCH);
        assert_eq!(watch.deadline(), Some(later + PAUSE));
    }
}
