//! Filters: what changes a response between its handler and the socket. Each is a module; its place
//! among the others is in [`Place`](crate::module::Place).

pub(crate) mod charset;
pub(crate) mod codings;
mod compress;
pub(crate) mod gunzip;
pub(crate) mod gzip;
mod pull;
pub(crate) mod slice;
pub(crate) mod ssi;

pub(crate) use compress::recode;
pub(crate) use pull::Pull;
