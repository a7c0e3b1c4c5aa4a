//! Checks that the names of a certificate resolve to this server (`check_names`): sends the issuer's
//! request to each of their addresses and checks that this server answers.
//!
//! Called by the issuer's task before a first order. Failures are only warnings: behind many routers, a
//! machine can't reach its own public address.

use std::net::SocketAddr;
use std::time::Duration;

use nowait_acme::{Identifier, base64url};
use nowait_front::tls::https;
use nowait_http::log::Level;
use nowait_http::random;
use nowait_runtime::time::timeout;

use super::WELL_KNOWN;
use super::orders::OrderContext;
use super::state::{Certificate, PublishedChallenges};

/// The port that issuers connect to (RFC 8555, 8.3).
const PORT: u16 = 80;

/// Time for all names. Remaining names are not checked.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Time for one address.
const ADDRESS_TIME_MAX: Duration = Duration::from_secs(3);

/// Maximum number of addresses checked for each name.
const ADDRESSES_MAX: usize = 8;

/// Maximum size of an accepted response.
const BODY_BYTES_MAX: usize = 100;

/// Logs the names that do not resolve to this server.
pub async fn check(ordering: &OrderContext<'_>, certificate: &Certificate) {
    let (token, answer) = (base64url(&random::bytes()), base64url(&random::bytes()));
    let mut published = PublishedChallenges::new(&ordering.issuer.shared);
    ordering.answer(&token, answer.clone(), &mut published).await;
    let path = format!("{}{token}", String::from_utf8_lossy(WELL_KNOWN));
    let all = async {
        for one in &certificate.identifiers {
            let Identifier::Dns(name) = one else { continue };
            if let Err(why) = look(ordering, name, &path, &answer).await {
                let issuer = &ordering.issuer.name;
                ordering
                    .state
                    .current
                    .logs
                    .error(Level::Warn, format_args!("{why}, issuer \"{issuer}\""));
            }
        }
    };
    let _ = timeout(TIME_MAX, all).await;
    ordering.withdraw(published).await;
}

/// Requests a file with known contents; the error is for the log.
async fn look(
    ordering: &OrderContext<'_>,
    name: &str,
    path: &str,
    expected: &str,
) -> Result<(), String> {
    let means = ordering.means();
    let found = means.resolver.resolve(name.as_bytes(), means.resolver_timeout).await;
    let found = found.map_err(|error| {
        format!(
            "{name} could not be resolved ({error}): the issuer needs an address of it in the DNS, \
             one of this machine"
        )
    })?;
    let mut wrong = Vec::new();
    for address in found.sockets(PORT).take(ADDRESSES_MAX) {
        let asked = https::plain(address, name, path, BODY_BYTES_MAX);
        let asked = timeout(ADDRESS_TIME_MAX, asked).await;
        match asked.unwrap_or_else(|_| Err("no answer".to_owned())) {
            Ok(answer) if answer.body == expected.as_bytes() => {}
            Ok(answer) => wrong.push(mismatch(address, answer.status)),
            Err(why) => wrong.push(format!("{}: {why}", address.ip())),
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "http://{name}/ does not seem to reach this server ({}): the issuer will connect there, so port {PORT} of \
             these addresses has to be open and forwarded to this server, or the addresses in the DNS have to \
             be corrected. Behind a router that can't reach its own public address, this may be a false \
             alarm",
            wrong.join("; ")
        )),
    }
}

fn mismatch(address: SocketAddr, status: u16) -> String {
    format!("{}: another server answered, with status {status}", address.ip())
}
