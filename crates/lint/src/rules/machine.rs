//! What does not fit the machine, and what an editor has made of a text.

use nowait_conf::{Level, Word};

use crate::model::{BlockKind, BlockRef, Model};
use crate::rule::{Rule, RuleReport};
use crate::surroundings::DirectoryState;

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "root-unreachable",
        level: Level::Warn,
        fixes: false,
        summary: "`root` or `alias` names a directory that does not exist, or that `user` cannot enter",
        text: "Every file below it is answered with 404, or with 403 if the user of the server process may not enter \
               one of the directories on the path: it needs the permission `x` in each. Directories are looked at \
               when the configuration of this machine is examined, not if a file is named.",
        wrong: "
user www-data;
events { }
http {
    server {
        listen 80;
        root /missing/site;
    }
}
",
        right: "
user www-data;
events { }
http {
    server {
        listen 80;
        root /srv/site;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#root",
        check: root_unreachable,
    },
    Rule {
        name: "certificate-expired",
        level: Level::Error,
        fixes: false,
        summary: "a certificate whose validity has ended",
        text: "Browsers refuse the connection. Renew the certificate, or let the server obtain and renew it by \
               `acme_certificate`. Certificates are looked at when the configuration of this machine is examined, \
               not if a file is named.",
        wrong: "
http {
    ssl_certificate expired.pem;
    ssl_certificate_key site.key;
}
",
        right: "
http {
    ssl_certificate site.pem;
    ssl_certificate_key site.key;
}
",
        source: "https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5",
        check: certificate_expired,
    },
    Rule {
        name: "typographic-quotes",
        level: Level::Error,
        fixes: true,
        summary: "quotes of a word processor around a value",
        text: "Only `\"` and `'` quote. Typographic quotes, which web pages and word processors make of them, \
               belong to the value: the path, name or text is another one than intended.",
        wrong: "
add_header X-Frame-Options “DENY” always;
",
        right: "
add_header X-Frame-Options \"DENY\" always;
",
        source: "https://nginx.org/en/docs/beginners_guide.html#conf_structure",
        check: typographic_quotes,
    },
];

/// The user of the server process: that of `user`, or the default.
fn user(model: &Model<'_>) -> String {
    let main = model.all(BlockKind::Main).next();
    let word = main.and_then(|main| main.own("user").next()?.args.first());
    word.map_or_else(|| "nobody".to_owned(), |word| word.lossy().into_owned())
}

fn root_unreachable(model: &Model<'_>, report: &mut RuleReport) {
    let user = user(model);
    for name in ["root", "alias"] {
        for (block, node) in model.directives(name) {
            let Some(word) = node.args.first() else { continue };
            let text = word.lossy();
            // `alias` may name a file.
            let is_file = name == "alias" && !text.ends_with('/');
            if !text.starts_with('/') || text.contains('$') || is_file || !looks_up_files(block) {
                continue;
            }
            match model.surroundings.directory(&text, &user) {
                DirectoryState::Usable => {}
                DirectoryState::Missing => {
                    report
                        .find(word.span, format!("there is no directory \"{text}\""))
                        .label("requests for files get 404");
                }
                DirectoryState::Denied(at) => {
                    report
                        .find(word.span, format!("user \"{user}\" cannot enter \"{at}\""))
                        .label("requests for files get 403")
                        .hint(format!("permit it: chmod o+x {at}"));
                }
            }
        }
    }
}

/// Whether requests in the block, or in one within, may be for files.
fn looks_up_files(block: BlockRef<'_>) -> bool {
    block.within().any(|inner| !inner.has("return") && !inner.has_any(crate::words::PASSES))
}

fn certificate_expired(model: &Model<'_>, report: &mut RuleReport) {
    for block in model.blocks().filter(|block| block.kind() != BlockKind::Data) {
        for word in block.own("ssl_certificate").filter_map(|node| node.args.first()) {
            let text = word.lossy();
            if text.contains('$') || text.starts_with("data:") {
                continue;
            }
            if let Some(end) = model.surroundings.expired(&text) {
                report.find(word.span, format!("\"{text}\" has expired")).label(end);
            }
        }
    }
}

/// The typographic quotes and what was typed.
const QUOTES: [(&str, &str); 8] = [
    ("“", "\""),
    ("”", "\""),
    ("„", "\""),
    ("‟", "\""),
    ("‘", "'"),
    ("’", "'"),
    ("‚", "'"),
    ("″", "\""),
];

fn typographic_quotes(model: &Model<'_>, report: &mut RuleReport) {
    for node in model.blocks().flat_map(BlockRef::nodes) {
        // Words that such quotes were to keep together are separate.
        let Some(first) = node.args.iter().position(|word| opening(word).is_some()) else {
            continue;
        };
        let Some(last) = node.args[first..].iter().position(|word| closing(word).is_some()) else {
            continue;
        };
        let (first, last) = (&node.args[first], &node.args[first + last]);
        let (Some((open, typed)), Some((close, _))) = (opening(first), closing(last)) else {
            continue;
        };
        let finding = report.find(first.span, format!("{open} and {close} do not quote"));
        finding.hint(format!("write {typed}"));
        let is_verbatim =
            |word: &Word| (word.span.end - word.span.start) as usize == word.text.len();
        let inner = first.span.to(last.span);
        let has_own = node.args.iter().any(|word| {
            word.span.start >= inner.start
                && word.span.end <= inner.end
                && word.text.contains(&typed.as_bytes()[0])
        });
        if is_verbatim(first) && is_verbatim(last) && first.span.file == last.span.file && !has_own
        {
            let start =
                nowait_conf::Span { end: first.span.start + open.len() as u32, ..first.span };
            let end = nowait_conf::Span { start: last.span.end - close.len() as u32, ..last.span };
            finding.replace(start, typed).replace(end, typed);
        }
    }
}

/// The typographic quote that a word begins with, and what was typed.
fn opening(word: &Word) -> Option<(&'static str, &'static str)> {
    QUOTES.into_iter().find(|(quote, _)| word.text.starts_with(quote.as_bytes()))
}

/// The same of its end.
fn closing(word: &Word) -> Option<(&'static str, &'static str)> {
    let ends = |quote: &str| word.text.len() > quote.len() && word.text.ends_with(quote.as_bytes());
    QUOTES.into_iter().find(|(quote, _)| ends(quote))
}
