//! `rewrite`: another URI, or a redirect, where an expression matches the path.
//! nginx: `ngx_http_script_regex_start_code`, `ngx_http_script_regex_end_code`.

use nowait_http::conf::Regex;
use nowait_http::log::Level;
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::variables::complex::{Complex, Groups};
use nowait_message::escape::{Unescape, unescape};

use super::condition::log_match;

/// A `rewrite` directive.
#[derive(Debug, Clone)]
pub struct Rewrite {
    /// The expression for the request's path.
    pub regex: Regex,
    /// The effect on the request.
    pub replacement: Replacement,
    /// Whether the request's query string is appended: the replacement does not end with `?`.
    pub keep_args: bool,
}

/// The effect of a `rewrite`.
#[derive(Debug, Clone)]
pub enum Replacement {
    /// Another URI.
    Uri {
        /// The path: the part before the first `?`.
        path: Complex,
        /// The query string, if there is a `?`.
        args: Option<Complex>,
        /// How the request continues.
        flag: Flag,
    },
    /// A redirect of the client.
    Redirect {
        /// The target.
        to: Complex,
        /// Whether the target contains a `?`.
        has_args: bool,
        /// 301 or 302.
        status: u16,
    },
}

/// The third argument of `rewrite`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// None: the following directives are run, then the location is searched.
    Continue,
    /// `last`: the location is searched at once.
    Last,
    /// `break`: the request stays in its location.
    Break,
}

/// How the program continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewriteResult {
    /// The expression did not match: with the next directive.
    NoMatch,
    /// The URI was changed: with the next directive.
    Continue,
    /// The URI was changed: the program ends.
    Stop,
}

impl Rewrite {
    /// Changes the request if the expression matches its path.
    ///
    /// # Errors
    /// The response: a redirect or an error.
    pub(super) fn apply(&self, request: &mut Request, log: bool) -> Result<RewriteResult, Outcome> {
        let path = &request.uri().path;
        let found = self
            .regex
            .search_in(request, path)
            .map_err(|error| search_failed(request, &self.regex, path, &error))?;
        if log {
            log_match(request, &self.regex, path, found);
        }
        if !found {
            request.clear_captures();
            return Ok(RewriteResult::NoMatch);
        }
        request.set_internal(true);
        match &self.replacement {
            Replacement::Redirect { to, has_args, status } => {
                Err(self.redirect(request, to, *has_args, *status, log))
            }
            Replacement::Uri { path, args, flag } => {
                if *flag == Flag::Break {
                    request.stay_in_location();
                } else {
                    request.search_location();
                }
                self.change(request, path, args.as_ref(), log)?;
                Ok(if *flag == Flag::Continue {
                    RewriteResult::Continue
                } else {
                    RewriteResult::Stop
                })
            }
        }
    }

    fn redirect(
        &self,
        request: &Request,
        to: &Complex,
        has_args: bool,
        status: u16,
        log: bool,
    ) -> Outcome {
        let mut text = Vec::new();
        to.append_with(request, Groups::Escaped, &mut text);
        let (mut location, read) = unescape(&text, Unescape::Redirect);
        location.extend_from_slice(&text[read..]);
        if self.keep_args && !request.uri().query().is_empty() {
            location.push(if has_args { b'&' } else { b'?' });
            location.extend_from_slice(request.uri().query());
        }
        if log {
            let shown = String::from_utf8_lossy(&location);
            request.log(Level::Notice, format_args!("rewritten redirect: \"{shown}\""));
        }
        Outcome::moved(status, location)
    }

    fn change(
        &self,
        request: &mut Request,
        path: &Complex,
        args: Option<&Complex>,
        log: bool,
    ) -> Result<(), Outcome> {
        let mut new_path = Vec::new();
        path.append(request, &mut new_path);
        match args {
            Some(args) => {
                let mut new = Vec::new();
                args.append_with(request, Groups::Escaped, &mut new);
                if self.keep_args && !request.uri().query().is_empty() {
                    new.push(b'&');
                    new.extend_from_slice(request.uri().query());
                }
                request.set_args(new);
            }
            None if self.keep_args => {}
            None => request.set_args(Vec::new()),
        }
        if log {
            request.log(
                Level::Notice,
                format_args!(
                    "rewritten data: \"{}\", args: \"{}\"",
                    String::from_utf8_lossy(&new_path),
                    String::from_utf8_lossy(request.uri().query())
                ),
            );
        }
        request.rewrite_path(new_path);
        if request.uri().path.is_empty() {
            request.log(Level::Error, format_args!("the rewritten URI has a zero length"));
            return Err(Outcome::status(500));
        }
        Ok(())
    }
}

/// Logs that an expression could not be matched. nginx: `ngx_http_regex_exec`.
pub(super) fn search_failed(request: &Request, regex: &Regex, text: &[u8], error: &str) -> Outcome {
    request.log(
        Level::Alert,
        format_args!(
            "{error} on \"{}\" using \"{}\"",
            String::from_utf8_lossy(text),
            String::from_utf8_lossy(regex.pattern())
        ),
    );
    Outcome::status(500)
}
