//! The namespace of session variables, and texts with them. Settings use these types without depending on
//! sessions.

use nowait_front::log::Formats;

/// The variables of sessions.
pub enum StreamVariables {}

impl Formats for StreamVariables {
    const FORMAT: Option<(&'static str, &'static str)> = None;
}

/// Text with session variables.
pub type Complex = nowait_variables::Complex<StreamVariables>;
/// The variables of one configuration.
pub type Table = nowait_variables::Table<StreamVariables>;
/// Places that mention variables, for the error about unknown ones.
pub type Mentions = nowait_variables::Mentions<StreamVariables>;
