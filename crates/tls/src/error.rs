//! Errors, and the party at fault.
//!
//! Texts of failed handshakes are those that nginx logs with OpenSSL, so that existing alerts and
//! filters of logs keep working.

use std::fmt;

use rustls::{
    AlertDescription, CertificateError, InvalidMessage, PeerIncompatible, PeerMisbehaved,
};

use crate::verify::Distrust;

/// The party at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operator: a certificate, a key, or a setting is unusable.
    Operator,
    /// The peer: it violated the protocol, offered no usable parameters, or disconnected.
    Peer,
    /// This side, or the machine.
    Us,
}

/// An error. After one of [`Fault::Peer`] or [`Fault::Us`], the connection is only fit for sending
/// the alert and closing.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// A setting cannot be used. The text is OpenSSL's where nginx would log one.
    Settings(String),
    /// A file is not of the expected form; the call of OpenSSL that reports it, and the reason.
    Pem(&'static str, &'static str),
    /// The password of a key is missing or wrong.
    Password,
    /// The key does not belong to the certificate.
    KeyMismatch,
    /// The connection failed.
    Connection(rustls::Error),
    /// The peer closed the connection without `close_notify`.
    Eof,
    /// The peer sent plain HTTP.
    PlainHttp,
    /// The peer spread one handshake message over too many records, or its hello is too long.
    TooLong,
    /// A call came at the wrong time.
    State(&'static str),
}

impl Error {
    /// The reason why the peer's certificate is not trusted, if that is the error.
    pub fn distrust(&self) -> Option<Distrust> {
        match self {
            Error::Connection(rustls::Error::InvalidCertificate(CertificateError::Other(why))) => {
                why.0.downcast_ref().copied()
            }
            _ => None,
        }
    }

    /// No certificate can be for the expected name.
    pub fn wrong_name() -> Error {
        Error::Connection(rustls::Error::InvalidCertificate(CertificateError::NotValidForName))
    }

    /// Whether the peer's certificate is for another name.
    pub fn is_wrong_name(&self) -> bool {
        use rustls::Error::InvalidCertificate;
        matches!(self, Error::Connection(InvalidCertificate(CertificateError::NotValidForName)))
    }

    /// Whether the other side's first bytes are no record of TLS: it may speak plain HTTP.
    pub fn is_no_tls(&self) -> bool {
        use rustls::Error::InvalidMessage as Invalid;
        let Error::Connection(Invalid(why)) = self else { return false };
        matches!(why, InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion)
    }

    /// The party at fault.
    pub fn fault(&self) -> Fault {
        match self {
            Error::Settings(_) | Error::Pem(..) | Error::Password | Error::KeyMismatch => {
                Fault::Operator
            }
            Error::Eof | Error::PlainHttp | Error::TooLong => Fault::Peer,
            Error::State(_) => Fault::Us,
            Error::Connection(error) => match error {
                rustls::Error::General(_)
                | rustls::Error::FailedToGetCurrentTime
                | rustls::Error::FailedToGetRandomBytes
                | rustls::Error::EncryptError
                | rustls::Error::BadMaxFragmentSize
                | rustls::Error::Other(_) => Fault::Us,
                _ => Fault::Peer,
            },
        }
    }
}

impl From<rustls::Error> for Error {
    fn from(error: rustls::Error) -> Error {
        Error::Connection(error)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Settings(text) => f.write_str(text),
            Error::Pem(call, reason) => write!(f, "{call} failed (SSL: {reason})"),
            Error::Password => f.write_str(
                "PEM_read_bio_PrivateKey() failed (SSL: error:1C800064:Provider routines::bad decrypt)",
            ),
            Error::KeyMismatch => f.write_str(
                "SSL_CTX_use_PrivateKey() failed (SSL: error:05800074:x509 certificate \
                 routines::key values mismatch)",
            ),
            Error::Eof => f.write_str("peer closed connection in SSL handshake"),
            Error::State(text) => f.write_str(text),
            Error::PlainHttp => ssl(f, 156, "http request"),
            Error::TooLong => ssl(f, 152, "excessive message size"),
            Error::Connection(error) => match reason(error) {
                Some((code, reason)) => ssl(f, code, reason),
                None => write!(f, "SSL_do_handshake() failed (SSL: {error})"),
            },
        }
    }
}

/// OpenSSL's library number of TLS, where its error codes carry it.
const LIBRARY: u32 = 20 << 23;

fn ssl(f: &mut fmt::Formatter<'_>, code: u32, reason: &str) -> fmt::Result {
    let code = LIBRARY | code;
    write!(f, "SSL_do_handshake() failed (SSL: error:{code:08X}:SSL routines::{reason})")
}

/// OpenSSL's reason for the same failure.
fn reason(error: &rustls::Error) -> Option<(u32, &'static str)> {
    use rustls::Error as E;
    Some(match error {
        E::PeerIncompatible(why) => match why {
            PeerIncompatible::NoCipherSuitesInCommon => (193, "no shared cipher"),
            PeerIncompatible::NoKxGroupsInCommon
            | PeerIncompatible::NamedGroupsExtensionRequired
            | PeerIncompatible::KeyShareExtensionRequired => (101, "no suitable key share"),
            PeerIncompatible::NoSignatureSchemesInCommon
            | PeerIncompatible::SignatureAlgorithmsExtensionRequired => {
                (118, "no suitable signature algorithm")
            }
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => {
                (258, "unsupported protocol")
            }
            _ => return None,
        },
        E::InvalidMessage(why) => match why {
            InvalidMessage::UnknownProtocolVersion => (267, "wrong version number"),
            InvalidMessage::HandshakePayloadTooLarge => (152, "excessive message size"),
            InvalidMessage::MessageTooLarge | InvalidMessage::MessageTooShort => {
                (198, "packet length too long")
            }
            InvalidMessage::InvalidContentType => (443, "bad record type"),
            InvalidMessage::UnexpectedMessage(_) => (244, "unexpected message"),
            _ => (159, "length mismatch"),
        },
        E::InappropriateMessage { .. } | E::InappropriateHandshakeMessage { .. } => {
            (244, "unexpected message")
        }
        E::PeerMisbehaved(why) => match why {
            PeerMisbehaved::TooManyKeyUpdateRequests => (132, "too many key updates"),
            PeerMisbehaved::TooManyWarningAlertsReceived => (409, "too many warn alerts"),
            _ => (244, "unexpected message"),
        },
        E::DecryptError => (281, "decryption failed or bad record mac"),
        E::PeerSentOversizedRecord => (146, "data length too long"),
        E::NoApplicationProtocol => (235, "no application protocol"),
        E::NoCertificatesPresented => (199, "peer did not return a certificate"),
        E::InvalidCertificate(CertificateError::BadSignature) => (123, "bad signature"),
        E::InvalidCertificate(_) => (134, "certificate verify failed"),
        E::AlertReceived(alert) => return alert_reason(*alert),
        _ => return None,
    })
}

/// OpenSSL numbers received alerts from 1000.
fn alert_reason(alert: AlertDescription) -> Option<(u32, &'static str)> {
    use AlertDescription as A;
    let text = match alert {
        A::UnexpectedMessage => "ssl/tls alert unexpected message",
        A::BadRecordMac => "ssl/tls alert bad record mac",
        A::HandshakeFailure => "ssl/tls alert handshake failure",
        A::BadCertificate => "ssl/tls alert bad certificate",
        A::UnsupportedCertificate => "ssl/tls alert unsupported certificate",
        A::CertificateRevoked => "ssl/tls alert certificate revoked",
        A::CertificateExpired => "ssl/tls alert certificate expired",
        A::CertificateUnknown => "ssl/tls alert certificate unknown",
        A::IllegalParameter => "ssl/tls alert illegal parameter",
        A::UnknownCA => "tlsv1 alert unknown ca",
        A::AccessDenied => "tlsv1 alert access denied",
        A::DecodeError => "tlsv1 alert decode error",
        A::DecryptError => "tlsv1 alert decrypt error",
        A::ProtocolVersion => "tlsv1 alert protocol version",
        A::InsufficientSecurity => "tlsv1 alert insufficient security",
        A::InternalError => "tlsv1 alert internal error",
        A::UserCanceled => "tlsv1 alert user cancelled",
        A::NoRenegotiation => "tlsv1 alert no renegotiation",
        A::UnrecognisedName => "tlsv1 unrecognized name",
        A::CertificateRequired => "tlsv13 alert certificate required",
        A::NoApplicationProtocol => "tlsv1 alert no application protocol",
        _ => return None,
    };
    Some((1000 + u32::from(u8::from(alert)), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_openssl() {
        let text = |error: rustls::Error| Error::from(error).to_string();
        assert_eq!(
            text(PeerIncompatible::NoCipherSuitesInCommon.into()),
            "SSL_do_handshake() failed (SSL: error:0A0000C1:SSL routines::no shared cipher)"
        );
        assert_eq!(
            text(rustls::Error::AlertReceived(AlertDescription::UnknownCA)),
            "SSL_do_handshake() failed (SSL: error:0A000418:SSL routines::tlsv1 alert unknown ca)"
        );
        assert_eq!(
            Error::PlainHttp.to_string(),
            "SSL_do_handshake() failed (SSL: error:0A00009C:SSL routines::http request)"
        );
        assert_eq!(Error::from(rustls::Error::DecryptError).fault(), Fault::Peer);
        assert_eq!(Error::KeyMismatch.fault(), Fault::Operator);
        assert_eq!(Error::from(rustls::Error::FailedToGetRandomBytes).fault(), Fault::Us);
    }
}
