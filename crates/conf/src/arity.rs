//! How many arguments a directive takes. Used in tables as `take exactly(1)`.

/// The set of allowed argument counts: bit `n` allows `n` arguments, bit 31 allows 31 and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arity(u32);

/// Exactly `n` arguments (`n` below 31).
pub const fn exactly(n: u32) -> Arity {
    Arity(1 << n)
}

/// No arguments.
pub const fn none() -> Arity {
    exactly(0)
}

/// From `low` to `high` arguments, both included.
pub const fn between(low: u32, high: u32) -> Arity {
    let mut mask = 0;
    let mut n = low;
    while n <= high {
        mask |= 1 << n;
        n += 1;
    }
    Arity(mask)
}

/// `n` arguments or more.
pub const fn at_least(n: u32) -> Arity {
    Arity(u32::MAX << n)
}

/// Any number of arguments, none included; the directive checks them itself.
pub const fn any() -> Arity {
    at_least(0)
}

impl Arity {
    /// Combines both: `exactly(1).or(exactly(3))`.
    pub const fn or(self, other: Arity) -> Arity {
        Arity(self.0 | other.0)
    }

    /// Whether `count` arguments are allowed.
    pub fn allows(self, count: usize) -> bool {
        self.0 & (1 << count.min(31)) != 0
    }

    /// Words for a diagnostic: `1 argument`, `1 to 3 arguments`, `at least 2 arguments`.
    pub fn describe(self) -> String {
        let low = self.0.trailing_zeros();
        if self == any() {
            return "any number of arguments".to_owned();
        }
        if self == none() {
            return "no arguments".to_owned();
        }
        if self == at_least(low) {
            return format!("at least {low} {}", plural(low));
        }
        let high = 31 - self.0.leading_zeros();
        if low == high {
            return format!("{low} {}", plural(low));
        }
        if self == between(low, high) {
            return match low {
                0 => format!("at most {high} {}", plural(high)),
                _ => format!("{low} to {high} arguments"),
            };
        }
        let counts: Vec<String> =
            (0..32).filter(|n| self.0 & (1 << n) != 0).map(|n: u32| n.to_string()).collect();
        format!("{} arguments", counts.join(" or "))
    }
}

fn plural(count: u32) -> &'static str {
    if count == 1 { "argument" } else { "arguments" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_and_describes() {
        let check = |arity: Arity, yes: &[usize], no: &[usize], text: &str| {
            assert!(yes.iter().all(|&n| arity.allows(n)), "{text}");
            assert!(!no.iter().any(|&n| arity.allows(n)), "{text}");
            assert_eq!(arity.describe(), text);
        };
        check(none(), &[0], &[1, 40], "no arguments");
        check(exactly(1), &[1], &[0, 2], "1 argument");
        check(between(1, 3), &[1, 2, 3], &[0, 4], "1 to 3 arguments");
        check(between(0, 1), &[0, 1], &[2], "at most 1 argument");
        check(at_least(2), &[2, 30, 31, 5000], &[0, 1], "at least 2 arguments");
        check(any(), &[0, 1, 5000], &[], "any number of arguments");
        check(exactly(1).or(exactly(3)), &[1, 3], &[2], "1 or 3 arguments");
    }
}
