//! The namespace of request variables, and texts with them. Settings use these types without depending on
//! requests.

use nowait_front::log::Formats;
pub use nowait_variables::complex::{Groups, Part};

/// The variables of requests.
pub enum HttpVariables {}

/// The text of the predefined log format.
pub const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \
     \"$request\" $status $body_bytes_sent \
     \"$http_referer\" \"$http_user_agent\"";

impl Formats for HttpVariables {
    const FORMAT: Option<(&'static str, &'static str)> = Some(("combined", COMBINED));
}

/// Text with variables of a request.
pub type Complex = nowait_variables::Complex<HttpVariables>;
/// The variables of one configuration.
pub type Table = nowait_variables::Table<HttpVariables>;
/// The variables of one configuration after it was read completely.
pub type Resolved = nowait_variables::Resolved<HttpVariables>;
/// The target of a `set`.
pub type SetTarget = nowait_variables::SetTarget<HttpVariables>;
/// Places that mention variables, for the error about unknown ones.
pub type Mentions = nowait_variables::Mentions<HttpVariables>;
