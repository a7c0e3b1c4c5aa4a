//! HTTP/3 (RFC 9114) and QPACK (RFC 9204) without sockets, files, clocks or threads, for both sides.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
