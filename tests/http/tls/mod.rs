//! `listen ... ssl`: as clients see it, with certificates made for each test.

mod certificates;
pub mod client;
mod compression;
mod configuration;
mod key_log;
mod named;
mod ocsp;
mod origin;
mod renewal;
mod requests;
pub mod responder;
mod trust;
mod uploads;
mod upstream;

use client::{Authority, TlsClient};
use nowait_testkit::ServerBuilder;

use crate::stage::site;

/// A server for `localhost` with TLS at `%%PORT%%`, with a certificate of the authority.
fn secured(authority: &Authority, content: &str) -> ServerBuilder {
    beside(authority, content, "")
}

/// The same, with more blocks in `http`.
fn beside(authority: &Authority, content: &str, more: &str) -> ServerBuilder {
    let own = authority.issue("localhost");
    let http = format!(
        "server {{\nlisten 127.0.0.1:%%PORT%% ssl;\nserver_name localhost;\n\
         ssl_certificate own.pem;\nssl_certificate_key own.key;\nroot %%DIR%%/html;\n{content}\n}}\n{more}"
    );
    site(&http).file("own.pem", own.chain).file("own.key", own.key)
}
