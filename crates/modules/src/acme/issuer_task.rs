//! Orders and renewals: one task for each issuer, on the first worker.
//!
//! After any failure, the certificate in use stays in use, and the attempt is repeated after a pause.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nowait_acme::{Identifier, IssueError, RenewalAction, Schedule};
use nowait_front::tls::validation;
use nowait_http::generation::Current;
use nowait_http::log::Level;
use nowait_http::services::Services;
use nowait_message::http_date::Civil;
use nowait_runtime::events::{self, EventKind};
use nowait_runtime::task::select;
use nowait_runtime::{JoinHandle, clock, now, sleep, spawn, worker};
use zeroize::Zeroizing;

use super::name_check;
use super::orders::{self, OrderContext};
use super::state::{Certificate, CertifiedKey, ChallengeKind, ISSUERS, Issuer, Issuers};
use super::state_directory::StateDirectory;

/// The longest sleep, because the system's date may change meanwhile.
const LOOK: Duration = Duration::from_secs(3600);

/// Starts the tasks.
pub fn start(_services: &Rc<Services>, current: &Rc<Current>) -> Vec<JoinHandle<()>> {
    let Some(issuers) = current.conf.settings.get(&ISSUERS) else { return Vec::new() };
    if worker::index() != 0 {
        return Vec::new();
    }
    let is_tls = |issuer: &Issuer| issuer.challenge == ChallengeKind::TlsAlpn;
    validation::set_answers(issuers.all.iter().any(is_tls));
    let task = |number| {
        let tending = IssuerTask { current: current.clone(), number };
        spawn(async move {
            select(worker::stopping(), tending.run()).await;
        })
    };
    (0..issuers.all.len()).map(task).collect()
}

/// The task of an issuer.
struct IssuerTask {
    current: Rc<Current>,
    number: usize,
}

/// The reason why an order produced no certificate.
enum OrderError {
    /// The issuer, the network, or the disk.
    Failed(IssueError),
    /// Another instance is ordering.
    Locked,
}

impl From<String> for OrderError {
    fn from(text: String) -> Self {
        Self::Failed(IssueError { text, retry_after: None })
    }
}

/// The date.
pub fn wall() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(clock().unix_ms())
}

/// The day of a time, in UTC.
fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let day = Civil::from_unix(i64::try_from(seconds).unwrap_or(i64::MAX));
    format!("{:04}-{:02}-{:02}", day.year, day.month, day.day)
}

fn random() -> u16 {
    let bytes = nowait_http::random::bytes();
    u16::from_le_bytes([bytes[0], bytes[1]])
}

impl IssuerTask {
    fn issuers(&self) -> &Issuers {
        self.current.conf.settings.get(&ISSUERS).expect("start has found it")
    }

    fn issuer(&self) -> &Issuer {
        &self.issuers().all[self.number]
    }

    fn ordering(&self) -> OrderContext<'_> {
        let issuer = self.issuer();
        let state = StateDirectory { current: &self.current, dir: issuer.state_path.as_deref() };
        OrderContext { state, issuer }
    }

    fn log(&self, level: Level, text: fmt::Arguments<'_>) {
        let name = &self.issuer().name;
        self.current.logs.error(level, format_args!("{text}, issuer \"{name}\""));
    }

    async fn run(&self) {
        let shared = &self.issuer().shared;
        let mut own: Vec<&Certificate> = Vec::new();
        for certificate in &self.issuers().certificates {
            let is_known = own.iter().any(|known| known.file == certificate.file);
            if certificate.issuer == self.number && !is_known {
                own.push(certificate);
            }
        }
        shared.store_at_once(now());
        for certificate in &own {
            let schedule = shared.schedule(&certificate.file).map(|mut schedule| {
                schedule.reloaded();
                schedule
            });
            let schedule = schedule.unwrap_or_else(|| Schedule::new(random()));
            shared.set_schedule(&certificate.file, schedule);
            if let Err(why) = self.load(certificate).await {
                self.log(Level::Error, format_args!("{why}"));
            }
            if let Some(pair) = shared.pair(&certificate.file) {
                let (name, until) = (certificate.name(), date(pair.validity.until));
                self.log(Level::Notice, format_args!("certificate for {name} valid until {until}"));
            }
        }
        self.ordering().end_left().await;
        loop {
            let mut pause = LOOK;
            for certificate in &own {
                pause = pause.min(self.attend(certificate).await);
                pause = pause.min(self.store(certificate).await);
            }
            if own.is_empty() {
                return;
            }
            sleep(pause).await;
        }
    }

    /// Runs the due actions for a certificate; returns the time until the next.
    async fn attend(&self, certificate: &Certificate) -> Duration {
        let Certificate { file, .. } = certificate;
        let shared = &self.issuer().shared;
        let Some(mut schedule) = shared.schedule(file) else { return LOOK };
        let pair = shared.pair(file);
        match schedule.next(pair.as_ref().map(|pair| pair.validity), wall(), now()) {
            RenewalAction::Wait(pause) => return pause,
            RenewalAction::Inquire => {
                self.inquire(certificate, pair.as_deref(), &mut schedule).await
            }
            RenewalAction::Order => self.renew(certificate, &mut schedule).await,
        }
        shared.set_schedule(file, schedule);
        Duration::ZERO
    }

    /// Requests the renewal time of the certificate.
    async fn inquire(
        &self,
        certificate: &Certificate,
        pair: Option<&CertifiedKey>,
        schedule: &mut Schedule,
    ) {
        let answer = match pair.and_then(|pair| pair.id.as_deref()) {
            Some(id) => self.ordering().renewal(id).await,
            None => Ok(None),
        };
        schedule.informed(&answer, now());
        let name = certificate.name();
        if let Err(IssueError { text, .. }) = answer {
            self.log(Level::Warn, format_args!("no renewal information for {name}: {text}"));
        }
        if let Some(pair) = pair {
            let due = schedule.due(pair.validity).duration_since(wall()).unwrap_or_default();
            let hours = due.as_secs() / 3600;
            self.log(Level::Info, format_args!("{name} is to be renewed in {hours} hours"));
        }
    }

    /// Orders the certificate unless another instance has done so.
    async fn renew(&self, certificate: &Certificate, schedule: &mut Schedule) {
        let name = certificate.name();
        let shared = &self.issuer().shared;
        let result = self.replace(certificate, schedule).await;
        let pair = shared.pair(&certificate.file);
        match (result, pair) {
            (Ok(()), Some(pair)) => {
                if let Some(pause) = schedule.renewed(pair.validity, random(), wall(), now()) {
                    let seconds = pause.as_secs();
                    self.log(
                        Level::Warn,
                        format_args!(
                            "the new certificate for {name} is due for renewal already; next \
                             attempt in {seconds} s"
                        ),
                    );
                }
            }
            (Ok(()), None) | (Err(OrderError::Locked), _) => {
                self.log(Level::Info, format_args!("another instance is ordering, {name} waits"));
                schedule.locked(random(), now());
            }
            (Err(OrderError::Failed(IssueError { text, retry_after })), pair) => {
                let pause = schedule.failed(retry_after, random(), now()).as_secs();
                let meanwhile = match pair {
                    None => String::new(),
                    Some(pair) => match pair.validity.until.duration_since(wall()) {
                        Ok(left) => {
                            let hours = left.as_secs() / 3600;
                            format!("; the one in use is valid for another {hours} hours")
                        }
                        Err(_) => "; the one in use has expired".to_owned(),
                    },
                };
                self.log(
                    Level::Error,
                    format_args!(
                        "no certificate for {name}: {text}{meanwhile}; next attempt in {pause} s"
                    ),
                );
            }
        }
    }

    async fn replace(
        &self,
        certificate: &Certificate,
        schedule: &Schedule,
    ) -> Result<(), OrderError> {
        let ordering = self.ordering();
        let Some(lock) = ordering.state.lock().await? else { return Err(OrderError::Locked) };
        let replaced = self.replace_alone(&ordering, certificate, schedule).await;
        lock.release().await;
        replaced
    }

    /// The caller has the lock of the state.
    async fn replace_alone(
        &self,
        ordering: &OrderContext<'_>,
        certificate: &Certificate,
        schedule: &Schedule,
    ) -> Result<(), OrderError> {
        let Certificate { file, .. } = certificate;
        let shared = &self.issuer().shared;
        let before = shared.pair(file);
        if let Some(why) = self.load(certificate).await? {
            ordering.state.set_aside(file, &why, "a new certificate is ordered").await?;
        }
        let pair = shared.pair(file);
        let mut schedule = schedule.clone();
        if pair.as_ref().map(Arc::as_ptr) != before.as_ref().map(Arc::as_ptr) {
            schedule.replaced();
        }
        if pair.as_ref().is_some_and(|pair| schedule.due(pair.validity) > wall()) {
            return Ok(());
        }
        let names: Vec<String> = certificate.identifiers.iter().map(Identifier::value).collect();
        let names = names.join(", ");
        let order =
            if pair.is_none() { "ordering a certificate" } else { "renewing the certificate" };
        self.log(Level::Notice, format_args!("{order} for {names}"));
        let is_http = ordering.issuer.challenge == ChallengeKind::Http;
        if pair.is_none() && is_http && ordering.issuer.checks_names {
            name_check::check(ordering, certificate).await;
        }
        let replaces = pair.and_then(|pair| pair.id.clone());
        let pair = ordering.certificate(certificate, replaces).await.map_err(OrderError::Failed)?;
        // Put the certificate to use at once, even if the disk is full.
        let text = pair.text.clone();
        let until = pair.validity.until;
        let days = until.duration_since(wall()).unwrap_or_default().as_secs() / 86400;
        let name = certificate.name();
        shared.put(file, pair);
        let until = date(until);
        let line = format_args!("new certificate for {name}, valid for {days} days, until {until}");
        events::record(EventKind::CertificateRenewed, &name, line);
        self.log(Level::Notice, line);
        match ordering.state.write(file, &text).await {
            Ok(()) => shared.stored(file),
            Err(why) => self.not_stored(file, &why),
        }
        Ok(())
    }

    fn not_stored(&self, file: &str, why: &str) {
        let pause = self.issuer().shared.not_stored(file, now()).as_secs();
        self.log(
            Level::Error,
            format_args!("{why}; a restart would lose the certificate; next attempt in {pause} s"),
        );
    }

    /// Retries a failed write of a certificate when due; returns the time until the next attempt.
    async fn store(&self, certificate: &Certificate) -> Duration {
        let (Certificate { file, .. }, shared) = (certificate, &self.issuer().shared);
        let left = |now| shared.unstored(file).map(|unstored| unstored.left(now));
        match left(now()) {
            None => return LOOK,
            Some(left) if !left.is_zero() => return left,
            Some(_) => {}
        }
        match self.store_now(certificate).await {
            Ok(true) => {
                shared.stored(file);
                let name = certificate.name();
                self.log(Level::Notice, format_args!("the certificate for {name} is stored now"));
            }
            Ok(false) => self.not_stored(file, "another instance has the lock of the state"),
            Err(why) => self.not_stored(file, &why),
        }
        left(now()).unwrap_or(LOOK)
    }

    /// False: another instance has the lock.
    async fn store_now(&self, certificate: &Certificate) -> Result<bool, String> {
        let (Certificate { file, .. }, shared) = (certificate, &self.issuer().shared);
        let ordering = self.ordering();
        let Some(lock) = ordering.state.lock().await? else { return Ok(false) };
        let before = shared.pair(file);
        // Another instance may have stored a newer certificate, which is then in use.
        let written = match self.load(certificate).await {
            Err(why) => Err(why),
            Ok(_) => match (before, shared.pair(file)) {
                (Some(before), Some(pair)) if Arc::ptr_eq(&before, &pair) => {
                    ordering.state.write(file, &pair.text).await
                }
                _ => Ok(()),
            },
        };
        lock.release().await;
        written.map(|()| true)
    }

    /// Loads a newer certificate from the state directory, if there is one. `Some`: the reason why the file
    /// is unusable.
    async fn load(&self, certificate: &Certificate) -> Result<Option<String>, String> {
        let Certificate { file, .. } = certificate;
        let ordering = self.ordering();
        let Some(contents) = ordering.state.read(file).await? else { return Ok(None) };
        let own = certificate.clone();
        let work = move || {
            let text = Zeroizing::new(String::from_utf8_lossy(&contents).into_owned());
            orders::pair(text, &own)
        };
        let read = ordering.compute(work).await?;
        let shared = &self.issuer().shared;
        match read {
            Ok((pair, _)) => {
                let known = shared.pair(file);
                if known.is_none_or(|known| known.validity.from < pair.validity.from) {
                    shared.put(file, pair);
                }
                Ok(None)
            }
            Err(why) => Ok(Some(why)),
        }
    }
}
