//! The test of a location that has no fixed URI: a regular expression, or a variable (nginx: predicate locations).

use nowait_conf::{Cx, Diagnostic, Word};
use nowait_variables::{Index, Namespace, Subject as _, variable_name};

use super::{Regex, predicates};
use crate::variables::complex::{HttpVariables, Mentions, Table};

/// Decides whether a request belongs to a location.
#[derive(Debug)]
pub enum LocationTest {
    /// Matches the URI.
    Regex(Regex),
    /// Is neither empty nor `0`.
    Variable(Index),
}

impl LocationTest {
    /// Reads the variable of a location: `$name`.
    ///
    /// # Errors
    /// The argument is something else.
    pub fn variable(cx: &mut Cx<'_>, word: &Word) -> Result<LocationTest, Diagnostic> {
        let name = variable_name(word)?.to_ascii_lowercase();
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            let error = word.error(format!("invalid variable name \"{word}\""));
            return Err(error.hint("a location takes one variable; \"map\" makes one of others"));
        }
        cx.global::<Mentions>().note(name.as_bytes(), word.span);
        Ok(LocationTest::Variable(cx.global::<Table>().index(&name)))
    }

    /// Whether it holds for a request. The captures of a regular expression are kept.
    ///
    /// # Errors
    /// The regular expression takes too many steps.
    pub fn holds(
        &self,
        request: &<HttpVariables as Namespace>::Subject,
        path: &[u8],
    ) -> Result<bool, String> {
        match self {
            LocationTest::Regex(regex) => regex.search_in(request, path),
            LocationTest::Variable(index) => {
                let mut value = Vec::new();
                let found = request.variables().append(*index, request, &mut value);
                Ok(found && predicates::holds(&value))
            }
        }
    }

    /// Compiles an expression that would be compiled at its first use.
    pub fn prepare(&self) {
        if let LocationTest::Regex(regex) = self {
            regex.prepare();
        }
    }
}
