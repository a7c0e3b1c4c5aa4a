//! HTTP/1.1 (RFC 9112) without sockets, files, clocks or threads.
#![forbid(unsafe_code)]
