//! Issuers of certificates: pebble, with its faults and dead, and one of our own, which can lie.

mod issuer;
mod liars;
mod orders;
mod pebble;
mod renewals;
mod serve;
mod state;
mod validations;
