//! Renewals: when the issuer suggests, when time has passed, and when the issuer is dead.

use std::time::{Duration, SystemTime};

use nowait_testkit::{Server, wait};
use rcgen::{CertificateParams, KeyPair};

use super::pebble::{AcmeStage, presented, wait_for_other};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Replaces the certificate of the state by one of the authority that is this old, of 90 days.
fn age(stage: &AcmeStage, days: u32) -> String {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = epoch + (now - days * DAY);
    params.not_after = epoch + (now + 90 * DAY - days * DAY);
    params.use_authority_key_identifier_extension = true;
    let own = stage.authority.sign(params, KeyPair::generate().unwrap());
    std::fs::write(stage.file(), format!("{}{}", own.key, own.chain)).unwrap();
    own.chain
}

/// Hours until a certificate is to be renewed, as the server has said it last.
#[track_caller]
fn renewed_in(server: &Server) -> u32 {
    let hours = |line: &str| {
        let (_, rest) = line.split_once("localhost is to be renewed in ")?;
        rest.split_once(" hours")?.0.parse().ok()
    };
    let found = wait::try_until(wait::PATIENCE, || server.log().lines().rev().find_map(hours));
    found.unwrap_or_else(|| panic!("no time of renewal:\n{}", server.log()))
}

/// After about two thirds of 90 days.
#[track_caller]
fn renewed_in_time(server: &Server) {
    let days = renewed_in(server) / 24;
    assert!((50..=60).contains(&days), "{days}");
}

/// Clocks of peers can't be moved; certificates can. The new one replaces one that the issuer does not
/// know, and says so, without harm.
#[test]
fn old_certificates_are_renewed_and_used_meanwhile() {
    let Some(stage) = AcmeStage::new() else { return };
    let site = || stage.site("", "", &stage.challenges()).start();
    let issuer = stage.start();
    let server = site();
    wait_for_other(&server, None);
    server.stop();
    drop(issuer);
    for days in [70, 100] {
        // The issuer is dead: what is in use stays in use.
        let old = age(&stage, days);
        let server = site();
        server.wait_log("next attempt in");
        let log = server.log();
        let expected = match days {
            70 => "the one in use is valid for another 4",
            _ => "the one in use has expired",
        };
        assert!(log.contains("no renewal information for localhost: connect()"), "{log}");
        assert!(log.contains(expected), "{log}");
        assert_eq!(presented(&server).as_deref(), Some(&old[..]));
        let _issuer = stage.start();
        server.reload();
        wait_for_other(&server, Some(&old));
        server.wait_log("new certificate for localhost, valid for 89 days");
        server.stop();
    }
    // 30 days are no reason; without an issuer there is no other reason.
    let young = age(&stage, 30);
    let server = site();
    server.wait_log("localhost is to be renewed in");
    assert_eq!(presented(&server).as_deref(), Some(&young[..]));
    assert!(!server.log().contains("next attempt in"), "{}", server.log());
    server.stop();
}

/// A start with a good state asks for no certificate, and a window in the past leads to a renewal.
#[test]
fn the_issuer_decides_when_to_renew() {
    let Some(stage) = AcmeStage::new() else { return };
    let _issuer = stage.start();
    let site = || stage.site("", "", &stage.challenges()).start();
    let server = site();
    let own = wait_for_other(&server, None);
    renewed_in_time(&server);
    server.stop();
    // What makes no sense is like no answer.
    stage.set_renewal(&own, "{\"suggestedWindow\": 7}");
    let server = site();
    server.wait_log("no renewal information for localhost: the issuer's response has no window");
    renewed_in_time(&server);
    assert_eq!(presented(&server).as_deref(), Some(&own[..]));
    assert!(!server.log().contains("new certificate"));
    server.stop();
    let window = "{\"suggestedWindow\": {\"start\": \"2026-01-02T03:04:05Z\", \"end\": \
                  \"2026-01-03T03:04:05Z\"}}";
    stage.set_renewal(&own, window);
    let server = site();
    let new = wait_for_other(&server, Some(&own));
    // The new one has a window of its own.
    wait::until("a time of renewal", wait::PATIENCE, || (renewed_in(&server) > 0).then_some(()));
    renewed_in_time(&server);
    server.stop();
    let server = site();
    renewed_in_time(&server);
    assert_eq!(presented(&server), Some(new));
    server.stop();
}

/// The issuer suggests a moment that is still to come.
#[test]
fn certificates_are_renewed_without_a_reload() {
    let Some(stage) = AcmeStage::new() else { return };
    let _issuer = stage.start();
    let site = || stage.site("", "", &stage.challenges()).start();
    let server = site();
    let own = wait_for_other(&server, None);
    server.stop();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let time = |after: u64| {
        let date = rcgen::date_time_ymd(1970, 1, 1) + now + Duration::from_secs(after);
        let ((year, month, day), (hour, minute, second)) = (date.to_calendar_date(), date.to_hms());
        let month = u8::from(month);
        format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    };
    let (start, end) = (time(2), time(3));
    let window = format!("{{\"start\": \"{start}\", \"end\": \"{end}\"}}");
    stage.set_renewal(&own, &format!("{{\"suggestedWindow\": {window}}}"));
    let server = site();
    server.wait_log("localhost is to be renewed in 0 hours");
    let new = wait_for_other(&server, Some(&own));
    assert!(server.log().contains("new certificate for localhost"));
    server.stop();
    assert_ne!(new, own);
}
