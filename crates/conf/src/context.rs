//! The blocks that directives are allowed in: a set of block kinds.

use std::ops::BitOr;

/// A set of block kinds. A block being read has exactly one; a row lists all it is allowed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Context(u32);

macro_rules! contexts {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl Context {
            $($(#[$doc])* pub const $name: Context = Context(1 << $bit);)*

            const NAMES: &'static [(Context, &'static str)] = &[$((Context::$name, $text),)*];
        }
    };
}

contexts! {
    /// The top level of the file.
    MAIN = 0, "main";
    EVENTS = 1, "events";
    HTTP = 2, "http";
    /// `server` in `http`.
    SERVER = 3, "server";
    LOCATION = 4, "location";
    /// `if` in a `server`.
    SERVER_IF = 5, "if in server";
    /// `if` in a `location`.
    LOCATION_IF = 6, "if in location";
    LIMIT_EXCEPT = 7, "limit_except";
    /// `upstream` in `http`.
    UPSTREAM = 8, "upstream";
    STREAM = 9, "stream";
    STREAM_SERVER = 10, "server in stream";
    STREAM_UPSTREAM = 11, "upstream in stream";
    MAIL = 12, "mail";
    MAIL_SERVER = 13, "server in mail";
    /// A block whose entries are data, not directives (`types`, `map`, `geo`).
    FREE = 14, "data block";
    MGMT = 15, "mgmt";
}

impl Context {
    /// The empty set.
    pub const NONE: Context = Context(0);
    /// Every block kind.
    pub const ANY: Context = Context(u32::MAX);

    /// The union of both, usable in constants.
    pub const fn or(self, other: Context) -> Context {
        Context(self.0 | other.0)
    }

    /// Whether all of `other` is in this set.
    pub const fn contains(self, other: Context) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the sets have a member in common.
    pub const fn intersects(self, other: Context) -> bool {
        self.0 & other.0 != 0
    }

    /// The names of the members, in nesting order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(c, _)| self.contains(*c)).map(|(_, name)| *name)
    }

    /// `http, server, location`; `any context` for all.
    pub fn describe(self) -> String {
        if self == Self::ANY {
            return "any context".to_owned();
        }
        self.names().collect::<Vec<_>>().join(", ")
    }
}

impl BitOr for Context {
    type Output = Context;

    fn bitor(self, other: Context) -> Context {
        self.or(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        let set = Context::HTTP | Context::LOCATION;
        assert!(set.contains(Context::HTTP) && !set.contains(Context::SERVER));
        assert!(set.intersects(Context::LOCATION | Context::MAIN));
        assert_eq!(set.describe(), "http, location");
        assert_eq!(Context::ANY.describe(), "any context");
    }
}
