//! Variables of requests: those that the modules of this crate offer, by name, and what the framework
//! of `nowait_variables` needs from a request.
//!
//! Called by every module whose directives accept variables. nginx: `ngx_http_variables.c`.

pub mod core;
pub mod proxy_protocol;
pub mod system;
pub mod upstream;

pub use nowait_variables::{Captures, DEPTH_MAX, DuplicateVariable, Index, Slot, Slots};

use crate::request::Request;

/// A built-in variable: one row of a module's table.
pub type Builtin = nowait_variables::Builtin<Request>;
/// A family of variables with a common prefix: one row of a module's table.
pub type Family = nowait_variables::Family<Request>;
/// A built-in variable that `set` may change.
pub type Changeable = nowait_variables::Changeable<Request>;
/// The variables of one configuration.
pub type Table = nowait_variables::Table<Request>;
/// The variables of one configuration after it was read completely.
pub type Resolved = nowait_variables::Resolved<Request>;
/// The target of a `set`.
pub type Place = nowait_variables::Place<Request>;
/// Places that mention variables, for the error about unknown ones.
pub type Mentions = nowait_variables::Mentions<Request>;

/// Text with variables.
pub mod complex {
    pub use nowait_variables::complex::{Groups, Part};

    /// Text with variables of a request.
    pub type Complex = nowait_variables::Complex<crate::request::Request>;
}
