//! Execution of commands. nginx: the handlers of `ngx_http_ssi_filter_module`.
//!
//! Called by a [`SsiBody`] for each command it finds, in order. Decides which text is output and which
//! subrequests are started; never waits.

use bytes::Bytes;
use nowait_conf::Regex;
use nowait_http::log::Level;
use nowait_http::path;
use nowait_http::request::Request;
use nowait_http::subrequest::Subrequest;
use nowait_message::escape;
use nowait_variables::Captures;

use super::scan::{Command, PARAMETERS_MAX};
use super::{BranchKind, CommandError, Encoding, Include, SsiBody, TIME_FORMAT_SET, text};

/// The action after a command.
pub(super) enum CommandEffect {
    /// Continue.
    Continue,
    /// Continue after all pending output has been sent.
    Wait,
    /// Store the response of a subrequest in a variable.
    Set { name: Vec<u8>, request: Box<Request> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Include,
    Echo,
    Config,
    Set,
    If,
    Elif,
    Else,
    Endif,
    Block,
    Endblock,
}

/// The known parameters of one command, and whether they are mandatory.
type ParameterTable = &'static [(&'static str, bool)];

impl Kind {
    fn of(name: &[u8]) -> Option<(Self, ParameterTable)> {
        Some(match name {
            b"include" => (
                Self::Include,
                &[
                    ("virtual", false),
                    ("file", false),
                    ("wait", false),
                    ("set", false),
                    ("stub", false),
                ],
            ),
            b"echo" => (Self::Echo, &[("var", true), ("default", false), ("encoding", false)]),
            b"config" => (Self::Config, &[("errmsg", false), ("timefmt", false)]),
            b"set" => (Self::Set, &[("var", true), ("value", true)]),
            b"if" => (Self::If, &[("expr", true)]),
            b"elif" => (Self::Elif, &[("expr", true)]),
            b"else" => (Self::Else, &[]),
            b"endif" => (Self::Endif, &[]),
            b"block" => (Self::Block, &[("name", true)]),
            b"endblock" => (Self::Endblock, &[]),
            _ => return None,
        })
    }

    /// Where the command is allowed: anywhere (`None`), after `if`, or after `else`, too.
    fn needs(self) -> Option<BranchKind> {
        match self {
            Self::Elif | Self::Else => Some(BranchKind::If),
            Self::Endif => Some(BranchKind::Else),
            _ => None,
        }
    }
}

/// Values in the order of the names in [`Kind::of`].
struct Values<'a> {
    command: &'a Command,
}

impl<'a> Values<'a> {
    fn get(&self, name: &str) -> Option<&'a [u8]> {
        let found = self.command.parameters.iter().find(|(key, _)| key == name.as_bytes());
        found.map(|(_, value)| &value[..])
    }
}

fn lossy(text: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text)
}

impl SsiBody {
    /// Executes a command, unless its surroundings produce no output.
    ///
    /// # Errors
    /// The command failed; the log says why.
    pub(super) fn command(&mut self, command: &Command) -> Result<CommandEffect, CommandError> {
        let name = lossy(&command.name);
        let Some((kind, known)) = Kind::of(&command.name) else {
            return if self.writes {
                Err(self.fail(format_args!("invalid SSI command: \"{name}\"")))
            } else {
                Ok(CommandEffect::Continue)
            };
        };
        if !self.writes && kind != Kind::Endblock {
            if self.in_block {
                let mut text = Vec::new();
                command.append_to(&mut text);
                self.extend_block(&text)?;
                return Ok(CommandEffect::Continue);
            }
            if kind.needs().is_none() {
                return Ok(CommandEffect::Continue);
            }
        }
        if kind.needs().is_some_and(|needs| {
            self.condition
                .is_none_or(|condition| condition == BranchKind::Else && condition != needs)
        }) {
            return Err(self.fail(format_args!("invalid context of SSI command: \"{name}\"")));
        }
        self.check(command, known)?;
        let values = Values { command };
        match kind {
            Kind::Include => self.include(&values),
            Kind::Echo => self.echo(&values),
            Kind::Config => self.config(&values),
            Kind::Set => self.set(&values),
            Kind::If | Kind::Elif => self.if_(kind, &values),
            Kind::Else => {
                self.writes = !self.chosen;
                self.condition = Some(BranchKind::Else);
                Ok(CommandEffect::Continue)
            }
            Kind::Endif => {
                self.writes = true;
                self.chosen = false;
                self.condition = None;
                Ok(CommandEffect::Continue)
            }
            Kind::Block => {
                let name = values.get("name").unwrap_or_default().to_vec();
                self.common(|common| common.begin_block(name))?;
                self.writes = false;
                self.in_block = true;
                Ok(CommandEffect::Continue)
            }
            Kind::Endblock => {
                self.writes = true;
                self.in_block = false;
                Ok(CommandEffect::Continue)
            }
        }
    }

    /// Checks the names of the parameters.
    fn check(&self, command: &Command, known: ParameterTable) -> Result<(), CommandError> {
        let name = lossy(&command.name);
        if command.too_many {
            return Err(self.fail(format_args!(
                "too many SSI command parameters: \"{name}\", at most {PARAMETERS_MAX}"
            )));
        }
        for (n, (key, _)) in command.parameters.iter().enumerate() {
            let shown = lossy(key);
            if !known.iter().any(|(name, _)| name.as_bytes() == key) {
                return Err(self.fail(format_args!(
                    "invalid parameter name: \"{shown}\" in \"{name}\" SSI command"
                )));
            }
            if command.parameters[..n].iter().any(|(before, _)| before == key) {
                return Err(self.fail(format_args!(
                    "duplicate \"{shown}\" parameter in \"{name}\" SSI command"
                )));
            }
        }
        let absent = known.iter().find(|(wanted, mandatory)| {
            *mandatory && !command.parameters.iter().any(|(key, _)| key == wanted.as_bytes())
        });
        match absent {
            None => Ok(()),
            Some((wanted, _)) => Err(self.fail(format_args!(
                "mandatory \"{wanted}\" parameter is absent in \"{name}\" SSI command"
            ))),
        }
    }

    fn include(&mut self, values: &Values<'_>) -> Result<CommandEffect, CommandError> {
        let (uri, file) = (values.get("virtual"), values.get("file"));
        let (set, stub) = (values.get("set"), values.get("stub"));
        let target = match (uri, file) {
            (Some(uri), Some(file)) => {
                return Err(self.fail(format_args!(
                    "inclusion may be either virtual=\"{}\" or file=\"{}\"",
                    lossy(uri),
                    lossy(file)
                )));
            }
            (None, None) => {
                return Err(self.fail(format_args!("no parameter in \"include\" SSI command")));
            }
            (Some(target), None) | (None, Some(target)) => target,
        };
        if set.is_some() && stub.is_some() {
            return Err(self.fail(format_args!(
                "\"set\" and \"stub\" cannot be used together in \"include\" SSI command"
            )));
        }
        let waits = match values.get("wait") {
            None => file.is_some(),
            Some(_) if file.is_some() => {
                let target = lossy(target);
                return Err(
                    self.fail(format_args!("\"wait\" cannot be used with file=\"{target}\""))
                );
            }
            Some(value) if value.eq_ignore_ascii_case(b"no") => false,
            Some(value) if value.eq_ignore_ascii_case(b"yes") => true,
            Some(value) => {
                let value = lossy(value);
                return Err(
                    self.fail(format_args!("invalid value \"{value}\" in the \"wait\" parameter"))
                );
            }
        };
        let mut target = text::evaluate(&self.request, target)?;
        if target.first().is_some_and(|first| *first != b'/') {
            let path = &self.request.uri().path;
            let directory = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
            target.splice(0..0, path[..directory].iter().copied());
        }
        let Some((path, args)) = path::from_outside(&target) else {
            let target = lossy(&target);
            return Err(self.fail(format_args!("unsafe URI \"{target}\" was detected")));
        };
        let stub = match stub {
            None => None,
            Some(name) => match self.common(|common| Ok(common.block(name)))? {
                Some(block) => Some(block),
                None => {
                    let name = lossy(name);
                    return Err(
                        self.fail(format_args!("\"stub\"=\"{name}\" for \"include\" not found"))
                    );
                }
            },
        };
        let begun = Subrequest { bare: stub.is_some(), ..Subrequest::get(path, args) }
            .begin(&self.request)
            .map_err(|_| CommandError)?;
        if let Some(name) = set {
            return Ok(CommandEffect::Set { name: name.to_ascii_lowercase(), request: begun });
        }
        self.push_include(Include::new(begun, stub));
        Ok(if waits { CommandEffect::Wait } else { CommandEffect::Continue })
    }

    fn echo(&mut self, values: &Values<'_>) -> Result<CommandEffect, CommandError> {
        let mut value = Vec::new();
        if !text::append(&self.request, values.get("var").unwrap_or_default(), &mut value) {
            value.extend_from_slice(values.get("default").unwrap_or(b"(none)"));
        }
        if value.is_empty() {
            return Ok(CommandEffect::Continue);
        }
        match values.get("encoding") {
            None => {}
            Some(b"none") => self.encoding = Encoding::None,
            Some(b"url") => self.encoding = Encoding::Url,
            Some(b"entity") => self.encoding = Encoding::Entity,
            Some(unknown) => {
                let unknown = lossy(unknown);
                // As in nginx, the command is executed nevertheless.
                let _ = self
                    .fail(format_args!("unknown encoding \"{unknown}\" in the \"echo\" command"));
            }
        }
        match self.encoding {
            Encoding::None => self.write(&value),
            Encoding::Url => self.write(&escape::uri(escape::Set::Html, &value)),
            Encoding::Entity => {
                let mut escaped = Vec::with_capacity(value.len());
                escape::push_html(&mut escaped, &value);
                self.write(&escaped);
            }
        }
        Ok(CommandEffect::Continue)
    }

    fn config(&mut self, values: &Values<'_>) -> Result<CommandEffect, CommandError> {
        if let Some(format) = values.get("timefmt") {
            *self.request.state_mut().of_mut(&TIME_FORMAT_SET) =
                Some(Bytes::copy_from_slice(format));
        }
        if let Some(message) = values.get("errmsg") {
            self.error_message = Bytes::copy_from_slice(message);
        }
        Ok(CommandEffect::Continue)
    }

    fn set(&mut self, values: &Values<'_>) -> Result<CommandEffect, CommandError> {
        let value = text::evaluate(&self.request, values.get("value").unwrap_or_default())?;
        let name = values.get("var").unwrap_or_default().to_ascii_lowercase();
        self.common(|common| common.set(name, value.into()))?;
        Ok(CommandEffect::Continue)
    }

    fn if_(&mut self, kind: Kind, values: &Values<'_>) -> Result<CommandEffect, CommandError> {
        if kind == Kind::If && self.condition.is_some() {
            return Err(self.fail(format_args!("the \"if\" command inside the \"if\" command")));
        }
        if self.chosen {
            self.writes = false;
            return Ok(CommandEffect::Continue);
        }
        let holds = self.holds(values.get("expr").unwrap_or_default())?;
        self.writes = holds;
        self.chosen = holds;
        self.condition = Some(BranchKind::If);
        Ok(CommandEffect::Continue)
    }

    /// Evaluates an expression: `$variable`, `$variable = text`, `$variable != text`, or a
    /// comparison with `/regular expression/`.
    fn holds(&mut self, expression: &[u8]) -> Result<bool, CommandError> {
        let is_left = |byte: &u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'$' | b'{' | b'}' | b'_' | b'"' | b'\'')
        };
        let end = expression.iter().position(|byte| !is_left(byte)).unwrap_or(expression.len());
        let left = text::evaluate(&self.request, &expression[..end].to_ascii_lowercase())?;
        let rest = expression[end..].trim_ascii_start();
        if rest.is_empty() {
            return Ok(!left.is_empty());
        }
        let (negated, right) = match rest {
            [b'=', right @ ..] => (false, right),
            [b'!', b'=', right @ ..] => (true, right),
            _ => return Err(self.invalid_expression(expression)),
        };
        let start = right.iter().position(|byte| *byte != b' ').unwrap_or(right.len());
        let equal = match &right[start..] {
            [b'/', pattern @ .., b'/'] => {
                let pattern = text::evaluate(&self.request, pattern)?;
                self.matches(&pattern, left)?
            }
            [b'/', _, ..] => return Err(self.invalid_expression(expression)),
            [b'\\', right @ ..] if right.first() == Some(&b'/') => {
                left == text::evaluate(&self.request, right)?
            }
            right => left == text::evaluate(&self.request, right)?,
        };
        Ok(equal != negated)
    }

    fn invalid_expression(&self, expression: &[u8]) -> CommandError {
        self.fail(format_args!("invalid expression in \"{}\"", lossy(expression)))
    }

    /// Matches an expression; its groups become variables.
    fn matches(&mut self, pattern: &[u8], subject: Vec<u8>) -> Result<bool, CommandError> {
        let regex = Regex::new(pattern, false).map_err(|e| self.fail(format_args!("{e}")))?;
        let groups = regex.captures(&subject).map_err(|error| {
            self.request.log(
                Level::Alert,
                format_args!("{error} on \"{}\" using \"{}\"", lossy(&subject), lossy(pattern)),
            );
            CommandError
        })?;
        let Some(groups) = groups else { return Ok(false) };
        let captures = Captures { subject, groups };
        let named = regex.names().map(|(name, n)| {
            let value = captures.group(n).unwrap_or_default();
            (name.to_ascii_lowercase().into_bytes(), Bytes::copy_from_slice(value))
        });
        let named: Vec<_> = named.collect();
        self.common(|common| {
            common.captures = captures;
            named.into_iter().try_for_each(|(name, value)| common.set(name, value))
        })?;
        Ok(true)
    }
}
