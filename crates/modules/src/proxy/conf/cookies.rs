//! `proxy_cookie_domain`, `proxy_cookie_path` and `proxy_cookie_flags`: changes to `Set-Cookie` of
//! responses.

use nowait_conf::{Cx, Diagnostic, Node, Setting, Word, arity};
use nowait_http::conf::Regex;
use nowait_http::conf::compile_regex;
use nowait_http::variables::complex::Complex;

use super::redirect::expression;

/// Condition for changing an attribute.
#[derive(Debug, Clone)]
pub enum CookiePattern {
    /// This domain, in any case, with or without a leading dot.
    Domain(Complex),
    /// A value with this prefix.
    Prefix(Complex),
    /// A value that matches an expression.
    Regex(Regex),
}

/// A change of an attribute's value.
#[derive(Debug, Clone)]
pub struct CookieRule {
    /// The condition.
    pub pattern: CookiePattern,
    /// The replacement.
    pub replacement: Complex,
}

/// A change of a cookie's flags.
#[derive(Debug, Clone)]
pub struct FlagsRule {
    /// The name of the cookie.
    pub cookie: CookieName,
    /// The flags, as texts with variables.
    pub flags: Vec<Complex>,
}

/// Selects cookies.
#[derive(Debug, Clone)]
pub enum CookieName {
    /// Cookies with this name, in any case.
    Exact(Complex),
    /// Cookies whose name matches an expression.
    Regex(Regex),
}

/// The directives of one kind in a block.
#[derive(Debug, Clone)]
pub struct Rules<R: Rule>(Option<Vec<R::Item>>);

/// One directive of a kind.
pub trait Rule: 'static {
    /// The type.
    type Item: Clone + std::fmt::Debug + 'static;
    /// Largest number of arguments.
    const ARGS_MAX: u32;

    /// Reads the directive.
    ///
    /// # Errors
    /// The fault of the directive.
    fn rule(pattern: &Word, rest: &[Word], cx: &mut Cx<'_>) -> Result<Self::Item, Diagnostic>;
}

impl<R: Rule> Rules<R> {
    /// The rules; none with `off`.
    pub fn list(given: Option<Self>) -> Vec<R::Item> {
        given.and_then(|rules| rules.0).unwrap_or_default()
    }
}

impl<R: Rule + Clone> Setting for Rules<R> {
    const ARITY: arity::Arity = arity::between(1, R::ARGS_MAX);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        match &node.args[..] {
            [word] if *word == *"off" => Ok(Self(None)),
            [word] => Err(node.parameter_error(word).expected("off, or more arguments")),
            [pattern, rest @ ..] => Ok(Self(Some(vec![R::rule(pattern, rest, cx)?]))),
            [] => Err(node.arity_error()),
        }
    }

    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        match (&mut self.0, Self::parse(node, cx)?.0) {
            (Some(rules), Some(more)) => rules.extend(more),
            _ => return Err(node.directive_error("is duplicate")),
        }
        Ok(())
    }
}

/// `proxy_cookie_domain`
#[derive(Debug, Clone)]
pub struct Domain;

/// `proxy_cookie_path`
#[derive(Debug, Clone)]
pub struct Path;

impl Rule for Domain {
    type Item = CookieRule;
    const ARGS_MAX: u32 = 2;

    fn rule(pattern: &Word, rest: &[Word], cx: &mut Cx<'_>) -> Result<CookieRule, Diagnostic> {
        let [replacement] = rest else { return Err(pattern.error("one replacement is expected")) };
        if let Some(regex) = pattern.text.strip_prefix(b"~") {
            // Domains are case-insensitive (RFC 6265 section 5.1.2).
            let pattern = CookiePattern::Regex(compile_regex(cx, pattern, regex, true)?);
            return Ok(CookieRule {
                pattern,
                replacement: nowait_http::conf::complex(replacement, cx)?,
            });
        }
        let mut domain = |word: &Word| {
            let text = word.text.strip_prefix(b".").unwrap_or(&word.text).to_vec();
            nowait_http::conf::complex(&Word { text, ..word.clone() }, cx)
        };
        Ok(CookieRule {
            pattern: CookiePattern::Domain(domain(pattern)?),
            replacement: domain(replacement)?,
        })
    }
}

impl Rule for Path {
    type Item = CookieRule;
    const ARGS_MAX: u32 = 2;

    fn rule(pattern: &Word, rest: &[Word], cx: &mut Cx<'_>) -> Result<CookieRule, Diagnostic> {
        let [replacement] = rest else { return Err(pattern.error("one replacement is expected")) };
        let pattern = match pattern.text.strip_prefix(b"~") {
            Some(regex) => CookiePattern::Regex(expression(cx, pattern, regex)?),
            None => CookiePattern::Prefix(nowait_http::conf::complex(pattern, cx)?),
        };
        Ok(CookieRule { pattern, replacement: nowait_http::conf::complex(replacement, cx)? })
    }
}

impl Rule for FlagsRule {
    type Item = FlagsRule;
    const ARGS_MAX: u32 = 4;

    fn rule(pattern: &Word, rest: &[Word], cx: &mut Cx<'_>) -> Result<FlagsRule, Diagnostic> {
        let cookie = match pattern.text.strip_prefix(b"~") {
            Some(regex) => CookieName::Regex(compile_regex(cx, pattern, regex, true)?),
            None => CookieName::Exact(nowait_http::conf::complex(pattern, cx)?),
        };
        let flags = rest.iter().map(|word| nowait_http::conf::complex(word, cx));
        Ok(FlagsRule { cookie, flags: flags.collect::<Result<_, _>>()? })
    }
}

/// Changes to the flags of a cookie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CookieFlags {
    /// `Secure` is added or removed.
    pub secure: Option<bool>,
    /// `HttpOnly` is added or removed.
    pub http_only: Option<bool>,
    /// `SameSite` gets this value, or is removed.
    pub same_site: Option<Option<&'static str>>,
}

impl CookieFlags {
    /// Adds a flag; unknown ones have no effect.
    pub fn add(&mut self, flag: &[u8]) {
        match &flag.to_ascii_lowercase()[..] {
            b"secure" => self.secure = Some(true),
            // nginx: adding wins over removing.
            b"nosecure" => self.secure = self.secure.or(Some(false)),
            b"httponly" => self.http_only = Some(true),
            b"nohttponly" => self.http_only = self.http_only.or(Some(false)),
            b"samesite=strict" => self.same_site = Some(Some("Strict")),
            b"samesite=lax" => self.same_site(Some("Lax")),
            b"samesite=none" => self.same_site(Some("None")),
            b"nosamesite" => self.same_site(None),
            _ => {}
        }
    }

    /// The strictest of several values wins.
    fn same_site(&mut self, value: Option<&'static str>) {
        let rank = |value: Option<&str>| match value {
            Some("Strict") => 3,
            Some("Lax") => 2,
            Some(_) => 1,
            None => 0,
        };
        if self.same_site.is_none_or(|old| rank(value) > rank(old)) {
            self.same_site = Some(value);
        }
    }
}
