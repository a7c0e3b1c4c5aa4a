//! Responses of an issuer of certificates: no matter what it sends, the order goes on or ends with a reason, and
//! so does a question about a renewal.
//!
//! The input is a list of responses, separated by zeros; one that begins with `!` is a refusal.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use nowait_acme::{
    Algorithm, CertificateRequest, Identifier, IssuerResponse, NextAction, Order, OrderSettings,
    PrivateKey, Renewal, is_token, renewal_url,
};

/// Requests of an order, at most.
const STEPS_MAX: usize = 200;

fuzz_target!(|data: &[u8]| {
    let whole = IssuerResponse { status: 200, fields: Vec::new(), body: data.to_vec() };
    if let Ok(Some(url)) = renewal_url(&whole, "a.b") {
        assert!(url.starts_with("https://") && url.ends_with("/a.b"));
    }
    if let Ok(renewal) = Renewal::read(&whole) {
        let time = renewal.time(u16::MAX / 2);
        assert!((renewal.start..=renewal.end).contains(&time));
    }
    let settings = OrderSettings {
        directory: "https://a.test/dir".to_owned(),
        contacts: Vec::new(),
        accepts_terms: true,
        external: None,
        profile: Some(("short".to_owned(), false)),
        challenge: if data.len() % 2 == 0 { "http-01" } else { "dns-01" },
        publishing: Duration::from_secs(60),
        wants_alternates: true,
        replaces: Some("a.b".to_owned()),
    };
    let (Ok(account), Ok(own)) =
        (PrivateKey::generate(Algorithm::Ecdsa256), PrivateKey::generate(Algorithm::Ecdsa256))
    else {
        return;
    };
    let all = vec![Identifier::Dns("a.test".to_owned())];
    let Ok(request) = CertificateRequest::new(&own, &all, false) else { return };
    let mut now = Instant::now();
    let mut order = Order::new(settings, account, None, all, request, now);
    let mut responses = data.split(|byte| *byte == 0);
    for _ in 0..STEPS_MAX {
        match order.next(now) {
            NextAction::Wait(time) => now += time,
            NextAction::Publish(challenge) => assert!(is_token(&challenge.token)),
            NextAction::Done(issued) => return assert!(!issued.chains.is_empty()),
            NextAction::Failed(failure) => {
                return assert!(!failure.text.contains(char::is_control));
            }
            NextAction::Send { url, head, .. } => {
                assert!(url.starts_with("https://"));
                let Some(body) = responses.next() else { return };
                let text = String::from_utf8_lossy(body).into_owned();
                let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
                let received = IssuerResponse {
                    status: if body.starts_with(b"!") { 400 } else { 200 },
                    fields: vec![
                        field("replay-nonce", "abc"),
                        field("location", "https://a.test/1"),
                        field("link", &text),
                        field("retry-after", &text),
                    ],
                    body: if head { Vec::new() } else { body.to_vec() },
                };
                order.receive(&received, now);
            }
        }
    }
});
