//! Orders and renewals: one task for each issuer, on the first worker.
//!
//! Whatever fails, the certificate in use stays in use; the attempt is repeated after a pause.

use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use nowait_acme::{
    BODY_BYTES_MAX, Failure, Key, Next, Order, Received, Request, Retry, Settings, due,
};
use nowait_conf::Contents;
use nowait_front::tls::https::{self, Ask, Means, Url};
use nowait_runtime::fs::{self, CreateOptions, Io};
use nowait_runtime::pool::{Class, Op};
use nowait_runtime::task::select;
use nowait_runtime::{JoinHandle, clock, now, sleep, spawn, worker};
use zeroize::Zeroizing;

use super::state::{Account, AccountKey, Certificate, ISSUERS, Issuer, Issuers, Pair};
use crate::generation::Current;
use crate::log::Level;
use crate::services::Services;

/// The longest sleep: the clock may be changed meanwhile.
const LOOK: Duration = Duration::from_secs(3600);

/// The pause while another instance orders.
const LOCKED: Duration = Duration::from_secs(30);

/// Maximum size of a file of the state.
const FILE_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// Starts the tasks.
pub fn start(_services: &Rc<Services>, current: &Rc<Current>) -> Vec<JoinHandle<()>> {
    let Some(issuers) = current.conf.settings.get(&ISSUERS) else { return Vec::new() };
    if worker::index() != 0 {
        return Vec::new();
    }
    let task = |number| {
        let mut tending = Tending { current: current.clone(), number };
        spawn(async move {
            select(worker::stopping(), tending.run()).await;
        })
    };
    (0..issuers.all.len()).map(task).collect()
}

/// The task of an issuer.
struct Tending {
    current: Rc<Current>,
    number: usize,
}

/// A certificate's next attempt.
struct Turn {
    /// Its number.
    certificate: usize,
    at: SystemTime,
    retry: Retry,
    random: u16,
}

/// Why there is no certificate.
enum Trouble {
    /// The issuer, the network, or the disk.
    Failed(Failure),
    /// Another instance is ordering.
    Locked,
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Self::Failed(Failure { text, retry_after: None })
    }
}

fn wall() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(clock().unix_ms())
}

fn random() -> u16 {
    let bytes = crate::random::bytes();
    u16::from_le_bytes([bytes[0], bytes[1]])
}

impl Tending {
    fn issuers(&self) -> &Issuers {
        self.current.conf.settings.get(&ISSUERS).expect("start has found it")
    }

    fn issuer(&self) -> &Issuer {
        &self.issuers().all[self.number]
    }

    fn io(&self) -> Io {
        Io::new(self.current.default_pool().clone())
    }

    fn log(&self, level: Level, text: fmt::Arguments<'_>) {
        let name = &self.issuer().name;
        self.current.logs.error(level, format_args!("{text}, issuer \"{name}\""));
    }

    async fn run(&mut self) {
        let mut turns: Vec<Turn> = Vec::new();
        for (number, certificate) in self.issuers().certificates.iter().enumerate() {
            let is_known = |turn: &Turn| {
                self.issuers().certificates[turn.certificate].file == certificate.file
            };
            if certificate.issuer != self.number || turns.iter().any(is_known) {
                continue;
            }
            self.load(certificate).await;
            let random = random();
            let at = self.due(certificate, random);
            turns.push(Turn { certificate: number, at, retry: Retry::default(), random });
        }
        loop {
            let Some(turn) = turns.iter_mut().min_by_key(|turn| turn.at) else { return };
            if let Ok(left) = turn.at.duration_since(wall())
                && !left.is_zero()
            {
                sleep(left.min(LOOK)).await;
                continue;
            }
            let certificate = &self.issuers().certificates[turn.certificate];
            let name = certificate.name();
            let result = self.renew(certificate, turn.random).await;
            self.issuer().shared.unpublish();
            turn.at = match result {
                Ok(()) => {
                    turn.retry.reset();
                    self.due(certificate, turn.random).max(wall() + LOCKED)
                }
                Err(Trouble::Locked) => wall() + LOCKED,
                Err(Trouble::Failed(Failure { text, retry_after })) => {
                    let pause = turn.retry.pause(retry_after, random());
                    let seconds = pause.as_secs();
                    self.log(
                        Level::Error,
                        format_args!(
                            "no certificate for {name}: {text}; next attempt in {seconds} s"
                        ),
                    );
                    wall() + pause
                }
            };
        }
    }

    /// When a certificate is due.
    fn due(&self, certificate: &Certificate, random: u16) -> SystemTime {
        let pair = self.issuer().shared.pair(&certificate.file);
        pair.map_or(UNIX_EPOCH, |pair| due(pair.from, pair.until, random))
    }

    fn path(&self, file: &str) -> Option<Vec<u8>> {
        let dir = self.issuer().state_path.as_ref()?;
        Some([&dir[..], b"/", file.as_bytes()].concat())
    }

    /// A file of the state. `None`: there is none; a log line says why if that is odd.
    async fn read(&self, file: &str) -> Option<Contents> {
        let path = self.path(file)?;
        match fs::read(&self.io(), &path, FILE_BYTES_MAX).await {
            Ok(bytes) => Some(Contents::new(bytes.to_vec())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                let path = String::from_utf8_lossy(&path);
                self.log(Level::Error, format_args!("\"{path}\" can't be read ({error})"));
                None
            }
        }
    }

    /// Writes a file of the state: at any time, it is either the old or the new one.
    async fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let Some(path) = self.path(file) else { return Ok(()) };
        let temp = [&path[..], b".tmp"].concat();
        let (io, chunk) = (self.io(), Bytes::copy_from_slice(text.as_bytes()));
        let written = async {
            // Left by a crash: only one instance writes at a time.
            let _ = fs::unlink(&io, &temp).await;
            let handle = fs::create(&io, &temp, &CreateOptions::default()).await?;
            handle.write_at(&io, 0, vec![chunk]).await?;
            handle.sync(&io, false).await?;
            fs::rename(&io, &temp, &path).await
        };
        written.await.map_err(|error: std::io::Error| {
            format!("\"{}\" can't be written ({error})", String::from_utf8_lossy(&path))
        })
    }

    /// Takes a certificate from the state, if it has one that is newer.
    async fn load(&self, certificate: &Certificate) {
        let Some(contents) = self.read(&certificate.file).await else { return };
        let read = self.current.compute_pool().run(Class::Bulk, 0, Op::Blocking, move || {
            let facts = https::facts(&contents)?;
            let text = Zeroizing::new(String::from_utf8_lossy(&contents).into_owned());
            Ok(Pair { text, from: facts.from, until: facts.until })
        });
        let read: Result<Pair, String> = match read.await {
            Ok(read) => read,
            Err(error) => Err(error.to_string()),
        };
        let shared = &self.issuer().shared;
        match read {
            Ok(pair) => {
                let known = shared.pair(&certificate.file);
                if known.is_none_or(|known| known.from < pair.from) {
                    shared.put(&certificate.file, pair);
                }
            }
            Err(why) => {
                let file = &certificate.file;
                self.log(Level::Error, format_args!("\"{file}\" in the state is unusable: {why}"));
            }
        }
    }

    /// Excludes other instances with the same state, until the result is dropped.
    async fn lock(&self) -> Result<Option<OwnedFd>, Trouble> {
        let Some(path) = self.path("lock") else { return Ok(None) };
        match fs::lock(&self.io(), &path, 0o600).await {
            Ok(Some(file)) => Ok(Some(file)),
            Ok(None) => Err(Trouble::Locked),
            Err(error) => {
                let path = String::from_utf8_lossy(&path);
                Err(format!("\"{path}\" can't be locked ({error})").into())
            }
        }
    }

    /// Orders a certificate, unless another instance has.
    async fn renew(&self, certificate: &Certificate, random: u16) -> Result<(), Trouble> {
        let _locked = self.lock().await?;
        self.load(certificate).await;
        if self.due(certificate, random) > wall() {
            return Ok(());
        }
        let account = self.account().await?;
        let (order, key) = self.begin(certificate, &account).await?;
        let (chains, url) = self.order(order).await?;
        if url != account.url {
            let url = url.unwrap_or_default();
            self.write("account.url", &format!("{}\n{url}\n", self.issuer().uri)).await?;
            self.issuer().shared.set_account(Account { url: Some(url), ..account });
        }
        let pair = self.choose(key, chains).await?;
        // In use at once, even if the disk is full.
        let text = pair.text.clone();
        let days = pair.until.duration_since(wall()).unwrap_or_default().as_secs() / 86400;
        let name = certificate.name();
        self.issuer().shared.put(&certificate.file, pair);
        self.log(Level::Notice, format_args!("new certificate for {name}, valid for {days} days"));
        if let Err(why) = self.write(&certificate.file, &text).await {
            self.log(
                Level::Error,
                format_args!("{why}; the certificate will be lost by a restart"),
            );
        }
        Ok(())
    }

    /// The account, from memory, from the state, or new.
    async fn account(&self) -> Result<Account, String> {
        let issuer = self.issuer();
        if let Some(account) = issuer.shared.account() {
            return Ok(account);
        }
        let key = match &issuer.account_key {
            AccountKey::Given(key) => key.clone(),
            AccountKey::Generated(algorithm) => match self.read("account.key").await {
                Some(file) => https::key(&file)
                    .map_err(|why| format!("\"account.key\" in the state is unusable: {why}"))?,
                None => {
                    let algorithm = *algorithm;
                    let make = move || {
                        let pem = Key::generate(algorithm).map_err(|error| error.to_string())?;
                        let pem = pem.to_pem();
                        https::key(pem.as_bytes()).map(|der| (pem, der))
                    };
                    let pool = self.current.compute_pool();
                    let made = pool.run(Class::Bulk, 0, Op::Blocking, make).await;
                    let (pem, der) = made.map_err(|error| error.to_string())??;
                    self.write("account.key", &pem).await?;
                    der
                }
            },
        };
        let url = self.read("account.url").await.and_then(|file| {
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
    ) -> Result<(Order, Key), String> {
        let issuer = self.issuer();
        let settings = Settings {
            directory: issuer.uri.clone(),
            contacts: issuer.contacts.clone(),
            accepts_terms: issuer.accepts_terms,
            external: issuer.external.clone(),
            profile: issuer.profile.clone(),
            challenge: "http-01",
            wants_alternates: issuer.preferred_chain.is_some(),
        };
        let (algorithm, common_name) = (certificate.algorithm, issuer.common_name);
        let (identifiers, Account { key, url }) =
            (certificate.identifiers.clone(), account.clone());
        let started = now();
        let make = move || {
            let account_key = Key::from_der(&key)?;
            let key = Key::generate(algorithm)?;
            let request = Request::new(&key, &identifiers, common_name)?;
            let order = Order::new(settings, account_key, url, identifiers, request, started);
            Ok::<_, nowait_acme::KeyError>((order, key))
        };
        let made = self.current.compute_pool().run(Class::Bulk, 0, Op::Blocking, make).await;
        let made = made.map_err(|error| error.to_string())?;
        made.map_err(|error| error.to_string())
    }

    /// Carries out an order; the result is the chains and the account's URL.
    async fn order(&self, mut order: Order) -> Result<(Vec<String>, Option<String>), Trouble> {
        let issuer = self.issuer();
        let Some(client) = &issuer.https else { return Err("no client".to_owned().into()) };
        let resolving = self.current.conf.resolving;
        let means = Means {
            resolver: self.current.resolvers.get(resolving.resolver).clone(),
            resolver_timeout: resolving.timeout.duration(),
            pool: self.current.compute_pool().clone(),
        };
        loop {
            // Signatures by RSA keys take too long for the loop.
            let time = now();
            let step = move || {
                let next = order.next(time);
                (order, next)
            };
            let pool = self.current.compute_pool();
            let stepped = pool.run(Class::Bulk, 0, Op::Blocking, step).await;
            let next;
            (order, next) = stepped.map_err(|error| error.to_string())?;
            match next {
                Next::Wait(time) => sleep(time).await,
                Next::Publish(one) => issuer.shared.publish(&one.token, one.authorization),
                Next::Done(issued) => {
                    return Ok((issued.chains, order.account().map(str::to_owned)));
                }
                Next::Failed(failure) => return Err(Trouble::Failed(failure)),
                Next::Send { url, body, head } => {
                    let parsed =
                        Url::parse(&url).ok_or_else(|| format!("invalid URL \"{url}\""))?;
                    let ask = Ask {
                        method: match (&body, head) {
                            (Some(_), _) => "POST",
                            (None, true) => "HEAD",
                            (None, false) => "GET",
                        },
                        body: body.as_deref().map(|body| ("application/jose+json", body)),
                        body_bytes_max: BODY_BYTES_MAX,
                    };
                    let answer = client.fetch(&parsed, ask, &means).await;
                    let answer = answer.map_err(|why| format!("{why}, while asking {url}"))?;
                    let https::Answer { status, fields, body } = answer;
                    order.receive(&Received { status, fields, body }, now());
                }
            }
        }
    }

    /// The preferred chain, after a check that it belongs to the key.
    async fn choose(&self, key: Key, chains: Vec<String>) -> Result<Pair, String> {
        let wanted = self.issuer().preferred_chain.as_ref().map(|name| format!("CN={name}"));
        let now = wall();
        let work = move || {
            let key = key.to_pem();
            let mut found: Option<(Zeroizing<String>, https::Facts)> = None;
            for chain in chains {
                let text = Zeroizing::new(format!("{}{chain}", &*key));
                let facts = https::facts(text.as_bytes())
                    .map_err(|why| format!("the issuer sent an unusable certificate: {why}"))?;
                let is_wanted = wanted
                    .as_ref()
                    .is_some_and(|wanted| facts.root.split(',').any(|part| part.trim() == wanted));
                if found.is_none() || is_wanted {
                    found = Some((text, facts));
                }
                if is_wanted {
                    break;
                }
            }
            let (text, facts) = found.ok_or("the issuer sent no certificate")?;
            match facts.until > now {
                true => Ok(Pair { text, from: facts.from, until: facts.until }),
                false => Err("the issuer sent a certificate that has expired".to_owned()),
            }
        };
        let pool = self.current.compute_pool();
        let chosen = pool.run(Class::Bulk, 0, Op::Blocking, work).await;
        chosen.map_err(|error| error.to_string())?
    }
}
