//! The tools: subcommands for people who write configurations or look at a running server. Each is a Cargo feature, and the server does
//! without any.
//!
//! Called by `commands` for their arguments, by `main` to run one, and by `features` for what is missing.

use std::fmt;

use clap::{ArgMatches, Command};

#[cfg(feature = "explain")]
use crate::explain_command::{self, Explain};
#[cfg(feature = "fmt")]
use crate::format_command::{self, FormatCommand};
#[cfg(feature = "lint")]
use crate::lint_command::{self, Lint};
#[cfg(feature = "migrate")]
use crate::migrate_command::{self, Migrate};
#[cfg(feature = "top")]
use crate::top::{self, Top};

/// A tool with its arguments.
pub struct ToolCall(Box<dyn FnOnce() -> Result<u8, String>>);

impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolCall")
    }
}

impl ToolCall {
    /// Runs it; returns the exit code.
    ///
    /// # Errors
    /// The text to print; the exit code is then 2, because 1 is a judgement of a configuration.
    pub fn run(self) -> Result<u8, String> {
        (self.0)()
    }
}

struct Tool {
    arguments: fn() -> Command,
    parse: fn(&ArgMatches) -> Result<ToolCall, clap::Error>,
}

/// The tools that are built in, in the order of the help.
const TOOLS: &[Tool] = &[
    #[cfg(feature = "fmt")]
    Tool {
        arguments: format_command::arguments,
        parse: |matches| {
            let format = FormatCommand::of(matches);
            Ok(ToolCall(Box::new(move || format.run())))
        },
    },
    #[cfg(feature = "lint")]
    Tool {
        arguments: lint_command::arguments,
        parse: |matches| {
            let lint = Lint::of(matches);
            Ok(ToolCall(Box::new(move || lint.run())))
        },
    },
    #[cfg(feature = "migrate")]
    Tool {
        arguments: migrate_command::arguments,
        parse: |matches| {
            let migrate = Migrate::of(matches);
            Ok(ToolCall(Box::new(move || migrate.run())))
        },
    },
    #[cfg(feature = "explain")]
    Tool {
        arguments: explain_command::arguments,
        parse: |matches| {
            let explain = Explain::of(matches)?;
            Ok(ToolCall(Box::new(move || explain.run())))
        },
    },
    #[cfg(feature = "top")]
    Tool {
        arguments: top::arguments,
        parse: |matches| {
            let top = Top::of(matches);
            Ok(ToolCall(Box::new(move || top.run())))
        },
    },
];

/// Names of the tools, which are those of their features, and whether they are built in.
pub const NAMES: [(&str, bool); 5] = [
    ("explain", cfg!(feature = "explain")),
    ("fmt", cfg!(feature = "fmt")),
    ("lint", cfg!(feature = "lint")),
    ("migrate", cfg!(feature = "migrate")),
    ("top", cfg!(feature = "top")),
];

/// The subcommands of the tools.
pub fn commands() -> impl Iterator<Item = Command> {
    TOOLS.iter().map(|tool| (tool.arguments)())
}

/// The tool of this name with its arguments; `None` if no tool has the name.
pub fn parse(name: &str, matches: &ArgMatches) -> Option<Result<ToolCall, clap::Error>> {
    let tool = TOOLS.iter().find(|tool| (tool.arguments)().get_name() == name)?;
    Some((tool.parse)(matches))
}

/// Whether a name is that of a tool without which this program was built.
pub fn is_missing(name: &str) -> bool {
    NAMES.contains(&(name, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_built_in_or_missing() {
        let mut built_in: Vec<_> = commands().map(|tool| tool.get_name().to_owned()).collect();
        built_in.sort();
        let named = NAMES.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| *name);
        assert_eq!(built_in, named.collect::<Vec<_>>());
        assert!(!is_missing("serve") && is_missing("lint") != cfg!(feature = "lint"));
    }
}
