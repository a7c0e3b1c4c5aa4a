//! Requests to an issuer: renewal information and certificates.
//!
//! Called by the issuer's task alone. Keys and signatures are made in a pool.

use std::time::Duration;

use nowait_acme::{
    BODY_BYTES_MAX, CertificateRequest, Challenge, Identifier, IssueError, IssuerResponse,
    NextAction, Order, OrderSettings, PrivateKey, Renewal, Validation, Validity, renewal_id,
    renewal_url,
};
use nowait_front::tls::https::{self, HttpsRequest, Means, Url};
use nowait_front::tls::validation::Proof;
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_runtime::pool::{Class, Op};
use nowait_runtime::{now, sleep};
use zeroize::Zeroizing;

use super::dns_hook::{self, HookAction, TxtRecord};
use super::issuer_task::wall;
use super::responses;
use super::state::{
    Account, AccountKey, Certificate, CertifiedKey, ChallengeKind, Issuer, PublishedChallenges,
};
use super::state_directory::StateDirectory;

/// An issuer with the state needed for requests to it.
pub struct OrderContext<'a> {
    pub state: StateDirectory<'a>,
    pub issuer: &'a Issuer,
}

/// A failure other than an error response of the issuer.
fn failure(text: impl Into<String>) -> IssueError {
    IssueError { text: text.into(), retry_after: None }
}

/// Reads a certificate with its key from PEM, and the name of its topmost issuer.
pub fn pair(
    text: Zeroizing<String>,
    certificate: &Certificate,
) -> Result<(CertifiedKey, String), String> {
    let read = https::pair(text.as_bytes())?;
    let mut names = certificate.identifiers.iter().map(Identifier::value);
    if let Some(lacking) = names.find(|name| !read.is_for(name)) {
        return Err(format!("the certificate is not for {lacking}"));
    }
    let facts = read.facts;
    let validity = Validity { from: facts.from, until: facts.until };
    let id = renewal_id(&facts.authority_key, &facts.serial);
    Ok((CertifiedKey { text, validity, id }, facts.root))
}

impl OrderContext<'_> {
    fn current(&self) -> &Current {
        self.state.current
    }

    /// Runs long work in the pool.
    pub async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let pool = self.current().compute_pool();
        let done = pool.run(Class::Bulk, 0, Op::Blocking, work).await;
        done.map_err(|error| error.to_string())
    }

    /// The dependencies of requests.
    pub fn means(&self) -> Means {
        let current = self.current();
        let resolving = current.conf.resolving;
        Means {
            resolver: current.resolvers.get(resolving.resolver).clone(),
            resolver_timeout: resolving.timeout.duration(),
            pool: current.compute_pool().clone(),
        }
    }

    /// A request and its response.
    async fn fetch(&self, url: &str, ask: HttpsRequest<'_>) -> Result<IssuerResponse, IssueError> {
        let client = self.issuer.https.as_ref().ok_or_else(|| failure("no client"))?;
        let parsed = Url::parse(url);
        let parsed = parsed.ok_or_else(|| failure(format!("invalid URL \"{url}\"")))?;
        let answer = client.fetch(&parsed, ask, &self.means()).await;
        let answer = answer.map_err(|why| failure(format!("{why}, while asking {url}")))?;
        let https::FetchedResponse { status, fields, body, .. } = answer;
        Ok(IssuerResponse { status, fields, body })
    }

    /// The renewal time that the issuer suggests; `None`: it does not support renewal information.
    pub async fn renewal(&self, id: &str) -> Result<Option<Renewal>, IssueError> {
        let get = || HttpsRequest { method: "GET", body: None, body_bytes_max: BODY_BYTES_MAX };
        let directory = self.fetch(&self.issuer.uri, get()).await?;
        match renewal_url(&directory, id)? {
            Some(url) => Renewal::read(&self.fetch(&url, get()).await?).map(Some),
            None => Ok(None),
        }
    }

    /// Orders a certificate. The caller holds the lock of the state directory.
    pub async fn certificate(
        &self,
        certificate: &Certificate,
        replaces: Option<String>,
    ) -> Result<CertifiedKey, IssueError> {
        let account = self.account().await.map_err(failure)?;
        let (order, key) = self.begin(certificate, &account, replaces).await.map_err(failure)?;
        self.state.clean(responses::PREFIX).await;
        let mut published = PublishedChallenges::new(&self.issuer.shared);
        let carried_out = self.carry_out(order, &mut published).await;
        self.withdraw(published).await;
        let (chains, url) = carried_out?;
        if url != account.url {
            let url = url.unwrap_or_default();
            let text = format!("{}\n{url}\n", self.issuer.uri);
            self.issuer.shared.set_account(Account { url: Some(url), ..account });
            if let Err(why) = self.state.write("account.url", &text).await {
                let name = &self.issuer.name;
                self.current().logs.error(
                    Level::Warn,
                    format_args!(
                        "{why}; after a restart, the issuer is asked for it again, issuer \"{name}\""
                    ),
                );
            }
        }
        self.choose(certificate, key, chains).await.map_err(failure)
    }

    /// The account, from memory, from the state, or new.
    async fn account(&self) -> Result<Account, String> {
        let issuer = self.issuer;
        if let Some(account) = issuer.shared.account() {
            return Ok(account);
        }
        let key = match &issuer.account_key {
            AccountKey::Given(key) => key.clone(),
            AccountKey::Generated(algorithm) => {
                let kept = match self.state.read("account.key").await? {
                    None => None,
                    // An RSA key may take long.
                    Some(file) => match self.compute(move || https::key(&file)).await? {
                        Ok(key) => Some(key),
                        Err(why) => {
                            let then = "a new account is registered";
                            self.state.set_aside("account.key", &why, then).await?;
                            self.state.remove("account.url").await?;
                            None
                        }
                    },
                };
                match kept {
                    Some(key) => key,
                    None => {
                        let algorithm = *algorithm;
                        let make = move || {
                            let pem = PrivateKey::generate(algorithm)
                                .map_err(|error| error.to_string())?;
                            let pem = pem.to_pem();
                            https::key(pem.as_bytes()).map(|der| (pem, der))
                        };
                        let (pem, der) = self.compute(make).await??;
                        self.state.write("account.key", &pem).await?;
                        der
                    }
                }
            }
        };
        // An unusable file costs one request: the issuer finds the account by its key.
        let url = self.state.read("account.url").await?.and_then(|file| {
            let text = std::str::from_utf8(&file).ok()?;
            let (uri, url) = text.trim_end().split_once('\n')?;
            (uri == issuer.uri).then(|| url.to_owned())
        });
        let account = Account { key, url };
        issuer.shared.set_account(account.clone());
        Ok(account)
    }

    /// A new order, and the certificate's key.
    async fn begin(
        &self,
        certificate: &Certificate,
        account: &Account,
        replaces: Option<String>,
    ) -> Result<(Order, PrivateKey), String> {
        let issuer = self.issuer;
        let settings = OrderSettings {
            directory: issuer.uri.clone(),
            contacts: issuer.contacts.clone(),
            accepts_terms: issuer.accepts_terms,
            external: issuer.external.clone(),
            profile: issuer.profile.clone(),
            challenge: issuer.challenge.name(),
            publishing: match issuer.challenge {
                ChallengeKind::Dns => {
                    issuer.dns_propagation_delay.saturating_add(dns_hook::TIME_MAX)
                }
                ChallengeKind::Http | ChallengeKind::TlsAlpn => Duration::ZERO,
            },
            wants_alternates: issuer.preferred_chain.is_some(),
            replaces,
        };
        let (algorithm, common_name) = (certificate.algorithm, issuer.common_name);
        let (identifiers, Account { key, url }) =
            (certificate.identifiers.clone(), account.clone());
        let started = now();
        let make = move || {
            let account_key = PrivateKey::from_der(&key)?;
            let key = PrivateKey::generate(algorithm)?;
            let request = CertificateRequest::new(&key, &identifiers, common_name)?;
            let order = Order::new(settings, account_key, url, identifiers, request, started);
            Ok::<_, nowait_acme::KeyError>((order, key))
        };
        self.compute(make).await?.map_err(|error| error.to_string())
    }

    /// Carries out an order; the result is the chains and the account's URL.
    async fn carry_out(
        &self,
        mut order: Order,
        published: &mut PublishedChallenges<'_>,
    ) -> Result<(Vec<String>, Option<String>), IssueError> {
        loop {
            // Signatures by RSA keys take too long for the loop.
            let time = now();
            let step = move || {
                let next = order.next(time);
                (order, next)
            };
            let next;
            (order, next) = self.compute(step).await.map_err(failure)?;
            match next {
                NextAction::Wait(time) => sleep(time).await,
                NextAction::Publish(challenge) => {
                    self.publish(challenge, published).await.map_err(failure)?;
                }
                NextAction::Done(issued) => {
                    return Ok((issued.chains, order.account().map(str::to_owned)));
                }
                NextAction::Failed(failure) => return Err(failure),
                NextAction::Send { url, body, head } => {
                    let ask = HttpsRequest {
                        method: match (&body, head) {
                            (Some(_), _) => "POST",
                            (None, true) => "HEAD",
                            (None, false) => "GET",
                        },
                        body: body.as_deref().map(|body| ("application/jose+json", body)),
                        body_bytes_max: BODY_BYTES_MAX,
                    };
                    order.receive(&self.fetch(&url, ask).await?, now());
                }
            }
        }
    }

    /// Publishes the response to a challenge.
    async fn publish(
        &self,
        challenge: Challenge,
        published: &mut PublishedChallenges<'_>,
    ) -> Result<(), String> {
        let (name, issuer) = (challenge.identifier.value(), &self.issuer.name);
        let text = format_args!("{name} is being validated, issuer \"{issuer}\"");
        self.current().logs.error(Level::Notice, text);
        match self.issuer.challenge {
            ChallengeKind::Http => {
                self.answer(&challenge.token, challenge.authorization, published).await;
            }
            ChallengeKind::TlsAlpn => {
                let make = move || {
                    let own = Validation::new(&challenge).map_err(|error| error.to_string())?;
                    let proof = Proof::new(&own.pem).map_err(|error| error.to_string())?;
                    Ok::<_, String>((proof, own.server_name))
                };
                let (proof, name) = self.compute(make).await??;
                published.validation(proof.publish(name).map_err(|error| error.to_string())?);
            }
            ChallengeKind::Dns => self.publish_record(&challenge).await?,
        }
        Ok(())
    }

    /// Publishes the answer to a challenge `dns-01`, and waits until it is visible everywhere.
    async fn publish_record(&self, challenge: &Challenge) -> Result<(), String> {
        let Issuer { name: issuer, dns_propagation_delay: delay, .. } = self.issuer;
        let (name, value) = challenge.record();
        let record = TxtRecord { name, value };
        // Even a program that fails may have published it.
        self.issuer.shared.hook.add(record.clone());
        self.run_hook(HookAction::Present, &record).await?;
        let TxtRecord { name, value } = record;
        let text = format_args!(
            "TXT record \"{value}\" of {name} is published, the issuer is asked for it in {} s, \
             issuer \"{issuer}\"",
            delay.as_secs()
        );
        self.current().logs.error(Level::Notice, text);
        sleep(*delay).await;
        Ok(())
    }

    /// Ends what is left of an order that a reload has ended: the program, then its records.
    pub async fn end_left(&self) {
        let hook = &self.issuer.shared.hook;
        if hook.next_to_remove().is_none() {
            return;
        }
        if let Err(why) = hook.end_left(self.current().compute_pool()).await {
            let issuer = &self.issuer.name;
            let text = format_args!(
                "the program of dns_hook is not ended yet: {why}, issuer \"{issuer}\""
            );
            self.current().logs.error(Level::Warn, text);
        }
        self.remove_records().await;
    }

    /// Removes the records of challenges `dns-01`.
    async fn remove_records(&self) {
        let state = &self.issuer.shared.hook;
        while let Some(record) = state.next_to_remove() {
            if let Err(why) = self.run_hook(HookAction::Cleanup, &record).await {
                let (name, issuer) = (&record.name, &self.issuer.name);
                let text =
                    format_args!("{why}; the TXT record of {name} may remain, issuer \"{issuer}\"");
                self.current().logs.error(Level::Warn, text);
            }
            state.removed(&record);
        }
    }

    async fn run_hook(&self, action: HookAction, record: &TxtRecord) -> Result<(), String> {
        let Some(hook) = &self.issuer.dns_hook else {
            return Err("the issuer has no dns_hook any more".to_owned());
        };
        hook.run(&self.issuer.shared.hook, self.current().compute_pool(), action, record).await
    }

    /// Publishes the answer to a challenge `http-01`, for other instances, too.
    pub async fn answer(
        &self,
        token: &str,
        answer: String,
        published: &mut PublishedChallenges<'_>,
    ) {
        if let Some(file) = responses::file(token)
            && let Err(why) = self.state.write(&file, &answer).await
        {
            let name = &self.issuer.name;
            self.current().logs.error(
                Level::Warn,
                format_args!("{why}; other instances can't answer the issuer, issuer \"{name}\""),
            );
        }
        published.answer(token, answer);
    }

    /// Ends the publication of answers.
    pub async fn withdraw(&self, published: PublishedChallenges<'_>) {
        for file in published.tokens().filter_map(responses::file) {
            // The next order tries again.
            let _ = self.state.remove(&file).await;
        }
        self.remove_records().await;
    }

    /// The preferred chain, after a check that it matches the order.
    async fn choose(
        &self,
        certificate: &Certificate,
        key: PrivateKey,
        chains: Vec<String>,
    ) -> Result<CertifiedKey, String> {
        let wanted = self.issuer.preferred_chain.clone();
        let certificate = certificate.clone();
        let now = wall();
        let work = move || {
            let key = key.to_pem();
            let mut found: Option<CertifiedKey> = None;
            let mut is_found = false;
            for chain in chains {
                let text = Zeroizing::new(format!("{}{chain}", &*key));
                let (own, root) = pair(text, &certificate)
                    .map_err(|why| format!("the issuer sent an unusable certificate: {why}"))?;
                is_found = wanted.as_ref().is_some_and(|wanted| {
                    root.split(',').any(|part| part.trim().strip_prefix("CN=") == Some(wanted))
                });
                if found.is_none() || is_found {
                    found = Some(own);
                }
                if is_found {
                    break;
                }
            }
            let own = found.ok_or("the issuer sent no certificate")?;
            match own.validity.until > now {
                true => Ok((own, is_found || wanted.is_none())),
                false => Err("the issuer sent a certificate that has expired".to_owned()),
            }
        };
        let (own, is_preferred) = self.compute(work).await??;
        if !is_preferred {
            let Issuer { name, preferred_chain, .. } = self.issuer;
            let wanted = preferred_chain.as_deref().unwrap_or_default();
            self.current().logs.error(
                Level::Warn,
                format_args!(
                    "issuer \"{name}\" offers no chain of \"{wanted}\": its default one is used"
                ),
            );
        }
        Ok(own)
    }
}
