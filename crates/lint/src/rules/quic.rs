//! HTTP/3: what keeps clients from it.

use nowait_conf::{Level, Node};

use crate::index::Listen;
use crate::model::{BlockRef, Model};
use crate::rule::{Rule, RuleReport};
use crate::words::{field, has_word};

pub(crate) static RULES: &[Rule] = &[
    Rule {
        name: "quic-without-tcp",
        level: Level::Warn,
        fixes: false,
        summary: "`listen ... quic` without `listen ... ssl` on the same port",
        text: "Browsers learn of HTTP/3 from the `Alt-Svc` field of a response over TCP, or from an HTTPS \
               record in DNS, and use TCP where UDP does not get through. Nowait adds the field if the \
               server has the same port with `ssl`. Otherwise `add_header Alt-Svc` has to name the port.",
        wrong: "
http {
    server {
        listen 443 ssl;
        listen 8443 quic;
        ssl_certificate site.pem;
        ssl_certificate_key site.key;
    }
}
",
        right: "
http {
    server {
        listen 443 ssl;
        listen 443 quic;
        ssl_certificate site.pem;
        ssl_certificate_key site.key;
    }
}
",
        source: "docs/http3.md",
        check: without_tcp,
    },
    Rule {
        name: "quic-not-advertised",
        level: Level::Notice,
        fixes: false,
        summary: "`listen ... quic` that no response names",
        text: "With `http3_advertise off` and without an `Alt-Svc` field of its own, only clients that know \
               of it otherwise use HTTP/3: by an HTTPS record in DNS.",
        wrong: "
server {
    listen 443 ssl;
    listen 443 quic;
    http3_advertise off;
    ssl_certificate site.pem;
    ssl_certificate_key site.key;
}
",
        right: "
server {
    listen 443 ssl;
    listen 443 quic;
    ssl_certificate site.pem;
    ssl_certificate_key site.key;
}
",
        source: "docs/http3.md",
        check: not_advertised,
    },
    Rule {
        name: "quic-default-differs",
        level: Level::Warn,
        fixes: true,
        summary: "`default_server` for TCP, but not for QUIC on the same port",
        text: "Addresses over UDP have a default server of their own: without `default_server`, the first \
               one. Clients that ask for an unknown name would get another server over HTTP/3 than over \
               TCP, and settings of the transport come from it.",
        wrong: "
server {
    listen 443 ssl;
    listen 443 quic;
    server_name example.org;
    ssl_certificate site.pem;
    ssl_certificate_key site.key;
}
server {
    listen 443 ssl default_server;
    listen 443 quic;
    ssl_reject_handshake on;
}
",
        right: "
server {
    listen 443 ssl;
    listen 443 quic;
    server_name example.org;
    ssl_certificate site.pem;
    ssl_certificate_key site.key;
}
server {
    listen 443 ssl default_server;
    listen 443 quic default_server;
    ssl_reject_handshake on;
}
",
        source: "https://nginx.org/en/docs/http/ngx_http_core_module.html#listen",
        check: default_differs,
    },
];

fn is_quic(listen: &Listen<'_>) -> bool {
    has_word(listen.node, "quic")
}

/// The value of an `Alt-Svc` field anywhere in a server.
fn own_field(server: BlockRef<'_>) -> Option<String> {
    let blocks = std::iter::once(server).chain(server.inner());
    let mut values = blocks.filter_map(|block| {
        let nodes: Vec<&Node> = block.effective("add_header");
        field(&nodes, "Alt-Svc").map(|word| word.lossy().into_owned())
    });
    values.next()
}

fn without_tcp(model: &Model<'_>, report: &mut RuleReport) {
    for server in model.servers() {
        let listens = server.listens();
        for listen in listens.iter().filter(|listen| is_quic(listen)) {
            let Some(port) = listen.port else { continue };
            let is_there = |other: &Listen<'_>| !is_quic(other) && other.port == Some(port);
            let named = || own_field(server).is_some_and(|text| text.contains(&format!(":{port}")));
            if !listens.iter().any(is_there) && !model.is_part && !named() {
                let message = format!("clients do not find HTTP/3 on port {port}");
                let finding = report.find(listen.node.span, message);
                finding.hint(format!("add \"listen {port} ssl;\", or an \"Alt-Svc\" field"));
            }
        }
    }
}

fn not_advertised(model: &Model<'_>, report: &mut RuleReport) {
    for server in model.servers() {
        let quic = server.listens().iter().find(|listen| is_quic(listen));
        let Some(quic) = quic.filter(|_| server.is_set("http3_advertise", "off")) else { continue };
        if own_field(server).is_none() {
            let message = "no response names this address";
            report.find(quic.node.span, message).hint("remove \"http3_advertise off\"");
        }
    }
}

fn default_differs(model: &Model<'_>, report: &mut RuleReport) {
    for server in model.servers() {
        let listens = server.listens();
        for listen in listens.iter().filter(|listen| is_quic(listen) && !listen.is_default) {
            let is_default = |other: &&Listen<'_>| {
                !is_quic(other) && other.address == listen.address && other.is_default
            };
            let Some(tcp) = listens.iter().find(is_default) else { continue };
            if model.servers_at(&listen.address) < 2 || has_other_default(model, server, listen) {
                continue;
            }
            let message = "the default server for TCP is not the one for QUIC";
            let finding = report.find(listen.node.span, message);
            finding.note(tcp.node.span, "for TCP");
            if let Some(last) = listen.node.args.last() {
                finding.insert(last.span, " default_server");
            }
        }
    }
}

/// Whether another server is the default of an address over UDP, as the operator says.
fn has_other_default(model: &Model<'_>, server: BlockRef<'_>, listen: &Listen<'_>) -> bool {
    model.servers().filter(|other| other.number() != server.number()).any(|other| {
        let mut same = other.listens().iter().filter(|own| own.address == listen.address);
        same.any(|own| is_quic(own) && own.is_default)
    })
}
