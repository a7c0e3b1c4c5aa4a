//! Issuers of certificates: pebble, with its faults and dead, and one that lies.

mod liars;
mod orders;
mod pebble;
mod renewals;
mod serve;
mod state;
