//! The configuration language of nginx: syntax, directive tables, diagnostics. Knows no HTTP.
#![forbid(unsafe_code)]
