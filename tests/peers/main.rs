//! Real clients and servers as peers: curl, nghttp, h2load, h2spec, Go, quic-go, grpc-go, a receiver of traces, Python, Node,
//! Chromium, OpenSSL, testssl.sh and nginx; PHP-FPM with WordPress and phpMyAdmin, uWSGI with Django, and memcached
//! behind the server.
//!
//! Every test runs with epoll and io_uring under the strict event-loop guard. What a peer verifies
//! itself (contents by their digests, the certificate by the authority) is its verdict; here only its
//! exit status and what it reports count.
//!
//! A test prints `skipped: …` where its peer is missing. `cargo xtask peers --install` installs them,
//! fetches what Debian does not have, and lets no test be skipped.

mod acme;
mod applications;
mod browser;
mod dashboard;
mod grpc;
mod h2spec;
mod http3;
mod libraries;
mod nginx;
mod openssl;
#[cfg(feature = "otel")]
mod otel;
mod stage;
mod testssl;
mod tools;
mod webdav;
