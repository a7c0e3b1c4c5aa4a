//! The language that selects requests: `status >= 500 or disk_wait > 100ms`.
//!
//! ```text
//! expression  = and { "or" and }
//! and         = not { "and" not }
//! not         = "not" not | "(" expression ")" | field [ operator value ]
//! operator    = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "~*" | "!~" | "!~*"
//! ```
//!
//! A field alone is true if it is neither zero nor empty. Times take `us`, `ms`, `s`, `m`, `h` (without a unit:
//! seconds), sizes `k`, `m`, `g`. Texts are words or stand in quotes; `~` matches a regular expression (PCRE2). Parsed
//! once, and evaluated for records; both are pure functions. Bounds: [`parse::BYTES_MAX`], [`parse::DEPTH_MAX`],
//! [`parse::NODES_MAX`].

mod parse;

use std::borrow::Cow;

use nowait_conf::Regex;

use super::record::RequestRecord;

pub use parse::FilterError;

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Filter(Node);

#[derive(Clone, Debug)]
enum Node {
    Any(Vec<Node>),
    All(Vec<Node>),
    Not(Box<Node>),
    Number(fn(&RequestRecord) -> u64, Comparison, u64),
    Text(fn(&RequestRecord) -> Cow<'_, str>, Comparison, String),
    Match { text: fn(&RequestRecord) -> Cow<'_, str>, regex: Regex, negated: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Different,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

impl Comparison {
    fn holds<T: PartialOrd + ?Sized>(self, left: &T, right: &T) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Different => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::More => left > right,
            Self::MoreOrEqual => left >= right,
        }
    }
}

/// What the values of a field are.
#[derive(Clone, Copy)]
enum FieldKind {
    /// A number.
    Number(fn(&RequestRecord) -> u64),
    /// A number of bytes.
    Size(fn(&RequestRecord) -> u64),
    /// Microseconds.
    Time(fn(&RequestRecord) -> u64),
    /// A text.
    Text(fn(&RequestRecord) -> Cow<'_, str>),
}

/// A field that expressions may name.
struct Field {
    name: &'static str,
    kind: FieldKind,
}

macro_rules! fields {
    ($($name:literal => $kind:ident($get:expr);)+) => {
        &[$(Field { name: $name, kind: FieldKind::$kind($get) }),+]
    };
}

const FIELDS: &[Field] = fields! {
    "status" => Number(|r| r.status);
    "connection" => Number(|r| r.connection);
    "connection_requests" => Number(|r| r.requests);
    "worker" => Number(|r| r.worker);
    "bytes" => Size(|r| r.bytes);
    "request_bytes" => Size(|r| r.request_bytes);
    "time" => Time(|r| r.times.total);
    "request_time" => Time(|r| r.times.total);
    "receive_time" => Time(|r| r.times.receive);
    "queue_time" => Time(|r| r.times.queue);
    "connect_time" => Time(|r| r.times.connect);
    "header_time" => Time(|r| r.times.header);
    "upstream_time" => Time(|r| r.times.upstream);
    "pool_wait" => Time(|r| r.times.pool_wait);
    "disk_time" => Time(|r| r.times.disk);
    "disk_wait" => Time(|r| r.times.pool_wait + r.times.disk);
    "response_time" => Time(|r| r.times.response);
    "sending_time" => Time(|r| r.times.sending);
    "method" => Text(|r| Cow::Borrowed(&r.method));
    "uri" => Text(|r| Cow::Borrowed(&r.uri));
    "host" => Text(|r| Cow::Borrowed(&r.host));
    "server" => Text(|r| Cow::Borrowed(&r.server));
    "location" => Text(|r| Cow::Borrowed(&r.location));
    "protocol" => Text(|r| Cow::Borrowed(r.protocol));
    "client" => Text(|r| Cow::Owned(r.client_text()));
    "upstream" => Text(|r| Cow::Borrowed(&r.upstream));
    "cache" => Text(|r| Cow::Borrowed(&r.cache));
    "pool" => Text(|r| Cow::Borrowed(&r.pool));
};

/// The names of fields, for messages and the reference.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.name)
}

impl Filter {
    /// Reads an expression.
    ///
    /// # Errors
    /// The first fault, and where it is.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        parse::parse(text).map(Self)
    }

    /// Whether a request is selected.
    pub fn matches(&self, record: &RequestRecord) -> bool {
        self.0.holds(record)
    }
}

impl Node {
    fn holds(&self, record: &RequestRecord) -> bool {
        match self {
            Self::Any(nodes) => nodes.iter().any(|node| node.holds(record)),
            Self::All(nodes) => nodes.iter().all(|node| node.holds(record)),
            Self::Not(node) => !node.holds(record),
            Self::Number(get, comparison, value) => comparison.holds(&get(record), value),
            Self::Text(get, comparison, value) => comparison.holds(&*get(record), &**value),
            // A match that takes too much effort selects nothing.
            Self::Match { text, regex, negated } => {
                regex.is_match(text(record).as_bytes()).is_ok_and(|found| found != *negated)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RequestRecord {
        let mut record = RequestRecord {
            status: 502,
            bytes: 2 << 20,
            method: "GET".into(),
            uri: "/a b?c".into(),
            client: Some("192.0.2.1".parse().unwrap()),
            ..RequestRecord::default()
        };
        (record.times.pool_wait, record.times.disk) = (60_000, 50_000);
        record.times.total = 1_500_000;
        record
    }

    #[test]
    fn expressions() {
        for text in [
            "status",
            "status=502",
            "status >= 500 and status<600",
            "status == 200 or disk_wait > 100ms",
            "disk_wait=110ms",
            "not (status < 500)",
            "! status<500 && time>1",
            "time >= 1.5 and time < 1500001us and time > 0.02m and time < 1h",
            "bytes = 2m and bytes > 100K and bytes <= 2048k",
            "uri = '/a b?c' and uri ~ \"^/a\" and uri !~ ^/b",
            "method ~* get",
            "method = GET",
            "client ~ ^192\\.0\\.2\\.",
            "cache != HIT and not cache",
            "((((status))))",
            "status=1 or status=2 or status=502",
            "status=1 or status=502 and method=GET",
            "NOT status=1 AND status=502",
        ] {
            let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert!(filter.matches(&record()), "{text}");
            let filter = Filter::parse(&format!("not ({text})")).unwrap();
            assert!(!filter.matches(&record()), "not ({text})");
        }
    }

    #[test]
    fn faults_say_where_they_are() {
        for (text, at, message) in [
            ("", 0, "expected a field, \"not\" or \"(\""),
            ("status >= ", 10, "expected a value"),
            ("statsu = 1", 0, "unknown field \"statsu\"; did you mean \"status\"?"),
            ("status = 1 status = 2", 11, "expected \"and\", \"or\" or the end"),
            ("(status = 1", 11, "expected \")\""),
            ("status = 1)", 10, "expected \"and\", \"or\" or the end"),
            ("status = x", 9, "expected a number"),
            ("time > 5kb", 7, "expected a time such as 100ms or 1.5s"),
            ("bytes > 5s", 8, "expected a size such as 100k or 2m"),
            ("uri ~ (", 6, "missing closing parenthesis"),
            ("uri = 'abc", 6, "the quote does not end"),
            ("status ~ 5", 7, "only texts match regular expressions"),
            ("uri ? 1", 4, "unexpected \"?\""),
            ("ä", 0, "unexpected \"ä\""),
            ("status = 99999999999999999999999", 9, "expected a number"),
            ("time > 99999999999999999h", 7, "expected a time such as 100ms or 1.5s"),
            ("status and", 10, "expected a field, \"not\" or \"(\""),
        ] {
            let error = Filter::parse(text).expect_err(text);
            assert_eq!((error.at, &*error.message), (at, message), "{text}");
        }
    }

    #[test]
    fn expressions_are_bounded() {
        let deep = format!("{}status{}", "(".repeat(100), ")".repeat(100));
        assert!(Filter::parse(&deep).unwrap_err().message.contains("too deep"));
        assert!(Filter::parse(&"not ".repeat(100)).unwrap_err().message.contains("too deep"));
        let wide = vec!["status"; 100].join(" or ");
        assert!(Filter::parse(&wide).unwrap_err().message.contains("too many"));
        assert!(Filter::parse(&"x".repeat(5000)).unwrap_err().message.contains("longer than"));
    }
}
