//! Orders from issuers that behave, fail and lie.

use super::*;
use crate::key::Algorithm;

const BASE: &str = "https://issuer.test/";
const PEM: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

fn order(change: impl FnOnce(&mut OrderSettings)) -> (Order, Instant) {
    let mut settings = OrderSettings {
        directory: format!("{BASE}dir"),
        contacts: vec!["mailto:a@b.test".to_owned()],
        accepts_terms: true,
        external: None,
        profile: None,
        challenge: "http-01",
        publishing: Duration::ZERO,
        wants_alternates: false,
        replaces: None,
    };
    change(&mut settings);
    let key = PrivateKey::generate(Algorithm::Ecdsa256).unwrap();
    let own = PrivateKey::generate(Algorithm::Ecdsa256).unwrap();
    let all = vec![Identifier::Dns("a.test".to_owned())];
    let request = CertificateRequest::new(&own, &all, false).unwrap();
    let now = Instant::now();
    (Order::new(settings, key, None, all, request, now), now)
}

/// The responses of a correct issuer.
fn answer(url: &str, polls: &mut u32) -> IssuerResponse {
    let json = |value: Value, location: &str| IssuerResponse {
        status: 200,
        fields: vec![
            ("replay-nonce".to_owned(), "abc".to_owned()),
            ("location".to_owned(), format!("{BASE}{location}")),
        ],
        body: value.to_string().into_bytes(),
    };
    let at = |path: &str| format!("{BASE}{path}");
    match url.strip_prefix(BASE).unwrap() {
        "dir" => json(
            json!({ "newNonce": at("nonce"), "newAccount": at("new-account"), "newOrder": at("new-order") }),
            "",
        ),
        "nonce" => IssuerResponse { body: Vec::new(), ..json(Value::Null, "") },
        "new-account" => json(json!({ "status": "valid" }), "account/1"),
        "new-order" => json(
            json!({ "status": "pending", "authorizations": [at("authz")], "finalize": at("finalize") }),
            "order",
        ),
        "authz" if *polls > 0 => {
            *polls -= 1;
            let state = if *polls == 0 { "valid" } else { "pending" };
            json(json!({ "status": state }), "")
        }
        "authz" => {
            *polls = 5;
            let challenges = json!([{ "type": "dns-01", "token": "x", "url": at("dns") },
                { "type": "http-01", "token": "Tok-en_1", "url": at("challenge") }]);
            let identifier = json!({ "type": "dns", "value": "a.test" });
            json(
                json!({ "status": "pending", "identifier": identifier, "challenges": challenges }),
                "",
            )
        }
        "challenge" => json(json!({ "status": "processing" }), ""),
        "order" => json(json!({ "status": "ready" }), ""),
        "finalize" => json(json!({ "status": "valid", "certificate": at("cert") }), ""),
        "cert" => {
            let mut received =
                IssuerResponse { body: PEM.as_bytes().to_vec(), ..json(Value::Null, "") };
            let link = format!("<{BASE}cert/2>; rel=\"alternate\", <{BASE}dir>;rel=\"index\"");
            received.fields.push(("link".to_owned(), link));
            received
        }
        "cert/2" => IssuerResponse { body: PEM.repeat(2).into_bytes(), ..json(Value::Null, "") },
        other => panic!("{other}"),
    }
}

/// Runs an order; `lie` may replace a response.
fn run(
    (mut order, mut now): (Order, Instant),
    mut lie: impl FnMut(&str, IssuerResponse) -> IssuerResponse,
) -> Result<(IssuedCertificate, Vec<String>, Vec<Challenge>), IssueError> {
    let (mut urls, mut challenges, mut polls) = (Vec::new(), Vec::new(), 0);
    for _ in 0..1000 {
        match order.next(now) {
            NextAction::Send { url, body, .. } => {
                if let Some(body) = &body {
                    check_signed(body, &url);
                }
                let path = url.strip_prefix(BASE).unwrap_or("?").to_owned();
                let received = lie(&path, answer(&url, &mut polls));
                urls.push(path);
                order.receive(&received, now);
            }
            NextAction::Publish(challenge) => challenges.push(challenge),
            NextAction::Wait(time) => now += time,
            NextAction::Done(issued) => return Ok((issued, urls, challenges)),
            NextAction::Failed(failure) => return Err(failure),
        }
    }
    panic!("no end: {urls:?}");
}

fn check_signed(body: &str, url: &str) {
    let body: Value = serde_json::from_str(body).unwrap();
    let part = |name: &str| base64::decode(body[name].as_str().unwrap()).unwrap();
    let protected: Value = serde_json::from_slice(&part("protected")).unwrap();
    assert_eq!((&protected["url"], &protected["nonce"]), (&json!(url), &json!("abc")));
    assert!(protected.get("kid").is_some() != protected.get("jwk").is_some());
    assert_eq!(part("signature").len(), 64);
}

/// An order that is not ready is polled within a minute, regardless of the issuer's pause.
#[test]
fn pauses_without_end_are_cut() {
    let endless = |_: &str, mut received: IssuerResponse| {
        received.fields.push(("retry-after".to_owned(), u64::MAX.to_string()));
        received
    };
    assert!(run(order(|_| {}), endless).is_ok());
    let busy = |path: &str, received| match path {
        "new-order" => IssuerResponse { status: 503, ..endless(path, received) },
        _ => received,
    };
    let failure = run(order(|_| {}), busy).unwrap_err();
    assert_eq!(failure.retry_after, Some(Duration::from_secs(u64::MAX)));
}

#[test]
fn a_certificate() {
    let (issued, urls, challenges) = run(order(|_| {}), |_, received| received).unwrap();
    assert_eq!(issued.chains, [PEM]);
    let start = ["dir", "nonce", "new-account", "new-order", "authz", "challenge", "authz"];
    assert_eq!(urls[..7], start);
    assert_eq!(urls[urls.len() - 3..], ["order", "finalize", "cert"]);
    let [challenge] = &challenges[..] else { panic!() };
    assert_eq!((&challenge.token[..], &challenge.identifier.value()[..]), ("Tok-en_1", "a.test"));
    assert!(challenge.authorization.starts_with("Tok-en_1."));
}

#[test]
fn other_chains() {
    let order = order(|settings| settings.wants_alternates = true);
    let (issued, ..) = run(order, |_, received| received).unwrap();
    assert_eq!(issued.chains.len(), 2);
}

fn refusal(kind: &str) -> IssuerResponse {
    let kind = format!("urn:ietf:params:acme:error:{kind}");
    let body = json!({ "type": kind, "detail": "De\u{1b}tail" }).to_string().into_bytes();
    let nonce = ("replay-nonce".to_owned(), "abc".to_owned());
    let retry = ("retry-after".to_owned(), "120".to_owned());
    IssuerResponse { status: 429, fields: vec![nonce, retry], body }
}

#[test]
fn refused_nonces_are_replaced() {
    let mut refuse = 0;
    let result = run(order(|_| {}), |path, received| {
        refuse += 1;
        let no_nonce = matches!(path, "dir" | "nonce" | "authz");
        if refuse % 2 == 0 && !no_nonce { refusal("badNonce") } else { received }
    });
    assert!(result.is_ok());
    let always =
        run(
            order(|_| {}),
            |path, received| {
                if path == "new-account" { refusal("badNonce") } else { received }
            },
        );
    assert!(always.unwrap_err().text.contains("badNonce"));
}

#[test]
fn refusals_name_reason_and_pause() {
    let refused = |path: &'static str, kind: &'static str| {
        let lie = move |at: &str, received| if at == path { refusal(kind) } else { received };
        run(order(|_| {}), lie).unwrap_err()
    };
    let failure = refused("new-order", "rateLimited");
    assert_eq!(
        failure.text,
        "the issuer refused the order with status 429 (rateLimited: De\\u{1b}tail)"
    );
    assert_eq!(failure.retry_after, Some(Duration::from_secs(120)));
}

/// RFC 8555, 7.3.3.
#[test]
fn changed_terms_have_a_page() {
    let refused = |accepts_terms, page: Option<&str>| {
        let order = order(|settings| settings.accepts_terms = accepts_terms);
        let lie = |at: &str, received| match at == "new-order" {
            true => {
                let mut body = json!({ "type": "urn:ietf:params:acme:error:userActionRequired" });
                if let Some(page) = page {
                    body["instance"] = page.into();
                }
                let mut received = refusal("");
                received.body = body.to_string().into_bytes();
                let link = format!("<{BASE}terms>;rel=\"terms-of-service\"");
                received.fields.push(("link".to_owned(), link));
                received
            }
            false => received,
        };
        run(order, lie).unwrap_err().text
    };
    let end = "; its terms of service have changed: visit https://issuer.test/agree";
    let text = refused(true, Some("https://issuer.test/agree"));
    assert!(text.ends_with(end), "{text}");
    for page in [None, Some("javascript:x")] {
        let text = refused(true, page);
        assert!(text.ends_with("have changed: visit https://issuer.test/terms"), "{text}");
    }
    let text = refused(false, Some("https://issuer.test/agree"));
    assert!(text.contains("(https://issuer.test/terms) must be agreed to"), "{text}");
    assert!(text.contains("accept_terms_of_service"), "{text}");
}

#[test]
fn pauses_are_seconds_or_dates() {
    let pause = |retry: &str, date: Option<&str>| {
        let mut received = refusal("rateLimited");
        received.fields[1].1 = retry.to_owned();
        received.fields.extend(date.map(|date| ("date".to_owned(), date.to_owned())));
        let mut received = Some(received);
        let lie = |at: &str, other| match at == "new-order" {
            true => received.take().unwrap_or_default(),
            false => other,
        };
        run(order(|_| {}), lie).unwrap_err().retry_after.map(|pause| pause.as_secs())
    };
    let (date, later) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:07 GMT");
    assert_eq!(pause("7", None), Some(7));
    assert_eq!(pause(later, Some(date)), Some(30));
    for nonsense in ["", "x", "-1", later] {
        assert_eq!(pause(nonsense, None), Some(LIMITED.as_secs()), "{nonsense}");
    }
    assert_eq!(pause(date, Some(later)), Some(LIMITED.as_secs()));
}

/// Adds to the directory.
fn directory(received: &mut IssuerResponse, name: &str, value: Value) {
    let mut map: Value = serde_json::from_slice(&received.body).unwrap();
    map[name] = value;
    received.body = map.to_string().into_bytes();
}

#[test]
fn demands_of_the_directory_are_told_before_an_account_is_made() {
    let demand = |meta: Value, change: fn(&mut OrderSettings)| {
        run(order(change), |path, mut received| {
            if path == "dir" {
                directory(&mut received, "meta", meta.clone());
            }
            received
        })
    };
    let terms = json!({ "termsOfService": "https://issuer.test/terms.pdf" });
    let failure = demand(terms.clone(), |settings| settings.accepts_terms = false).unwrap_err();
    assert!(failure.text.contains("(https://issuer.test/terms.pdf)"), "{}", failure.text);
    assert!(failure.text.contains("accept_terms_of_service"), "{}", failure.text);
    assert!(failure.text.contains("--accept-terms"), "{}", failure.text);
    assert!(demand(terms, |_| {}).is_ok());
    let external = json!({ "externalAccountRequired": true });
    let failure = demand(external.clone(), |_| {}).unwrap_err();
    assert!(failure.text.contains("external_account_key"), "{}", failure.text);
    let key = |settings: &mut OrderSettings| {
        settings.external = Some(ExternalAccount { kid: "a".to_owned(), key: vec![1; 32] });
    };
    assert!(demand(external, key).is_ok());
}

#[test]
fn a_replaced_certificate_is_named_but_is_no_obstacle() {
    let named = |body: &Option<String>| {
        let body: Value = serde_json::from_str(body.as_deref().unwrap()).unwrap();
        let payload = base64::decode(body["payload"].as_str().unwrap()).unwrap();
        serde_json::from_slice::<Value>(&payload).unwrap()["replaces"].clone()
    };
    for (has_renewals, kind) in [
        (true, None),
        (true, Some("alreadyReplaced")),
        (true, Some("serverInternal")),
        (true, Some("rateLimited")),
        (false, None),
    ] {
        let (mut order, now) = order(|settings| settings.replaces = Some("a.b".to_owned()));
        let (mut polls, mut seen) = (0, Vec::new());
        let ended = loop {
            match order.next(now) {
                NextAction::Send { url, body, .. } => {
                    let mut received = answer(&url, &mut polls);
                    if url.ends_with("/dir") && has_renewals {
                        directory(&mut received, "renewalInfo", json!("https://issuer.test/info"));
                    }
                    if url.ends_with("/new-order") {
                        seen.push(named(&body));
                        if let Some(kind) = kind.filter(|_| seen.len() == 1) {
                            received = refusal(kind);
                        }
                    }
                    order.receive(&received, now);
                }
                NextAction::Publish(_) => break Ok(()),
                NextAction::Failed(failure) => break Err(failure),
                other => panic!("{other:?}"),
            }
        };
        let expected = match (has_renewals, kind) {
            (false, _) => vec![Value::Null],
            (true, None | Some("rateLimited")) => vec![json!("a.b")],
            (true, Some(_)) => vec![json!("a.b"), Value::Null],
        };
        assert_eq!((seen, ended.is_err()), (expected, kind == Some("rateLimited")), "{kind:?}");
    }
}

#[test]
fn only_what_was_ordered_is_proved() {
    let failure = run(order(|_| {}), |path, mut received| {
        if path == "authz" {
            let text = String::from_utf8(received.body).unwrap();
            received.body = text.replace("a.test", "b.test").into_bytes();
        }
        received
    });
    assert_eq!(failure.unwrap_err().text, "the issuer asks about \"b.test\", which is not ordered");
}

#[test]
fn a_forgotten_account_is_made_again() {
    let (mut order, now) = order(|_| {});
    order.account = Some(format!("{BASE}account/0"));
    let mut first = true;
    let (_, urls, _) = run((order, now), |path, received| {
        let forgotten = path == "new-order" && std::mem::take(&mut first);
        if forgotten { refusal("accountDoesNotExist") } else { received }
    })
    .unwrap();
    assert_eq!(urls[..5], ["dir", "nonce", "new-order", "new-account", "new-order"]);
}

#[test]
fn profiles() {
    let required = order(|settings| settings.profile = Some(("short".to_owned(), true)));
    let failure = run(required, |_, received| received).unwrap_err();
    assert_eq!(failure.text, "the issuer has no profile \"short\"");
    let wished = order(|settings| settings.profile = Some(("short".to_owned(), false)));
    assert!(run(wished, |_, received| received).is_ok());
}

/// No matter what an issuer answers to whichever request, the order ends with a certificate or a failure.
#[test]
fn lies_end_in_failures() {
    let paths = [
        "dir",
        "nonce",
        "new-account",
        "new-order",
        "authz",
        "challenge",
        "order",
        "finalize",
        "cert",
    ];
    let bodies: [&[u8]; 8] = [
        b"",
        b"[]",
        b"{",
        b"\xff\xff",
        b"{\"status\":7}",
        b"{\"status\":\"invalid\",\"error\":[1]}",
        b"{\"status\":\"pending\",\"challenges\":[{\"type\":\"http-01\",\"token\":\"../x\"}]}",
        b"-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n",
    ];
    for path in paths {
        for body in bodies {
            for status in [200, 302, 500] {
                let lie = |at: &str, received| match at == path {
                    true => IssuerResponse { status, fields: Vec::new(), body: body.to_vec() },
                    false => received,
                };
                match run(order(|_| {}), lie) {
                    Ok(_) => {
                        // The directory may have brought a nonce.
                        assert!(matches!(path, "challenge" | "nonce") && status == 200, "{path}");
                    }
                    Err(failure) => assert!(!failure.text.is_empty()),
                }
            }
        }
        let huge = |at: &str, mut received: IssuerResponse| {
            if at == path {
                received.body = vec![b' '; BODY_BYTES_MAX + 1];
            }
            received
        };
        let result = run(order(|_| {}), huge);
        assert!(result.is_err() || matches!(path, "nonce" | "new-account" | "challenge"), "{path}");
    }
}

#[test]
fn nobody_is_asked_for_ever() {
    let lie = |path: &str, mut received: IssuerResponse| {
        if path == "order" {
            received.body = b"{\"status\":\"processing\"}".to_vec();
        }
        received
    };
    assert_eq!(run(order(|_| {}), lie).unwrap_err().text, "the issuer took too long");
}

#[test]
fn urls_and_tokens() {
    assert!(check_url("https://a/b?c").is_ok());
    for bad in ["http://a/", "https://a/\r\nx", "file:///etc", "", "https://ä"] {
        assert!(check_url(bad).is_err(), "{bad}");
    }
    assert!(is_token("aZ09-_"));
    assert!(!is_token("") && !is_token("a/b") && !is_token("..") && !is_token(&"a".repeat(257)));
}

#[test]
fn records_of_the_dns() {
    let record = |name: &str| {
        let (token, identifier) = ("tok".to_owned(), Identifier::Dns(name.to_owned()));
        Challenge { token, authorization: "tok.thumb".to_owned(), identifier }.record()
    };
    let text = "sYAwVrqDtVOuJZvAHurSAYPoEt5fFV_C4bdSOOW-o5Y".to_owned();
    assert_eq!(record("a.test"), ("_acme-challenge.a.test.".to_owned(), text.clone()));
    assert_eq!(record("*.a.test"), ("_acme-challenge.a.test.".to_owned(), text));
}

#[test]
fn wildcards_are_ordered() {
    let wild = |path: &str, mut received: IssuerResponse| {
        if path == "authz" {
            let text = String::from_utf8(received.body).unwrap();
            let text = text.replace("\"identifier\"", "\"wildcard\":true,\"identifier\"");
            received.body = text.into_bytes();
        }
        received
    };
    // Only the name itself was ordered.
    let refused = run(order(|_| {}), wild).unwrap_err().text;
    assert_eq!(refused, "the issuer asks about \"*.a.test\", which is not ordered");
    let (mut order, now) = order(|_| {});
    order.identifiers = vec![Identifier::Dns("*.a.test".to_owned())];
    assert!(run((order, now), wild).is_ok());
}

#[test]
fn slow_publication_prolongs_an_order() {
    let (order, now) = order(|settings| settings.publishing = Duration::from_secs(600));
    assert_eq!(order.deadline, now + ORDER_TIME_MAX + Duration::from_secs(600));
}
