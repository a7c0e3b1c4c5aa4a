//! What a request writes to the error log.

use std::fmt;

use crate::log::Level;
use crate::request::Request;

impl Request {
    /// Writes a line about this request to the error logs of its location.
    pub fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        self.current.logs.request_error(self, level, message);
    }
}
