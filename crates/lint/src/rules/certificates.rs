//! TLS towards clients.

use nowait_conf::{Level, Node, Word};

use crate::model::{BlockRef, Model};
use crate::rule::{Rule, RuleReport};

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "tls-protocols-weak",
        level: Level::Warn,
        fixes: true,
        summary: "SSL, TLS 1.0 or TLS 1.1 is allowed",
        text: "These versions have known weaknesses and must not be used. Every browser of the last ten \
               years has TLS 1.2. (nowait has no older version; the words are accepted and ignored.)",
        wrong: "
ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;
",
        right: "
ssl_protocols TLSv1.2 TLSv1.3;
",
        source: "https://www.rfc-editor.org/rfc/rfc8996",
        check: protocols,
    },
    Rule {
        name: "tls-ciphers-weak",
        level: Level::Warn,
        fixes: false,
        summary: "ciphers that are broken, or that do not encrypt",
        text: "RC4, DES, 3DES, MD5, export ciphers and those without encryption or authentication can \
               be broken. Best leave the list out: the default is good.",
        wrong: "
ssl_ciphers HIGH:RC4-SHA:!aNULL;
",
        right: "
ssl_ciphers HIGH:!aNULL:!MD5:!RC4;
",
        source: "https://www.rfc-editor.org/rfc/rfc9325#section-4",
        check: ciphers,
    },
    Rule {
        name: "certificate-missing",
        level: Level::Error,
        fixes: false,
        summary: "a server with TLS and without a certificate",
        text: "No client can connect. State `ssl_certificate` and `ssl_certificate_key`, order one by \
               `acme_certificate`, or refuse all by `ssl_reject_handshake on`.",
        wrong: "
http {
    server {
        listen 443 ssl;
        root /srv/site;
    }
}
",
        right: "
http {
    server {
        listen 443 ssl;
        ssl_certificate site.pem;
        ssl_certificate_key site.key;
        root /srv/site;
    }
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_certificate",
        check: missing,
    },
    Rule {
        name: "stapling-without-resolver",
        level: Level::Notice,
        fixes: false,
        summary: "`ssl_stapling` without `resolver`",
        text: "The name of the issuer's responder has to be resolved: nginx staples nothing without a \
               `resolver`. nowait asks the servers of `/etc/resolv.conf`. State it, so that the \
               configuration works with both.",
        wrong: "
http {
    ssl_stapling on;
}
",
        right: "
http {
    ssl_stapling on;
    resolver 127.0.0.53;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_stapling",
        check: stapling,
    },
    Rule {
        name: "client-certificate-unchecked",
        level: Level::Error,
        fixes: false,
        summary: "optional certificates of clients, whose verification is never checked",
        text: "With `optional` and `optional_no_ca`, clients without a valid certificate are let in: the \
               result is in `$ssl_client_verify`, and something has to look at it.",
        wrong: "
ssl_client_certificate ca.pem;
ssl_verify_client optional;
",
        right: "
ssl_client_certificate ca.pem;
ssl_verify_client on;
",
        source: "https://nginx.org/en/docs/http/ngx_http_ssl_module.html#ssl_verify_client",
        check: unchecked,
    },
];

/// Directives with this ending anywhere, also for upstream servers and in `stream`.
fn ending<'m>(model: &'m Model<'m>, end: &'static str) -> impl Iterator<Item = &'m Node> {
    model.blocks().flat_map(|block| block.nodes()).filter(move |node| {
        node.name.text == end.as_bytes() || node.name.text.ends_with(format!("_{end}").as_bytes())
    })
}

fn protocols(model: &Model<'_>, report: &mut RuleReport) {
    const WEAK: &[&str] = &["SSLv2", "SSLv3", "TLSv1", "TLSv1.1"];
    for node in ending(model, "ssl_protocols") {
        let is_weak = |word: &&Word| WEAK.iter().any(|weak| **word == **weak);
        let weak: Vec<&Word> = node.args.iter().filter(is_weak).collect();
        let Some(first) = weak.first() else { continue };
        let names: Vec<String> = weak.iter().map(|word| word.to_string()).collect();
        let verb = if weak.len() == 1 { "is" } else { "are" };
        let finding =
            report.find(first.span, format!("{} {verb} no longer safe", names.join(", ")));
        finding.hint(format!("{} TLSv1.2 TLSv1.3;", node.name));
        if weak.len() < node.args.len() {
            finding.remove(node, &weak);
        }
    }
}

fn ciphers(model: &Model<'_>, report: &mut RuleReport) {
    const WEAK: &[&str] = &[
        "RC4",
        "DES",
        "3DES",
        "MD5",
        "NULL",
        "eNULL",
        "aNULL",
        "EXP",
        "EXPORT",
        "EXPORT40",
        "EXPORT56",
        "LOW",
        "ADH",
        "AECDH",
        "CBC3",
        "COMPLEMENTOFALL",
        "SSLv2",
        "RC2",
        "IDEA",
        "SEED",
    ];
    for node in ending(model, "ssl_ciphers") {
        let Some(word) = node.args.first() else { continue };
        let text = word.lossy();
        let tokens = || text.split([':', ',', ' ']);
        let excluded: Vec<&str> =
            tokens().filter_map(|token| token.strip_prefix(['!', '-'])).collect();
        // "+RC4" only moves to the end what others added.
        let weak = tokens().filter(|token| !token.starts_with(['!', '-', '+'])).find_map(|token| {
            let mut parts = token.split(['-', '+', '_']);
            let part = parts.find(|part| WEAK.contains(part) && !excluded.contains(part));
            let all = (token == "ALL" && !excluded.contains(&"aNULL")).then_some("aNULL");
            Some((token, part.or(all)?))
        });
        if let Some((token, part)) = weak {
            report
                .find(word.span, format!("\"{token}\" allows ciphers that are not safe ({part})"))
                .hint("remove the directive: the default is good");
        }
    }
}

fn missing(model: &Model<'_>, report: &mut RuleReport) {
    for server in model.servers().filter(|_| !model.is_part) {
        let has = server.in_effect(&["ssl_certificate", "acme_certificate"])
            || server.is_set("ssl_reject_handshake", "on");
        if let Some(listen) = server.listens().iter().find(|listen| listen.is_ssl)
            && !has
        {
            report
                .find(listen.node.name.span, "no certificate for the connections of this address")
                .hint("state \"ssl_certificate\" and \"ssl_certificate_key\", or \"acme_certificate\"");
        }
    }
}

fn stapling(model: &Model<'_>, report: &mut RuleReport) {
    for (block, node) in model.directives("ssl_stapling") {
        let is_on = crate::words::has_word(node, "on");
        let has = block.in_effect(&["resolver", "ssl_stapling_file"])
            || block.within().any(|inner| inner.has_any(&["resolver", "ssl_stapling_file"]));
        if is_on && !has && !model.is_part {
            report
                .find(node.name.span, "nginx staples nothing without \"resolver\"")
                .hint("resolver 127.0.0.53; or another DNS server");
        }
    }
}

fn unchecked(model: &Model<'_>, report: &mut RuleReport) {
    let lines: Vec<(BlockRef<'_>, &Node)> = model.directives("ssl_verify_client").collect();
    let is_optional =
        |node: &Node| node.args.first().is_some_and(|word| word.text.starts_with(b"optional"));
    if !lines.iter().any(|(_, node)| is_optional(node)) {
        return;
    }
    // Logs, maps and fields for applications may use the variable, too.
    let asks = model.tree.files.iter().any(|(_, text)| {
        text.windows(b"ssl_client_".len()).any(|window| window == b"ssl_client_")
            && [&b"$ssl_client_"[..], b"${ssl_client_"]
                .iter()
                .any(|name| text.windows(name.len()).any(|window| window == *name))
    });
    for (_, node) in lines.into_iter().filter(|(_, node)| is_optional(node) && !asks) {
        let word = &node.args[0];
        report
            .find(word.span, format!("with \"{word}\", every client is let in"))
            .label("nothing looks at $ssl_client_verify");
    }
}
