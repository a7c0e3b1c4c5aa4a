//! The reasons why a server or a location was chosen, from the directives.
//!
//! The choice itself was made by the server's code; this only says how the directives led to it.

use nowait_conf::{Node, Regex, Span};
use nowait_http::location_tree::{Kind, Pattern};
use nowait_http::server_name::{self, Names, ServerName};

/// Server names that are shown.
const NAMES_MAX: usize = 8;

/// The blocks that lead to the one at `span`, the outermost first.
pub fn chain(nodes: &[Node], span: Span) -> Vec<&Node> {
    let mut chain = Vec::new();
    search(nodes, span, &mut chain);
    chain
}

// Recursion is bounded by the nesting of blocks that the parser accepts.
fn search<'n>(nodes: &'n [Node], span: Span, chain: &mut Vec<&'n Node>) -> bool {
    for node in nodes.iter().filter(|node| node.block.is_some()) {
        chain.push(node);
        let here = node.span.file == span.file && node.span.start == span.start;
        if here || search(node.children(), span, chain) {
            return true;
        }
        chain.pop();
    }
    false
}

/// The names of a server.
pub fn names(server: &Node) -> String {
    let all = named(server).map(|word| word.lossy().into_owned());
    let mut shown: Vec<String> = all.take(NAMES_MAX + 1).collect();
    if shown.len() > NAMES_MAX {
        shown[NAMES_MAX] = "...".to_owned();
    }
    if shown.is_empty() { "(no name)".to_owned() } else { shown.join(" ") }
}

fn named(server: &Node) -> impl Iterator<Item = &nowait_conf::Word> {
    let lines = server.children().iter().filter(|node| node.name == "server_name");
    lines.flat_map(|node| &node.args)
}

/// The reason why the server was chosen for a host.
pub fn of_server(server: Option<&Node>, host: &str, is_default: bool) -> String {
    let Some(server) = server else { return String::new() };
    let hostname = nowait_sys::process::hostname();
    let mut wildcard = None;
    let mut regex = None;
    for word in named(server) {
        match server_name::parse(&word.text, hostname.as_bytes()) {
            Ok(ServerName::Plain(text)) => {
                // A table of this name alone decides as the whole table does.
                let mut alone: Names<(), ()> = Names::new();
                let matches = alone.insert(&text, ()).is_ok()
                    && matches!(
                        alone.lookup(host.as_bytes(), |()| Ok::<_, ()>(false)),
                        Ok(Some(()))
                    );
                let exact = text[..] == *host.as_bytes();
                if matches && exact {
                    return format!("because of the exact name \"{word}\"");
                }
                if matches {
                    wildcard.get_or_insert(word);
                }
            }
            Ok(ServerName::Regex { pattern, caseless }) => {
                if Regex::new(&pattern, caseless)
                    .is_ok_and(|regex| regex.is_match(host.as_bytes()).unwrap_or(false))
                {
                    regex.get_or_insert(word);
                }
            }
            Err(_) => {}
        }
    }
    match (wildcard, regex) {
        (Some(word), _) => format!("because of the name with a wildcard \"{word}\""),
        (None, Some(word)) => format!("because of the regular expression \"{word}\""),
        (None, None) if is_default => {
            format!("as the default server: no server has the name \"{host}\"")
        }
        (None, None) => format!("for the name \"{host}\""),
    }
}

/// A location that was not chosen.
#[derive(Debug, PartialEq, Eq)]
pub struct RejectedLocation {
    /// The text in the configuration.
    pub name: String,
    /// Position in the configuration.
    pub span: Span,
    /// The reason.
    pub why: &'static str,
}

/// Locations of a server that match a path, too, but lost to the one at `chosen`.
pub fn others(server: &Node, chosen: Span, path: &[u8]) -> Vec<RejectedLocation> {
    let winners = chain(server.children(), chosen);
    let winner = winners.last().and_then(|node| pattern(node)).map(|pattern| pattern.kind);
    let mut found = Vec::new();
    if winner == Some(Kind::Named) {
        return found;
    }
    collect(server.children(), &winners, winner, path, &mut found);
    found
}

// Recursion is bounded by the nesting of blocks that the parser accepts.
fn collect(
    nodes: &[Node],
    winners: &[&Node],
    winner: Option<Kind>,
    path: &[u8],
    found: &mut Vec<RejectedLocation>,
) {
    for node in nodes.iter().filter(|node| node.name == "location") {
        let is_winner = winners.iter().any(|winner| winner.span == node.span);
        if is_winner {
            collect(node.children(), winners, winner, path, found);
            continue;
        }
        let Some(pattern) = pattern(node) else { continue };
        if !matches(&pattern, path) {
            continue;
        }
        let why = match (pattern.kind, winner) {
            (_, None) => "not looked for",
            (_, Some(Kind::Exact)) => "an exact match ends the search",
            (Kind::Prefix | Kind::PrefixNoRegex, Some(Kind::Regex { .. })) => {
                "a regular expression matches, which precedes prefixes without ^~"
            }
            (Kind::Prefix | Kind::PrefixNoRegex, Some(Kind::Variable)) => {
                "a location's variable holds, which precedes prefixes without ^~"
            }
            (Kind::Prefix | Kind::PrefixNoRegex, _) => "its prefix is shorter",
            (Kind::Regex { .. }, Some(Kind::PrefixNoRegex)) => {
                "the chosen prefix has ^~: regular expressions are not tried"
            }
            (Kind::Regex { .. }, Some(Kind::Regex { .. })) => {
                "a regular expression before it matches"
            }
            (_, _) => "the search ended before it",
        };
        let words: Vec<_> = node.args.iter().map(|word| word.lossy().into_owned()).collect();
        let name = format!("location {}", words.join(" "));
        found.push(RejectedLocation { name, span: node.span, why });
    }
}

fn pattern(node: &Node) -> Option<Pattern> {
    let args: Vec<&[u8]> = node.args.iter().map(|word| word.as_bytes()).collect();
    (node.name == "location").then(|| Pattern::parse(&args).ok()).flatten()
}

fn matches(pattern: &Pattern, path: &[u8]) -> bool {
    match pattern.kind {
        Kind::Exact => *pattern.text == *path,
        Kind::Prefix | Kind::PrefixNoRegex => path.starts_with(&pattern.text),
        Kind::Regex { caseless } => Regex::new(&pattern.text, caseless)
            .is_ok_and(|regex| regex.is_match(path).unwrap_or(false)),
        // Its value depends on the request.
        Kind::Variable | Kind::Named => false,
    }
}
