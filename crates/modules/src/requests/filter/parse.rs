//! The parser of [`super`]: words, and then expressions by recursive descent.

use nowait_conf::Regex;

use super::{Comparison, FIELDS, Field, FieldKind, Node};

/// Longest expression, bytes.
pub const BYTES_MAX: usize = 1024;

/// Deepest nesting of parentheses and `not`.
pub const DEPTH_MAX: usize = 32;

/// Most comparisons.
pub const NODES_MAX: usize = 64;

/// Longest regular expression, bytes.
const REGEX_BYTES_MAX: usize = 256;

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// Where, in bytes from the start.
    pub at: usize,
    /// What.
    pub message: String,
}

/// A word of the language.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    Open,
    Close,
    And,
    Or,
    Not,
    Operator(Operator),
    /// A name, a number or a text without quotes.
    Word(String),
    /// A text in quotes.
    Quoted(String),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Compare(Comparison),
    Match { caseless: bool, negated: bool },
}

const OPERATORS: [(&str, Operator); 12] = {
    use Comparison::{Different, Equal, Less, LessOrEqual, More, MoreOrEqual};
    use Operator::{Compare, Match};
    // Longer ones first.
    [
        ("!~*", Match { caseless: true, negated: true }),
        ("!~", Match { caseless: false, negated: true }),
        ("~*", Match { caseless: true, negated: false }),
        ("~", Match { caseless: false, negated: false }),
        ("==", Compare(Equal)),
        ("!=", Compare(Different)),
        ("<=", Compare(LessOrEqual)),
        (">=", Compare(MoreOrEqual)),
        ("=", Compare(Equal)),
        ("<", Compare(Less)),
        (">", Compare(More)),
        ("!", Compare(Different)),
    ]
};

fn fault<T>(at: usize, message: impl Into<String>) -> Result<T, FilterError> {
    Err(FilterError { at, message: message.into() })
}

/// Reads an expression.
pub(super) fn parse(text: &str) -> Result<Node, FilterError> {
    if text.len() > BYTES_MAX {
        return fault(BYTES_MAX, format!("the expression is longer than {BYTES_MAX} bytes"));
    }
    let mut parser = Parser { text, next: 0, at: 0, token: Token::End, depth: 0, nodes: 0 };
    parser.advance()?;
    let node = parser.any()?;
    match parser.token {
        Token::End => Ok(node),
        _ => fault(parser.at, "expected \"and\", \"or\" or the end"),
    }
}

struct Parser<'t> {
    text: &'t str,
    /// Where the next word begins, at the earliest.
    next: usize,
    /// Where the present word begins.
    at: usize,
    token: Token,
    depth: usize,
    nodes: usize,
}

/// Whether a character may stand in a word without quotes.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:%*+,@$[]\\^{}|?;#".contains(c)
}

impl Parser<'_> {
    /// Goes on to the next word.
    fn advance(&mut self) -> Result<(), FilterError> {
        self.next += self.rest().len() - self.rest().trim_start().len();
        self.at = self.next;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            self.token = Token::End;
            return Ok(());
        };
        let (token, length) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '\'' | '"' => match rest[1..].find(first) {
                Some(end) => (Token::Quoted(rest[1..=end].to_owned()), end + 2),
                None => return fault(self.at, "the quote does not end"),
            },
            _ if rest.starts_with("&&") => (Token::And, 2),
            _ if rest.starts_with("||") => (Token::Or, 2),
            _ => self.operator_or_word(first)?,
        };
        self.token = token;
        self.next += length;
        Ok(())
    }

    fn operator_or_word(&self, first: char) -> Result<(Token, usize), FilterError> {
        let rest = self.rest();
        if let Some((sign, operator)) = OPERATORS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            let token = if *sign == "!" { Token::Not } else { Token::Operator(*operator) };
            return Ok((token, sign.len()));
        }
        if !first.is_ascii_alphanumeric() && !"_-./^\\[*".contains(first) {
            return fault(self.at, format!("unexpected \"{first}\""));
        }
        let length = rest.find(|c| !is_plain(c)).unwrap_or(rest.len());
        let word = &rest[..length];
        let token = match word.to_ascii_lowercase().as_str() {
            "and" => Token::And,
            "or" => Token::Or,
            "not" => Token::Not,
            _ => Token::Word(word.to_owned()),
        };
        Ok((token, length))
    }

    fn rest(&self) -> &str {
        &self.text[self.next..]
    }

    fn any(&mut self) -> Result<Node, FilterError> {
        self.series(&Token::Or, Self::all, Node::Any)
    }

    fn all(&mut self) -> Result<Node, FilterError> {
        self.series(&Token::And, Self::not, Node::All)
    }

    fn series(
        &mut self,
        separator: &Token,
        part: fn(&mut Self) -> Result<Node, FilterError>,
        join: fn(Vec<Node>) -> Node,
    ) -> Result<Node, FilterError> {
        let first = part(self)?;
        if self.token != *separator {
            return Ok(first);
        }
        let mut nodes = vec![first];
        while self.token == *separator {
            self.advance()?;
            nodes.push(part(self)?);
        }
        Ok(join(nodes))
    }

    fn not(&mut self) -> Result<Node, FilterError> {
        match self.token {
            Token::Not => {
                self.advance()?;
                self.deeper(|parser| Ok(Node::Not(Box::new(parser.not()?))))
            }
            Token::Open => {
                self.advance()?;
                let node = self.deeper(Self::any)?;
                if self.token != Token::Close {
                    return fault(self.at, "expected \")\"");
                }
                self.advance()?;
                Ok(node)
            }
            _ => self.comparison(),
        }
    }

    fn deeper(
        &mut self,
        inside: impl FnOnce(&mut Self) -> Result<Node, FilterError>,
    ) -> Result<Node, FilterError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return fault(
                self.at,
                format!("the expression is too deep: at most {DEPTH_MAX} levels"),
            );
        }
        let node = inside(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn comparison(&mut self) -> Result<Node, FilterError> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return fault(self.at, format!("too many comparisons: at most {NODES_MAX}"));
        }
        let Token::Word(name) = &self.token else {
            return fault(self.at, "expected a field, \"not\" or \"(\"");
        };
        let field = find(name, self.at)?;
        self.advance()?;
        let Token::Operator(operator) = self.token else {
            return Ok(match field.kind {
                FieldKind::Number(get) | FieldKind::Size(get) | FieldKind::Time(get) => {
                    Node::Number(get, Comparison::Different, 0)
                }
                FieldKind::Text(get) => Node::Text(get, Comparison::Different, String::new()),
            });
        };
        let sign = self.at;
        // A regular expression may contain what is an operator elsewhere.
        let value = match operator {
            Operator::Match { .. } => self.pattern()?,
            Operator::Compare(_) => self.value()?,
        };
        match (operator, field.kind) {
            (Operator::Match { caseless, negated }, FieldKind::Text(text)) => {
                let regex = self.regex(&value, caseless)?;
                self.advance()?;
                Ok(Node::Match { text, regex, negated })
            }
            (Operator::Match { .. }, _) => fault(sign, "only texts match regular expressions"),
            (Operator::Compare(comparison), kind) => {
                let node = compare(kind, comparison, value, self.at)?;
                self.advance()?;
                Ok(node)
            }
        }
    }

    /// The value behind an operator.
    fn value(&mut self) -> Result<String, FilterError> {
        self.advance()?;
        match &self.token {
            Token::Word(word) | Token::Quoted(word) => Ok(word.clone()),
            // Texts may be called so.
            Token::And | Token::Or | Token::Not => Ok(self.text[self.at..self.next].to_owned()),
            _ => fault(self.at, "expected a value"),
        }
    }

    fn pattern(&mut self) -> Result<String, FilterError> {
        let text: &str = self.text;
        let rest = text[self.next..].trim_start();
        if rest.starts_with(['\'', '"']) {
            return self.value();
        }
        self.at = self.text.len() - rest.len();
        self.next = self.at;
        let length = pattern_length(rest);
        if length == 0 {
            return fault(self.at, "expected a value");
        }
        let pattern = rest[..length].to_owned();
        self.next += length;
        Ok(pattern)
    }

    fn regex(&self, pattern: &str, caseless: bool) -> Result<Regex, FilterError> {
        if pattern.len() > REGEX_BYTES_MAX {
            return fault(
                self.at,
                format!("the regular expression is longer than {REGEX_BYTES_MAX} bytes"),
            );
        }
        Regex::new(pattern.as_bytes(), caseless).or_else(|error| {
            let text = error.to_string();
            // nginx's wording repeats the pattern around the reason.
            let reason = text
                .split_once(" failed: ")
                .map_or(&*text, |(_, reason)| reason)
                .split(" in \"")
                .next()
                .unwrap_or_default();
            fault(self.at, reason)
        })
    }
}

/// The length of a regular expression without quotes: to a blank, or to a parenthesis that it has not opened.
fn pattern_length(rest: &str) -> usize {
    let (mut depth, mut is_escaped) = (0_usize, false);
    for (at, c) in rest.char_indices() {
        match c {
            _ if c.is_whitespace() => return at,
            _ if is_escaped => {}
            '(' => depth += 1,
            ')' if depth == 0 => return at,
            ')' => depth -= 1,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    rest.len()
}

fn find(name: &str, at: usize) -> Result<&'static Field, FilterError> {
    if let Some(field) = FIELDS.iter().find(|field| field.name.eq_ignore_ascii_case(name)) {
        return Ok(field);
    }
    let near = nowait_conf::nearest(name, super::names());
    match near {
        Some(near) => fault(at, format!("unknown field \"{name}\"; did you mean \"{near}\"?")),
        None => {
            let names: Vec<&str> = super::names().collect();
            fault(at, format!("unknown field \"{name}\"; there are {}", names.join(", ")))
        }
    }
}

fn compare(
    kind: FieldKind,
    comparison: Comparison,
    value: String,
    at: usize,
) -> Result<Node, FilterError> {
    let number = |get, value: Option<u64>, expected: &str| match value {
        Some(value) => Ok(Node::Number(get, comparison, value)),
        None => fault(at, expected),
    };
    match kind {
        FieldKind::Number(get) => number(get, value.parse().ok(), "expected a number"),
        FieldKind::Size(get) => number(get, size(&value), "expected a size such as 100k or 2m"),
        FieldKind::Time(get) => {
            number(get, micros(&value), "expected a time such as 100ms or 1.5s")
        }
        FieldKind::Text(get) => Ok(Node::Text(get, comparison, value)),
    }
}

/// A number with a unit, in units of which `unit` says how many smaller ones it has.
fn scaled(text: &str, unit: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, name) = text.split_at(end);
    let unit = unit(&name.to_ascii_lowercase())?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    // Six digits are a microsecond.
    let fraction = match part.len() {
        0 if digits.contains('.') => return None,
        0..=6 => format!("{part:0<6}").parse::<u64>().ok()?,
        _ => return None,
    };
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(unit)?.checked_add(fraction.checked_mul(unit)? / 1_000_000)
}

fn micros(text: &str) -> Option<u64> {
    scaled(text, |unit| match unit {
        "us" => Some(1),
        "ms" => Some(1000),
        "s" | "" => Some(1_000_000),
        "m" => Some(60_000_000),
        "h" => Some(3_600_000_000),
        _ => None,
    })
}

fn size(text: &str) -> Option<u64> {
    scaled(text, |unit| match unit {
        "" => Some(1),
        "k" => Some(1 << 10),
        "m" => Some(1 << 20),
        "g" => Some(1 << 30),
        _ => None,
    })
}
