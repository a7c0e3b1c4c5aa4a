//! Variables of requests: how a table of them is written, and those of the core.
//!
//! Called by every module whose directives accept variables. nginx: `ngx_http_variables.c`.

pub mod complex;
pub mod core;
pub mod proxy_protocol;
pub mod system;
pub mod upstream;

use crate::request::Request;
use crate::slots::Key;

/// A location has it if the use of a variable without a value is not logged there.
pub static UNINITIALIZED_ALLOWED: Key<()> = Key::new();

/// A built-in variable: one row of a module's table.
pub type Builtin = nowait_variables::Builtin<Request>;
/// A family of variables with a common prefix: one row of a module's table.
pub type Family = nowait_variables::Family<Request>;
/// A built-in variable that `set` may change.
pub type SettableBuiltin = nowait_variables::SettableBuiltin<Request>;
