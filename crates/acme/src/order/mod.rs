//! One order, from the issuer's directory to the certificate (RFC 8555, 7).
//!
//! The caller gets the next action from [`Order::next`] and passes responses to [`Order::receive`]. Issuers
//! are not trusted: counts and time are bounded here, sizes and texts in `response`.

use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use serde_json::{Map, Value, json};

use crate::base64;
use crate::key::PrivateKey;
use crate::request::{CertificateRequest, Identifier};
use crate::response::{
    BODY_BYTES_MAX, IssueError, IssuerResponse, TEXT_BYTES_MAX, check_url, problem, shown, text,
    url,
};

/// Repetitions of a request whose nonce was refused.
const NONCES_MAX: u32 = 10;

/// Time for a whole order.
const ORDER_TIME_MAX: Duration = Duration::from_secs(20 * 60);

/// The pause between two polls of the issuer, unless it specifies one.
const POLL: Duration = Duration::from_secs(2);
const POLL_MAX: Duration = Duration::from_secs(60);

/// The pause after `rateLimited` without `Retry-After`.
const LIMITED: Duration = Duration::from_secs(3600);

/// Identifiers of an order.
const AUTHORIZATIONS_MAX: usize = 100;

/// The settings of an order.
#[derive(Debug)]
pub struct OrderSettings {
    /// The URL of the directory.
    pub directory: String,
    /// URLs of contacts.
    pub contacts: Vec<String>,
    /// The operator agrees to the terms of service.
    pub accepts_terms: bool,
    /// Binds the account to one outside of the protocol.
    pub external: Option<ExternalAccount>,
    /// The profile of certificates, and whether the issuer must know it.
    pub profile: Option<(String, bool)>,
    /// The type of challenges, such as `http-01`.
    pub challenge: &'static str,
    /// Time that publishing an answer takes, besides that of the issuer.
    pub publishing: Duration,
    /// Request all chains, not only the default one.
    pub wants_alternates: bool,
    /// The certificate that is renewed (RFC 9773, 5), as [`renewal_id`](crate::renewal_id) names it.
    pub replaces: Option<String>,
}

/// A key that the issuer has given out (RFC 8555, 7.3.4).
#[derive(Clone)]
pub struct ExternalAccount {
    /// The name.
    pub kid: String,
    /// The key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "External({})", self.kid)
    }
}

/// The next action of the caller.
#[derive(Debug)]
pub enum NextAction {
    /// Send a request. Without a body: GET, or HEAD if `head`; otherwise POST of
    /// `application/jose+json`.
    Send {
        /// Where to.
        url: String,
        /// The body.
        body: Option<String>,
        /// HEAD.
        head: bool,
    },
    /// Publish a challenge, then go on.
    Publish(Challenge),
    /// Wait, then go on.
    Wait(Duration),
    /// There is a certificate.
    Done(IssuedCertificate),
    /// There will be none.
    Failed(IssueError),
}

/// A challenge that has to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The name: base64url.
    pub token: String,
    /// The answer.
    pub authorization: String,
    /// The identifier to prove.
    pub identifier: Identifier,
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The chains in PEM: the default one, then the others.
    pub chains: Vec<String>,
}

/// Whether a text may be a token: base64url, of a size that fits into paths.
pub fn is_token(text: &str) -> bool {
    (1..=256).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// The option that agrees to the terms of service.
fn terms_hint(url: Option<&str>) -> String {
    let url = url.map(|url| format!(" ({})", shown(url))).unwrap_or_default();
    format!(
        "its terms of service{url} must be agreed to, by accept_terms_of_service in the acme_issuer \
         block or by --accept-terms of nowait serve"
    )
}

/// The URLs of the directory.
#[derive(Debug, Default)]
struct Directory {
    new_nonce: String,
    new_account: String,
    new_order: String,
    /// The issuer supports renewal information.
    has_renewals: bool,
    /// The terms of service.
    terms: Option<String>,
    profile: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrderStep {
    Directory,
    Nonce,
    Account,
    NewOrder,
    Authorization,
    Publish,
    Challenge,
    AuthorizationState,
    OrderState,
    Finalize,
    Certificate,
    Alternate(usize),
    Done,
}

/// An order in progress.
#[derive(Debug)]
pub struct Order {
    settings: OrderSettings,
    account_key: PrivateKey,
    /// The account's URL.
    account: Option<String>,
    identifiers: Vec<Identifier>,
    request: CertificateRequest,
    step: OrderStep,
    directory: Directory,
    nonce: Option<String>,
    /// The last request was for a nonce.
    asks_nonce: bool,
    nonces_refused: u32,
    deadline: Instant,
    wait_until: Option<Instant>,
    polls: u32,
    /// Of the order.
    order: String,
    finalize: String,
    certificate: String,
    /// The remaining authorizations; the last one first.
    authorizations: Vec<String>,
    challenge_url: String,
    challenge: Option<Challenge>,
    alternates: Vec<String>,
    chains: Vec<String>,
    failure: Option<IssueError>,
}

impl Challenge {
    /// The name and the text of the TXT record for `dns-01` (RFC 8555, 8.4). The name ends with a dot.
    pub fn record(&self) -> (String, String) {
        let name = self.identifier.value();
        // RFC 8555, 8.4: of a wildcard, the name without it.
        let name = name.strip_prefix("*.").unwrap_or(&name);
        let digest = digest(&SHA256, self.authorization.as_bytes());
        (format!("_acme-challenge.{name}."), base64::encode(digest.as_ref()))
    }
}

impl Order {
    /// An order of a certificate. `account`: the account's URL, if it is known.
    pub fn new(
        settings: OrderSettings,
        account_key: PrivateKey,
        account: Option<String>,
        identifiers: Vec<Identifier>,
        request: CertificateRequest,
        now: Instant,
    ) -> Self {
        let count = u32::try_from(identifiers.len()).unwrap_or(u32::MAX);
        let time = ORDER_TIME_MAX.saturating_add(settings.publishing.saturating_mul(count));
        Self {
            settings,
            account_key,
            account: account.filter(|url| check_url(url).is_ok()),
            identifiers,
            request,
            step: OrderStep::Directory,
            directory: Directory::default(),
            nonce: None,
            asks_nonce: false,
            nonces_refused: 0,
            deadline: now + time,
            wait_until: None,
            polls: 0,
            order: String::new(),
            finalize: String::new(),
            certificate: String::new(),
            authorizations: Vec::new(),
            challenge_url: String::new(),
            challenge: None,
            alternates: Vec::new(),
            chains: Vec::new(),
            failure: None,
        }
    }

    /// The account's URL, once it is known.
    pub fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// The next action.
    pub fn next(&mut self, now: Instant) -> NextAction {
        if let Some(failure) = &self.failure {
            return NextAction::Failed(failure.clone());
        }
        if now >= self.deadline {
            return self.fail(IssueError::new("the issuer took too long"));
        }
        if let Some(until) = self.wait_until.filter(|until| *until > now) {
            return NextAction::Wait(until - now);
        }
        self.wait_until = None;
        if self.step == OrderStep::Publish {
            self.step = OrderStep::Challenge;
            if let Some(challenge) = &self.challenge {
                return NextAction::Publish(challenge.clone());
            }
        }
        let get = |url: &str, head| NextAction::Send { url: url.to_owned(), body: None, head };
        match self.step {
            OrderStep::Directory => return get(&self.settings.directory, false),
            OrderStep::Done => {
                return NextAction::Done(IssuedCertificate { chains: self.chains.clone() });
            }
            OrderStep::Nonce => {
                self.asks_nonce = true;
                return get(&self.directory.new_nonce, true);
            }
            _ => {}
        }
        let Some(nonce) = self.nonce.take() else {
            self.asks_nonce = true;
            return get(&self.directory.new_nonce, true);
        };
        let (url, payload) = self.payload();
        match self.signed(&url, payload.as_deref(), &nonce) {
            Ok(body) => NextAction::Send { url, body: Some(body), head: false },
            Err(failure) => self.fail(failure),
        }
    }

    fn fail(&mut self, failure: IssueError) -> NextAction {
        self.failure = Some(failure.clone());
        NextAction::Failed(failure)
    }

    /// The URL and payload of the step's request; `None`: POST-as-GET.
    fn payload(&self) -> (String, Option<String>) {
        let read = |url: &str| (url.to_owned(), None);
        match self.step {
            OrderStep::Account => {
                let mut payload = Map::new();
                if self.settings.accepts_terms {
                    payload.insert("termsOfServiceAgreed".to_owned(), true.into());
                }
                if !self.settings.contacts.is_empty() {
                    payload.insert("contact".to_owned(), self.settings.contacts.clone().into());
                }
                if let Some(external) = &self.settings.external {
                    payload.insert("externalAccountBinding".to_owned(), self.binding(external));
                }
                (self.directory.new_account.clone(), Some(Value::Object(payload).to_string()))
            }
            OrderStep::NewOrder => {
                let all = self.identifiers.iter();
                let all = all.map(|one| json!({ "type": one.kind(), "value": one.value() }));
                let mut payload = json!({ "identifiers": all.collect::<Vec<_>>() });
                if let Some(profile) = &self.directory.profile {
                    payload["profile"] = profile.clone().into();
                }
                if let Some(id) = self.replaced() {
                    payload["replaces"] = id.into();
                }
                (self.directory.new_order.clone(), Some(payload.to_string()))
            }
            OrderStep::Challenge => (self.challenge_url.clone(), Some("{}".to_owned())),
            OrderStep::Finalize => {
                let payload = json!({ "csr": base64::encode(&self.request.0) });
                (self.finalize.clone(), Some(payload.to_string()))
            }
            OrderStep::Authorization | OrderStep::AuthorizationState => {
                read(self.authorizations.last().map_or("", String::as_str))
            }
            OrderStep::Certificate => read(&self.certificate),
            OrderStep::Alternate(number) => {
                read(self.alternates.get(number).map_or("", String::as_str))
            }
            _ => read(&self.order),
        }
    }

    /// The certificate that the order replaces, if the issuer supports that.
    fn replaced(&self) -> Option<&str> {
        self.settings.replaces.as_deref().filter(|_| self.directory.has_renewals)
    }

    fn binding(&self, external: &ExternalAccount) -> Value {
        let protected =
            json!({ "alg": "HS256", "kid": external.kid, "url": self.directory.new_account });
        let protected = base64::encode(protected.to_string().as_bytes());
        let payload = base64::encode(self.account_key.jwk().as_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA256, &external.key);
        let tag = hmac::sign(&key, format!("{protected}.{payload}").as_bytes());
        let signature = base64::encode(tag.as_ref());
        json!({ "protected": protected, "payload": payload, "signature": signature })
    }

    fn signed(&self, url: &str, payload: Option<&str>, nonce: &str) -> Result<String, IssueError> {
        let mut protected =
            json!({ "alg": self.account_key.jws_algorithm(), "nonce": nonce, "url": url });
        match &self.account {
            Some(kid) if self.step != OrderStep::Account => protected["kid"] = kid.clone().into(),
            _ => {
                let jwk: Value = serde_json::from_str(&self.account_key.jwk())
                    .map_err(|error| IssueError::new(error.to_string()))?;
                protected["jwk"] = jwk;
            }
        }
        let protected = base64::encode(protected.to_string().as_bytes());
        let payload = base64::encode(payload.unwrap_or_default().as_bytes());
        let signature = self.account_key.sign(format!("{protected}.{payload}").as_bytes());
        let signature = signature.map_err(|error| IssueError::new(error.to_string()))?;
        let signature = base64::encode(&signature);
        Ok(json!({ "protected": protected, "payload": payload, "signature": signature })
            .to_string())
    }

    /// Takes the response to the last request.
    pub fn receive(&mut self, received: &IssuerResponse, now: Instant) {
        if let Err(failure) = self.evaluate(received, now) {
            self.failure = Some(failure);
        }
    }

    fn evaluate(&mut self, received: &IssuerResponse, now: Instant) -> Result<(), IssueError> {
        let asked_nonce = std::mem::take(&mut self.asks_nonce);
        if let Some(nonce) = received.field("replay-nonce") {
            let is_good = nonce.len() <= TEXT_BYTES_MAX && base64::decode(nonce).is_some();
            self.nonce = is_good.then(|| nonce.to_owned());
        }
        if !(200..300).contains(&received.status) {
            return self.refused(received);
        }
        if asked_nonce {
            if self.nonce.is_none() {
                return Err(IssueError::new("the issuer sent no valid nonce"));
            }
            if self.step == OrderStep::Nonce {
                self.step =
                    if self.account.is_some() { OrderStep::NewOrder } else { OrderStep::Account };
            }
            return Ok(());
        }
        match self.step {
            OrderStep::Directory => self.read_directory(received)?,
            OrderStep::Account => {
                let account = received.field("location").unwrap_or_default();
                check_url(account)?;
                self.account = Some(account.to_owned());
                self.step = OrderStep::NewOrder;
            }
            OrderStep::NewOrder => {
                let order = received.field("location").unwrap_or_default();
                check_url(order)?;
                self.order = order.to_owned();
                self.read_new_order(&received.json()?)?;
            }
            OrderStep::Authorization => self.read_authorization(&received.json()?)?,
            OrderStep::Publish | OrderStep::Challenge => {
                self.step = OrderStep::AuthorizationState;
                self.poll(received, now);
            }
            OrderStep::AuthorizationState => {
                let map = received.json()?;
                match text(&map, "status")? {
                    "pending" | "processing" => self.poll(received, now),
                    "valid" => self.next_authorization(),
                    status => return Err(self.invalid(status, &map)),
                }
            }
            OrderStep::OrderState | OrderStep::Finalize => self.read_order(received, now)?,
            OrderStep::Certificate => {
                if self.settings.wants_alternates {
                    self.alternates = received.alternates();
                }
                self.keep_chain(received)?;
                self.step = OrderStep::Alternate(0);
                self.end_chains(0);
            }
            OrderStep::Alternate(number) => {
                self.keep_chain(received)?;
                self.end_chains(number + 1);
            }
            OrderStep::Nonce | OrderStep::Done => {}
        }
        self.nonces_refused = 0;
        Ok(())
    }

    fn end_chains(&mut self, next: usize) {
        self.step = match next < self.alternates.len() {
            true => OrderStep::Alternate(next),
            false => OrderStep::Done,
        };
    }

    fn refused(&mut self, received: &IssuerResponse) -> Result<(), IssueError> {
        let value = received.json().ok().map(Value::Object);
        let (kind, detail) = problem(value.as_ref()).unwrap_or_default();
        match &kind[..] {
            "badNonce" if self.nonces_refused < NONCES_MAX => {
                self.nonces_refused += 1;
                return Ok(());
            }
            // The state belongs to another issuer, or the issuer has deleted the account.
            "accountDoesNotExist"
                if self.step == OrderStep::NewOrder && self.nonces_refused == 0 =>
            {
                self.nonces_refused += 1;
                self.account = None;
                self.step = OrderStep::Account;
                return Ok(());
            }
            // Retrying without `replaces` cannot help.
            "rateLimited" | "userActionRequired" => {}
            // The replaced certificate may be unknown to the issuer, or already replaced (RFC 9773, 5),
            // which must not prevent the new order.
            _ if self.step == OrderStep::NewOrder && self.replaced().is_some() => {
                self.settings.replaces = None;
                return Ok(());
            }
            _ => {}
        }
        let status = received.status;
        let mut text = format!("the issuer refused the {} with status {status}", self.what());
        if !kind.is_empty() {
            text.push_str(&format!(" ({}: {detail})", shown(&kind)));
        }
        if kind == "userActionRequired" || detail.contains("terms of service") {
            let terms = received.links("terms-of-service").next();
            let terms = terms.or(self.directory.terms.as_deref());
            text.push_str("; ");
            text.push_str(&match (&kind[..], self.settings.accepts_terms) {
                ("userActionRequired", true) => {
                    // RFC 8555, 7.3.3: this page says how to agree.
                    let page = value.as_ref().and_then(|value| value.get("instance"));
                    let page = page.and_then(Value::as_str).filter(|url| check_url(url).is_ok());
                    match page.or(terms) {
                        Some(url) => {
                            format!("its terms of service have changed: visit {}", shown(url))
                        }
                        None => "its terms of service have changed".to_owned(),
                    }
                }
                _ => terms_hint(terms),
            });
        }
        let limited = (kind == "rateLimited").then_some(LIMITED);
        Err(IssueError { text, retry_after: received.retry_after().or(limited) })
    }

    /// The request, in words.
    fn what(&self) -> &'static str {
        match self.step {
            OrderStep::Directory => "request for its directory",
            OrderStep::Nonce => "request for a nonce",
            OrderStep::Account => "account",
            OrderStep::NewOrder => "order",
            OrderStep::Authorization | OrderStep::AuthorizationState => {
                "request for an authorization"
            }
            OrderStep::Publish | OrderStep::Challenge => "answer to its challenge",
            OrderStep::OrderState | OrderStep::Done => "request for the order's state",
            OrderStep::Finalize => "certificate request",
            OrderStep::Certificate | OrderStep::Alternate(_) => "request for the certificate",
        }
    }

    fn invalid(&self, status: &str, map: &Map<String, Value>) -> IssueError {
        let challenges = map.get("challenges").and_then(Value::as_array);
        let own = problem(map.get("error"));
        let reason = own
            .or_else(|| challenges.into_iter().flatten().find_map(|one| problem(one.get("error"))));
        let what = match self.step {
            OrderStep::AuthorizationState | OrderStep::Authorization => "authorization",
            _ => "order",
        };
        let whose = self.challenge.as_ref().map(|one| format!(" of {}", one.identifier.value()));
        let whose = whose.filter(|_| what == "authorization").unwrap_or_default();
        let mut text = format!("the {what}{whose} is \"{}\"", shown(status));
        if let Some((kind, detail)) = reason {
            text.push_str(&format!(" ({}: {detail})", shown(&kind)));
            if let Some(challenge) = self.challenge.as_ref().filter(|_| what == "authorization") {
                let name = challenge.identifier.value();
                let port = if self.settings.challenge == "tls-alpn-01" { 443 } else { 80 };
                let hint = match &kind[..] {
                    "dns" | "unauthorized" | "incorrectResponse"
                        if self.settings.challenge == "dns-01" =>
                    {
                        let (record, _) = challenge.record();
                        format!(
                            "; the TXT record of {record} has to be public when \
                             dns_propagation_delay has passed"
                        )
                    }
                    "dns" => format!("; {name} needs an address in the DNS"),
                    "connection" | "tls" | "unauthorized" | "incorrectResponse" => {
                        format!("; port {port} of {name} has to lead to this server")
                    }
                    _ => String::new(),
                };
                text.push_str(&hint);
            }
        }
        IssueError::new(text)
    }

    /// Waits before the next question.
    fn poll(&mut self, received: &IssuerResponse, now: Instant) {
        let own = POLL.saturating_mul(self.polls / 4).clamp(POLL / 2, POLL_MAX);
        let pause = received.retry_after().unwrap_or(own).clamp(POLL / 4, POLL_MAX);
        self.polls = self.polls.saturating_add(1);
        self.wait_until = Some(now + pause);
    }

    fn read_directory(&mut self, received: &IssuerResponse) -> Result<(), IssueError> {
        let map = received.json()?;
        let meta = map.get("meta").and_then(Value::as_object);
        let terms = meta.and_then(|meta| meta.get("termsOfService")).and_then(Value::as_str);
        if let Some(terms) =
            terms.filter(|_| self.account.is_none() && !self.settings.accepts_terms)
        {
            let hint = terms_hint(Some(terms));
            return Err(IssueError::new(format!("the issuer would refuse the account: {hint}")));
        }
        let is_external = meta.and_then(|meta| meta.get("externalAccountRequired"));
        if is_external == Some(&Value::Bool(true))
            && self.account.is_none()
            && self.settings.external.is_none()
        {
            return Err(IssueError::new(
                "the account must be bound to an existing one: external_account_key in the \
                 acme_issuer block names its key",
            ));
        }
        let known = |name: &str| {
            let profiles = meta.and_then(|meta| meta.get("profiles"));
            profiles.is_some_and(|profiles| profiles.get(name).is_some())
        };
        let profile = match &self.settings.profile {
            Some((name, _)) if known(name) => Some(name.clone()),
            Some((name, true)) => {
                let name = shown(name);
                return Err(IssueError::new(format!("the issuer has no profile \"{name}\"")));
            }
            _ => None,
        };
        self.directory = Directory {
            new_nonce: url(&map, "newNonce")?,
            new_account: url(&map, "newAccount")?,
            new_order: url(&map, "newOrder")?,
            has_renewals: map.contains_key("renewalInfo"),
            terms: terms.map(str::to_owned),
            profile,
        };
        self.step = OrderStep::Nonce;
        Ok(())
    }

    fn read_new_order(&mut self, map: &Map<String, Value>) -> Result<(), IssueError> {
        let all = map.get("authorizations").and_then(Value::as_array);
        let all = all.ok_or_else(|| IssueError::new("the issuer's order has no authorizations"))?;
        if all.len() > AUTHORIZATIONS_MAX {
            return Err(IssueError::new("the issuer's order has too many authorizations"));
        }
        for one in all {
            let one = one.as_str().unwrap_or_default();
            check_url(one)?;
            self.authorizations.push(one.to_owned());
        }
        self.finalize = url(map, "finalize")?;
        self.step = OrderStep::Authorization;
        if self.authorizations.is_empty() {
            self.step = OrderStep::OrderState;
        }
        Ok(())
    }

    fn next_authorization(&mut self) {
        self.authorizations.pop();
        self.polls = 0;
        self.step = match self.authorizations.is_empty() {
            true => OrderStep::OrderState,
            false => OrderStep::Authorization,
        };
    }

    fn read_authorization(&mut self, map: &Map<String, Value>) -> Result<(), IssueError> {
        match text(map, "status")? {
            "valid" => {
                self.next_authorization();
                return Ok(());
            }
            "pending" => {}
            status => return Err(self.invalid(status, map)),
        }
        let kind = self.settings.challenge;
        let all = map.get("challenges").and_then(Value::as_array).into_iter().flatten();
        let mut all = all.filter_map(Value::as_object);
        let challenge = all.find(|one| one.get("type").and_then(Value::as_str) == Some(kind));
        let challenge = challenge
            .ok_or_else(|| IssueError::new(format!("the issuer offers no challenge \"{kind}\"")))?;
        let token = text(challenge, "token")?;
        if !is_token(token) {
            return Err(IssueError::new("the issuer sent an invalid token"));
        }
        let asked = map.get("identifier").and_then(|one| one.get("value")).and_then(Value::as_str);
        let asked = asked.unwrap_or_default();
        let is_wildcard = map.get("wildcard") == Some(&Value::Bool(true));
        let asked = if is_wildcard { &format!("*.{asked}") } else { asked };
        let known = self.identifiers.iter().find(|one| one.value().eq_ignore_ascii_case(asked));
        let known = known.ok_or_else(|| {
            IssueError::new(format!(
                "the issuer asks about \"{}\", which is not ordered",
                shown(asked)
            ))
        })?;
        self.challenge_url = url(challenge, "url")?;
        self.challenge = Some(Challenge {
            token: token.to_owned(),
            authorization: format!("{token}.{}", self.account_key.thumbprint()),
            identifier: known.clone(),
        });
        self.step = OrderStep::Publish;
        Ok(())
    }

    fn read_order(&mut self, received: &IssuerResponse, now: Instant) -> Result<(), IssueError> {
        let map = received.json()?;
        match text(&map, "status")? {
            "ready" if self.step == OrderStep::OrderState => self.step = OrderStep::Finalize,
            "pending" | "processing" | "ready" => {
                self.step = OrderStep::OrderState;
                self.poll(received, now);
            }
            "valid" => {
                self.certificate = url(&map, "certificate")?;
                self.step = OrderStep::Certificate;
            }
            status => return Err(self.invalid(status, &map)),
        }
        Ok(())
    }

    fn keep_chain(&mut self, received: &IssuerResponse) -> Result<(), IssueError> {
        if received.body.len() > BODY_BYTES_MAX {
            return Err(IssueError::new("the issuer sent too large a certificate"));
        }
        let text = std::str::from_utf8(&received.body).ok();
        let text = text.filter(|text| text.contains("-----BEGIN CERTIFICATE-----"));
        let text = text.ok_or_else(|| IssueError::new("the issuer sent no certificate in PEM"))?;
        // RFC 8555, 11.4: a hostile issuer could send other sections, such as keys.
        if text.matches("-----BEGIN ").count()
            != text.matches("-----BEGIN CERTIFICATE-----").count()
        {
            return Err(IssueError::new("the issuer sent more than certificates"));
        }
        self.chains.push(text.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
