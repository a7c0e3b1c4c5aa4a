//! Automatic certificates (RFC 8555), sans-IO.
//!
//! An [`Order`] leads from the issuer's directory to a certificate: it returns the next request to
//! send, challenge to publish, or time to wait, and receives the responses. A [`Schedule`] tells when
//! to begin, with the issuer's wishes ([`Renewal`], RFC 9773). Keys, requests for certificates and the
//! certificates of validations ([`Validation`], RFC 8737) are made here, too.
//!
//! Nothing here knows sockets, files, threads or configuration. Random numbers come from aws-lc-rs;
//! the time is passed in.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod base64;
mod der;
mod key;
mod order;
mod renewal;
mod request;
mod response;
mod schedule;
mod validation;

pub use base64::{decode as from_base64url, encode as base64url};
pub use key::{Algorithm, KeyError, PrivateKey};
pub use order::{
    Challenge, ExternalAccount, IssuedCertificate, NextAction, Order, OrderSettings, is_token,
};
pub use renewal::{Renewal, renewal_id, renewal_url};
pub use request::{CertificateRequest, Identifier};
pub use response::{BODY_BYTES_MAX, IssueError, IssuerResponse};
pub use schedule::{RenewalAction, Schedule, Validity};
pub use validation::{ALPN, Validation};
