//! Rules for a shared cache of HTTP responses: RFC 9111 as pure functions, and nginx's rules.
//!
//! The rules take plain data: field lines as pairs of name and value, a [`Method`], a status, and times
//! as Unix seconds. The `backend` crate fills it in from requests and responses, and acts on the result.
//!
//! | Question | RFC 9111 | nginx's rules |
//! |---|---|---|
//! | What do a request and a response say? | [`facts`], [`control`], [`targeted_control`] (RFC 9213) | |
//! | May a response be stored, and which of its fields? | [`storage`] | [`validity`] |
//! | How long is it fresh, and may it be used for this request? | [`freshness`] | [`validity`] |
//! | Which variant belongs to a request? | [`vary`] | [`vary`] |
//! | May another response supply the rest of it? | [`combination`] | |
//! | What do later responses change? | [`updates`] | |
//! | What is kept of it besides its body? | [`meta`] | [`meta`] |
//! | How is the outcome reported? | [`status`] (RFC 9211) | [`status`] |
//!
//! What it never does: read a clock or a configuration, look a response up, or store one: see the
//! `nowait-cache` crate for that. No input makes it panic.
//!
//! `unsafe` is forbidden.
//!
//! [`Method`]: nowait_message::Method
#![forbid(unsafe_code)]

pub mod combination;
pub mod control;
pub mod facts;
pub mod freshness;
pub mod meta;
pub mod status;
pub mod storage;
pub mod targeted_control;
pub mod updates;
pub mod validity;
pub mod vary;

#[cfg(test)]
mod tests;
