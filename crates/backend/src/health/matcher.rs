//! Conditions for the response to a health check: a `match` block, or the default.

use std::fmt;
use std::ops::RangeInclusive;

use bytes::Bytes;
use nowait_conf::Regex;
use nowait_http::variables::complex::{Complex, HttpVariables};
use nowait_message::ResponseHead;
use nowait_variables::Subject;

/// The tests of a `match` block. Without a `status` test any status passes; without a block only
/// 2xx and 3xx do.
#[derive(Debug, Default)]
pub struct Match {
    /// `status`
    pub status: Vec<StatusTest>,
    /// `header`
    pub headers: Vec<HeaderTest>,
    /// `body`: whether it must not match, and the expression.
    pub body: Vec<(bool, Regex)>,
    /// `require`
    pub require: Vec<Complex>,
}

/// One `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusTest {
    /// The status must not be one of these.
    pub negated: bool,
    /// The statuses.
    pub ranges: Vec<RangeInclusive<u16>>,
}

/// One `header`.
#[derive(Debug)]
pub struct HeaderTest {
    /// Name.
    pub name: Bytes,
    /// The test.
    pub rule: HeaderRule,
}

/// A test of a header field.
#[derive(Debug)]
pub enum HeaderRule {
    /// The field is present.
    Present,
    /// The field is absent.
    Absent,
    /// The field has this value.
    Equals(Bytes),
    /// The field is absent or has another value.
    Differs(Bytes),
    /// The expression matches its value, or (`negated`) does not.
    Matches {
        /// It must not match.
        negated: bool,
        /// The expression.
        regex: Regex,
    },
}

/// The test that a response failed, in the words of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lacks {
    /// Status.
    Status,
    /// A header.
    Header,
    /// The content.
    Body,
    /// A variable.
    Require,
    /// The status of a call, or of the service.
    Grpc,
}

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status => "checking status code",
            Self::Header => "checking headers",
            Self::Body => "checking body",
            Self::Require => "checking required variables",
            Self::Grpc => "checking gRPC status",
        })
    }
}

impl Match {
    /// Whether the body has to be read.
    pub fn wants_body(&self) -> bool {
        !self.body.is_empty()
    }

    /// Tests a head. `named`: there is a `match` block.
    ///
    /// # Errors
    /// The failed test.
    pub fn head(&self, head: &ResponseHead, named: bool) -> Result<(), Lacks> {
        let good = match named {
            false => (200..400).contains(&head.status),
            true => self.status.iter().all(|test| test.passes(head.status)),
        };
        if !good {
            return Err(Lacks::Status);
        }
        match self.headers.iter().all(|test| test.passes(head)) {
            true => Ok(()),
            false => Err(Lacks::Header),
        }
    }

    /// Tests the first part of the body.
    ///
    /// # Errors
    /// The failed test.
    pub fn body(&self, body: &[u8]) -> Result<(), Lacks> {
        // An expression that takes too long does not match.
        let passes = |(negated, regex): &(bool, Regex)| {
            regex.is_match(body).is_ok_and(|matched| matched != *negated)
        };
        if self.body.iter().all(passes) { Ok(()) } else { Err(Lacks::Body) }
    }

    /// Tests variables; `subject` holds the response's state.
    ///
    /// # Errors
    /// The failed test.
    pub fn variables(
        &self,
        subject: &impl Subject<Namespace = HttpVariables>,
    ) -> Result<(), Lacks> {
        let set = |text: &Complex| {
            let value = subject.evaluate(text);
            !value.is_empty() && &value[..] != b"0"
        };
        if self.require.iter().all(set) { Ok(()) } else { Err(Lacks::Require) }
    }
}

impl StatusTest {
    fn passes(&self, status: u16) -> bool {
        self.ranges.iter().any(|range| range.contains(&status)) != self.negated
    }
}

impl HeaderTest {
    fn passes(&self, head: &ResponseHead) -> bool {
        let value = head.field(&self.name);
        match &self.rule {
            HeaderRule::Present => value.is_some(),
            HeaderRule::Absent => value.is_none(),
            HeaderRule::Equals(text) => value == Some(&text[..]),
            HeaderRule::Differs(text) => value != Some(&text[..]),
            HeaderRule::Matches { negated, regex } => {
                let matched = value.map(|value| regex.is_match(value));
                // A missing value does not match.
                match matched {
                    None => *negated,
                    Some(matched) => matched.is_ok_and(|matched| matched != *negated),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_message::ResponseBuilder;

    fn head(status: u16) -> ResponseHead {
        let mut builder = ResponseBuilder::with_capacity(status, 1, 64);
        builder.field(None, b"Server", b"One/1.0");
        builder.take()
    }

    fn header(rule: HeaderRule, name: &'static str) -> bool {
        HeaderTest { name: name.into(), rule }.passes(&head(200))
    }

    #[test]
    fn without_a_block_good_statuses_pass() {
        let tests = Match::default();
        for (status, good) in [(199, false), (200, true), (399, true), (400, false)] {
            assert_eq!(tests.head(&head(status), false).is_ok(), good, "{status}");
            assert!(tests.head(&head(status), true).is_ok());
        }
    }

    #[test]
    fn statuses() {
        let tests = |negated| Match {
            status: vec![StatusTest { negated, ranges: vec![200..=200, 500..=599] }],
            ..Match::default()
        };
        for (status, listed) in [(200, true), (201, false), (500, true), (599, true)] {
            assert_eq!(tests(false).head(&head(status), true).is_ok(), listed);
            assert_eq!(tests(true).head(&head(status), true).is_ok(), !listed);
        }
    }

    #[test]
    fn headers() {
        let regex = |text: &str| Regex::new(text.as_bytes(), false).unwrap();
        let matches = |negated, text| HeaderRule::Matches { negated, regex: regex(text) };
        assert!(header(HeaderRule::Present, "server") && !header(HeaderRule::Present, "x"));
        assert!(header(HeaderRule::Absent, "x") && !header(HeaderRule::Absent, "Server"));
        assert!(header(HeaderRule::Equals("One/1.0".into()), "server"));
        assert!(!header(HeaderRule::Equals("one/1.0".into()), "server"));
        assert!(header(HeaderRule::Differs("two".into()), "server"));
        assert!(header(HeaderRule::Differs("two".into()), "x"));
        assert!(header(matches(false, "^One"), "server"));
        assert!(!header(matches(true, "^One"), "server") && header(matches(true, "^One"), "x"));
        assert!(!header(matches(false, "."), "x"));
    }

    #[test]
    fn bodies() {
        let tests = Match {
            body: vec![
                (false, Regex::new(b"Welcome", false).unwrap()),
                (true, Regex::new(b"error", true).unwrap()),
            ],
            ..Match::default()
        };
        assert_eq!(tests.body(b"Welcome!"), Ok(()));
        assert_eq!(tests.body(b"Welcome ERROR"), Err(Lacks::Body));
        assert_eq!(tests.body(b""), Err(Lacks::Body));
    }
}
