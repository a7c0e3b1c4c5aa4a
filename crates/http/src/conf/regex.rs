//! Regular expressions of locations and server names: matching sets the request's captures.

use std::cell::RefMut;

use nowait_conf::Regex as Compiled;

use crate::request::{Captures, Request};
use crate::variables::Slot;

/// A compiled expression and the variables that its named groups set.
#[derive(Debug, Clone)]
pub struct Regex {
    compiled: Compiled,
    named: Box<[(usize, Slot)]>,
}

impl Regex {
    /// Combines an expression with the variables of its named groups.
    pub fn new(compiled: Compiled, named: Vec<(usize, Slot)>) -> Self {
        Self { compiled, named: named.into() }
    }

    /// The expression as it was written.
    pub fn pattern(&self) -> &[u8] {
        self.compiled.pattern()
    }

    /// Matches the request's URI.
    ///
    /// # Errors
    /// The match took too much effort.
    pub fn search(&self, request: &Request) -> Result<bool, String> {
        self.search_in(request, &request.uri.path)
    }

    /// Matches a text; on success the request's captures and named variables are set.
    ///
    /// # Errors
    /// The match took too much effort.
    pub fn search_in(&self, request: &Request, text: &[u8]) -> Result<bool, String> {
        let mut captures: RefMut<'_, Captures> = request.captures.borrow_mut();
        let Captures { subject, groups } = &mut *captures;
        let found = self.compiled.captures_into(text, groups).map_err(|error| error.to_string())?;
        if !found {
            return Ok(false);
        }
        subject.clear();
        subject.extend_from_slice(text);
        for (group, slot) in &*self.named {
            // A group that took no part in the match is an empty text, as in nginx.
            let value = captures.group(*group).unwrap_or_default();
            request.set_slot(*slot, Some(bytes::Bytes::copy_from_slice(value)));
        }
        Ok(true)
    }
}
