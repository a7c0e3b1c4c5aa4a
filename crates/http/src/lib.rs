//! The HTTP server: servers, locations, phases, variables, handlers, filters, logs.
#![forbid(unsafe_code)]
