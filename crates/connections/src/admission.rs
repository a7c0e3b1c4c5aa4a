//! Whether a request may pass, as far as its connection decides: encrypted, with a certificate that its
//! server trusts, for the server that the handshake named. nginx: the beginning of
//! `ngx_http_process_request`.
//!
//! Called by front ends when a request's head is complete.

use nowait_front::servers::Virtual;
use nowait_front::tls::conf::VerifyClient;
use nowait_front::tls::trust::ClientVerdict;
use nowait_http::client::Security;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_http::special_pages::internal;

use crate::handshake::{asking, find};

/// Checks the requirements of the request's server that the handshake, made with another server, did not
/// cover. Returns the status if the request must be refused.
#[inline]
pub(crate) fn misdirected(request: &Request, servers: &Virtual) -> Option<u16> {
    match request.client().is_tls() {
        true => misdirected_over_tls(request, servers),
        false => None,
    }
}

#[inline(never)]
fn misdirected_over_tls(request: &Request, servers: &Virtual) -> Option<u16> {
    let host = request.head().host().unwrap_or_default();
    if host.is_empty() {
        return None;
    }
    let mut is_other = false;
    request.exchange().with_tls(&mut |tls| {
        is_other = tls
            .session()
            .server_name()
            .is_some_and(|name| name.as_bytes() != host && find(servers, name).is_some());
    });
    if !is_other {
        return None;
    }
    let named = std::str::from_utf8(host).ok().and_then(|host| find(servers, host));
    let server = request.current().conf.server(named.unwrap_or(servers.default_server));
    if server.tls.verify == VerifyClient::Off {
        return None;
    }
    request.log(
        Level::Info,
        format_args!(
            "client attempted to request the server name different from the one that was \
             negotiated while reading client request headers"
        ),
    );
    Some(421)
}

/// Whether a request may pass.
pub(crate) enum Admission {
    /// Admitted.
    Passed,
    /// Refused with this status.
    Refused(u16),
    /// The client's certificate has not been verified with the authorities of the request's server: call
    /// [`judge`].
    Pending,
}

/// Whether the connection is what the request's server demands: encrypted, with a certificate of the
/// client.
#[inline]
pub(crate) fn check(request: &Request) -> Admission {
    match request.client().security.get() {
        Security::Plain => Admission::Passed,
        security => check_on_tls(request, security),
    }
}

#[inline(never)]
fn check_on_tls(request: &Request, security: Security) -> Admission {
    match security {
        Security::Plain => return Admission::Passed,
        Security::PlainOnTls => {
            let text = "client sent plain HTTP request to HTTPS port";
            let step = "while reading client request headers";
            request.log(Level::Info, format_args!("{text} {step}"));
            return Admission::Refused(internal::TO_HTTPS);
        }
        Security::Tls => {}
    }
    let (verify, judge) = (request.server().tls.verify, request.client_trust());
    if verify == VerifyClient::Off && judge.is_none() {
        return Admission::Passed;
    }
    let (mut verdict, mut is_own) = (ClientVerdict::NoCertificate, true);
    request.exchange().with_tls(&mut |tls| {
        verdict = judge.map_or(ClientVerdict::NoCertificate, |judge| tls.verdict(judge));
        is_own = tls.is_of(judge);
    });
    if verdict == ClientVerdict::Pending {
        return Admission::Pending;
    }
    match refusal(verify, &verdict) {
        None => Admission::Passed,
        Some((status, reason)) => {
            let step = "while reading client request headers";
            request.log(Level::Info, format_args!("{reason} {step}"));
            // The handshake was made with other authorities: another one may have a different result.
            Admission::Refused(if is_own { status } else { 421 })
        }
    }
}

/// The reason why a request is refused with such a verdict: the status, and the text for the log.
fn refusal(verify: VerifyClient, verdict: &ClientVerdict) -> Option<(u16, String)> {
    match (verify, verdict) {
        (VerifyClient::Off, _) => None,
        (VerifyClient::OptionalNoCa, ClientVerdict::Given(Err(why))) if why.is_missing_ca() => None,
        (_, ClientVerdict::Given(Err(why))) => {
            Some((internal::CERT_ERROR, format!("client SSL certificate verify error: ({why})")))
        }
        (VerifyClient::On, ClientVerdict::NoCertificate) => {
            Some((internal::NO_CERT, "client sent no required SSL certificate".to_owned()))
        }
        _ => None,
    }
}

/// Has the certificate that the client presented in its handshake judged for the request's server.
/// Afterwards, the result is that of [`check`].
pub(crate) async fn judge(request: &Request) -> Option<u16> {
    let judge = request.client_trust()?;
    let mut chain = Vec::new();
    request.exchange().with_tls(&mut |tls| chain = tls.session().peer_certificates().to_vec());
    let tls = &request.server().tls;
    let asking = asking(request.current(), tls.resolving);
    let verdict = match judge.verify(chain, request.client().number, &asking).await {
        Ok(verdict) => verdict,
        Err(failure) => {
            let text = "while verifying client SSL certificate";
            request.log(Level::Error, format_args!("{failure} {text}"));
            return Some(503);
        }
    };
    request.exchange().with_tls(&mut |tls| tls.remember(judge, verdict));
    match check(request) {
        Admission::Passed => None,
        Admission::Refused(status) => Some(status),
        // Other requests of the connection have displaced the verdict meanwhile.
        Admission::Pending => Some(421),
    }
}
