//! Locations that match other paths than intended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use nowait_conf::{Level, Span};

use crate::model::{BlockKind, BlockRef, Location, Model, Modifier};
use crate::pattern;
use crate::rule::{Rule, RuleReport};
use crate::words::place_in;

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "location-without-slash",
        level: Level::Error,
        fixes: false,
        summary: "a prefix that does not begin with `/` never matches",
        text: "A prefix is compared with the path of the request, which always begins with a slash. A \
               location without it is never chosen.",
        wrong: "
location images/ {
    expires 7d;
}
",
        right: "
location /images/ {
    expires 7d;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#location",
        check: without_slash,
    },
    Rule {
        name: "location-glob",
        level: Level::Error,
        fixes: false,
        summary: "a `*` in a prefix is an asterisk",
        text: "Prefixes know no wildcards: `/images/*` matches paths that contain an asterisk. A prefix \
               already matches everything below it, and suffixes need a regular expression.",
        wrong: "
location /images/* {
    expires 7d;
}
",
        right: "
location /images/ {
    expires 7d;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#location",
        check: glob,
    },
    Rule {
        name: "location-regex-without-tilde",
        level: Level::Error,
        fixes: false,
        summary: "a regular expression without `~` is a prefix",
        text: "Without `~` or `~*` the text is compared byte by byte, parentheses and backslashes \
               included, so the location is never chosen.",
        wrong: "
location ^/user/(\\d+)$ {
    return 204;
}
",
        right: "
location ~ ^/user/(\\d+)$ {
    return 204;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#location",
        check: without_tilde,
    },
    Rule {
        name: "regex-bare-dot",
        level: Level::Warn,
        fixes: true,
        summary: "an unescaped dot before a suffix matches any character",
        text: "In a regular expression a dot stands for any character: `.php$` also matches \
               `/graphphp`, and `~^www.example.com$` also a name that others may register. A \
               backslash makes it a dot.",
        wrong: "
location ~ .(jpg|png)$ {
    expires 7d;
}
",
        right: "
location ~ \\.(jpg|png)$ {
    expires 7d;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#location",
        check: bare_dot,
    },
    Rule {
        name: "regex-open-suffix",
        level: Level::Warn,
        fixes: false,
        summary: "a suffix without `$` matches in the middle of a path, too",
        text: "`\\.php` without `$` matches `/uploads/a.php.jpg` and `/a.php/b`: files that only look \
               like scripts are run as scripts. `\\.php$` matches the end only; an application that \
               takes path information needs `\\.php(/|$)`.",
        wrong: "
location ~ \\.php {
    return 403;
}
",
        right: "
location ~ \\.php$ {
    return 403;
}
",
        source: "https://www.nginx.com/resources/wiki/start/topics/tutorials/config_pitfalls/",
        check: open_suffix,
    },
    Rule {
        name: "regex-backtracking",
        level: Level::Warn,
        fixes: false,
        summary: "a repeated group of something repeated takes exponential time",
        text: "`(a+)+` can match one text in very many ways. If the rest of the expression does not \
               match, all of them are tried, and a client can choose a path for which that takes \
               seconds. Repeat once, or put a separator into the group.",
        wrong: "
location ~ ^/([a-z]+)+/$ {
    return 204;
}
",
        right: "
location ~ ^/([a-z]+/)+$ {
    return 204;
}
",
        source: "https://www.pcre.org/current/doc/html/pcre2perform.html",
        check: backtracking,
    },
    Rule {
        name: "regex-for-one-path",
        level: Level::Notice,
        fixes: false,
        summary: "an expression that matches a single path",
        text: "`~ ^/status$` matches what `= /status` matches, but is tried for every request, after \
               the expressions before it. An exact location is found at once.",
        wrong: "
location ~ ^/status$ {
    return 204;
}
",
        right: "
location = /status {
    return 204;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#location",
        check: one_path,
    },
    Rule {
        name: "location-unreachable",
        level: Level::Error,
        fixes: false,
        summary: "a location that another one always precedes",
        text: "Expressions are tried in their order, and the first that matches is used. After one \
               that matches every path, no other expression is tried, and no plain prefix is used \
               either. A prefix with `^~` forbids expressions for all paths below it.",
        wrong: "
location ~ ^/ {
    return 204;
}
location ~ \\.php$ {
    return 403;
}
",
        right: "
location / {
    return 204;
}
location ~ \\.php$ {
    return 403;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#location",
        check: unreachable,
    },
    Rule {
        name: "root-repeats-location",
        level: Level::Warn,
        fixes: false,
        summary: "`root` ends with the path of its location, which is appended once more",
        text: "`root` is followed by the whole path of a request: with `root /srv/images` in `location /images/`, \
               `/images/a.png` is looked up as `/srv/images/images/a.png`. Leave the last part out, or use `alias`.",
        wrong: "
location /images/ {
    root /srv/images;
}
",
        right: "
location /images/ {
    root /srv;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#alias",
        check: root_repeats,
    },
];

fn locations<'m>(model: &'m Model<'m>) -> impl Iterator<Item = (BlockRef<'m>, Location<'m>)> {
    model.all(BlockKind::Location).filter_map(|block| Some((block, block.location()?)))
}

fn without_slash(model: &Model<'_>, report: &mut RuleReport) {
    for (_, location) in locations(model) {
        let starts = location.text.first().is_some_and(|b| matches!(b, b'/' | b'$' | b'^' | b'~'));
        let is_literal = location.is_prefix() || location.modifier == Modifier::Exact;
        // An empty prefix matches every path.
        let is_empty = location.is_prefix() && location.text.is_empty();
        if is_literal
            && !starts
            && !is_empty
            && !is_expression(location.text)
            && !location.text.contains(&b'*')
        {
            let text = location.lossy();
            report
                .find(location.word.span, format!("location \"{text}\" never matches"))
                .label("paths begin with \"/\"");
        }
    }
}

/// Whether a text has what only expressions have.
fn is_expression(text: &[u8]) -> bool {
    let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    text.starts_with(b"^/")
        || text.ends_with(b"$")
        || [
            &b"\\."[..],
            b"\\d",
            b"\\w",
            b"\\/",
            b".*",
            b".+",
            b"(?:",
            b"|",
            b"[0-9",
            b"[a-z",
            b"[^",
        ]
        .iter()
        .any(|part| has(part))
}

fn glob(model: &Model<'_>, report: &mut RuleReport) {
    for (_, location) in locations(model) {
        if location.is_prefix() && location.text.contains(&b'*') && !is_expression(location.text) {
            let text = location.lossy();
            let finding = report
                .find(location.word.span, format!("\"*\" in location \"{text}\" is no wildcard"));
            match text.strip_suffix('*') {
                Some(prefix) if !prefix.contains('*') && prefix.starts_with('/') => {
                    finding.hint(format!("\"location {prefix}\" matches everything below it"))
                }
                _ => finding.hint("use a regular expression: location ~ ..."),
            };
        }
    }
}

fn without_tilde(model: &Model<'_>, report: &mut RuleReport) {
    for (_, location) in locations(model) {
        if (location.is_prefix() || location.modifier == Modifier::Exact)
            && is_expression(location.text)
        {
            let text = location.lossy();
            report
                .find(location.word.span, format!("location \"{text}\" is no regular expression"))
                .label("\"~\" or \"~*\" is missing before it");
        }
    }
}

fn bare_dot(model: &Model<'_>, report: &mut RuleReport) {
    for (_, location) in locations(model).filter(|(_, location)| location.is_regex()) {
        let text = location.lossy();
        if let Some(at) = pattern::bare_dot_before_suffix(&text) {
            let message = format!("\".\" in \"{text}\" matches any character");
            let glued = location.word.text.len() - location.text.len();
            let finding = report.find(location.word.span, message);
            finding.hint("write \"\\.\" for a dot");
            if let Some(place) = place_in(location.word, at + glued) {
                finding.replace(place, "\\");
            }
        }
    }
    for word in model.servers().flat_map(BlockRef::names) {
        let text = word.lossy();
        if let Some(at) = text.strip_prefix('~').and_then(pattern::bare_dot_before_suffix) {
            let message = format!("\".\" in \"{text}\" matches any character");
            let finding = report.find(word.span, message);
            finding.hint("write \"\\.\" for a dot");
            if let Some(place) = place_in(word, at + 1) {
                finding.replace(place, "\\");
            }
        }
    }
}

fn open_suffix(model: &Model<'_>, report: &mut RuleReport) {
    for (_, location) in locations(model).filter(|(_, location)| location.is_regex()) {
        let text = location.lossy();
        let Some((before, suffix)) = text.rsplit_once("\\.") else { continue };
        let names = suffix.trim_start_matches("(?:").trim_start_matches('(').trim_end_matches(')');
        let known = |name: &str| SUFFIXES.contains(&name.to_ascii_lowercase().as_str());
        // An anchored path is one file, not a kind of file.
        if !before.starts_with('^') && !names.is_empty() && names.split('|').all(known) {
            report
                .find(
                    location.word.span,
                    format!("\"{text}\" matches in the middle of a path, too"),
                )
                .hint(format!("\"{text}$\" matches the end of a path only"));
        }
    }
}

/// Suffixes of files, as opposed to names of directories such as `.git`.
const SUFFIXES: &[&str] = &[
    "php", "php5", "phtml", "py", "pl", "cgi", "rb", "jsp", "asp", "aspx", "html", "htm", "css",
    "js", "jpg", "jpeg", "png", "gif", "svg", "ico", "webp", "woff", "woff2", "ttf", "mp4", "pdf",
];

fn backtracking(model: &Model<'_>, report: &mut RuleReport) {
    let names =
        model.servers().flat_map(BlockRef::names).filter(|word| word.text.starts_with(b"~"));
    let rewrites = model.directives("rewrite").filter_map(|(_, node)| node.args.first());
    let patterns = locations(model).filter(|(_, l)| l.is_regex()).map(|(_, l)| l.word);
    for word in patterns.chain(names).chain(rewrites) {
        if pattern::backtracks(&word.lossy()) {
            report
                .find(word.span, format!("\"{word}\" may take exponential time"))
                .label("a repeated group of something repeated");
        }
    }
}

fn one_path(model: &Model<'_>, report: &mut RuleReport) {
    for (_, location) in locations(model) {
        let text = location.lossy();
        let Some(path) = text.strip_prefix('^').and_then(|text| text.strip_suffix('$')) else {
            continue;
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "/_-".contains(c);
        let unescaped = path.replace("\\.", "").replace("\\/", "");
        let modifier = Modifier::Regex { ignores_case: false };
        if location.modifier == modifier && path.starts_with('/') && unescaped.chars().all(plain) {
            let path = path.replace('\\', "");
            report
                .find(location.word.span, format!("\"{text}\" matches one path only"))
                .hint(format!("\"location = {path}\" is found without trying expressions"));
        }
    }
}

fn unreachable(model: &Model<'_>, report: &mut RuleReport) {
    for outer in
        model.blocks().filter(|b| matches!(b.kind(), BlockKind::Server | BlockKind::Location))
    {
        let blocks = outer.inner().filter(|block| block.kind() == BlockKind::Location);
        let (blocks, inner): (Vec<BlockRef<'_>>, Vec<Location<'_>>) =
            blocks.filter_map(|block| Some((block, block.location()?))).unzip();
        let all = inner.iter().position(|location| {
            location.is_regex() && pattern::matches_everything(&location.lossy())
        });
        let shadows = Shadows::of(&inner);
        let mut twins: HashMap<(&[u8], bool), Span> = HashMap::new();
        for (index, location) in inner.iter().enumerate() {
            let text = location.lossy();
            let is_after = all.is_some_and(|all| all < index && location.is_regex());
            // Locations nested in a prefix are tried before the expressions at its level.
            let is_plain = all.is_some()
                && location.modifier == Modifier::Prefix
                && !blocks[index]
                    .within()
                    .skip(1)
                    .filter_map(BlockRef::own_location)
                    .any(|nested| nested.is_regex() || nested.modifier == Modifier::Exact);
            if let Some(all) = all.filter(|_| is_after || is_plain) {
                note(report, location, inner[all].word.span, "matches every path, and comes first");
                continue;
            }
            let Modifier::Regex { ignores_case } = location.modifier else { continue };
            // A case-insensitive expression matches the same and more.
            let twin =
                twins.get(&(location.text, true)).or(twins.get(&(location.text, ignores_case)));
            if let Some(twin) = twin {
                note(report, location, *twin, "matches the same, and comes first");
                continue;
            }
            twins.insert((location.text, ignores_case), location.word.span);
            if let Some(preferred) = shadows.of_regex(&text, ignores_case) {
                note(report, location, preferred, "forbids expressions below it");
            }
        }
    }
}

/// The prefixes of a block because of which expressions may never be tried.
struct Shadows<'m> {
    /// Prefixes with `^~`, and their positions.
    preferred: BTreeMap<&'m [u8], Span>,
    plain: BTreeSet<&'m [u8]>,
}

impl<'m> Shadows<'m> {
    fn of(locations: &[Location<'m>]) -> Shadows<'m> {
        let with = |modifier| locations.iter().filter(move |l| l.modifier == modifier);
        let preferred = with(Modifier::Preferred).map(|l| (l.text, l.word.span));
        let plain = with(Modifier::Prefix).map(|l| l.text);
        Shadows { preferred: preferred.collect(), plain: plain.collect() }
    }

    /// The prefix with `^~` that covers all paths matched by an expression.
    fn of_regex(&self, text: &str, ignores_case: bool) -> Option<Span> {
        let beginning = pattern::literal_prefix(text)?;
        let mut beginning = beginning.as_bytes();
        if ignores_case {
            // "/Static/" is not below "/static/".
            let end = beginning.iter().position(u8::is_ascii_alphabetic);
            beginning = &beginning[..end.unwrap_or(beginning.len())];
        }
        // The longest prefix decides. Prefixes that sort between it and the beginning share less.
        let (prefix, span) = loop {
            let (known, span) = self.preferred.range(..=beginning).next_back()?;
            let common = beginning.iter().zip(*known).take_while(|(one, two)| one == two).count();
            if common == known.len() {
                break (*known, *span);
            }
            beginning = &beginning[..common];
        };
        // A longer plain prefix allows expressions again.
        let longer = (Bound::Excluded(prefix), Bound::Unbounded);
        let mut longer = self.plain.range::<&[u8], _>(longer);
        let reopened = longer.next().is_some_and(|plain| plain.starts_with(prefix));
        (!reopened).then_some(span)
    }
}

fn note(report: &mut RuleReport, location: &Location<'_>, because: Span, text: &str) {
    let message = format!("location \"{}\" is never chosen", location.lossy());
    report.find(location.word.span, message).note(because, text);
}

fn root_repeats(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("root") {
        let (Some(word), Some(location)) = (node.args.first(), block.own_location()) else {
            continue;
        };
        let path = String::from_utf8_lossy(location.text);
        let path = path.trim_end_matches('/');
        let text = word.lossy();
        if location.is_prefix() && path.len() > 1 && text.trim_end_matches('/').ends_with(path) {
            report
                .find(word.span, format!("\"{path}/NAME\" is looked up as \"{text}{path}/NAME\""))
                .hint(format!(
                    "use \"alias {}/;\", or leave \"{path}\" out of \"root\"",
                    text.trim_end_matches('/')
                ));
        }
    }
}
