//! The settings that apply to a request in its block, with the directives behind them.
//!
//! The inheritance of nginx: the innermost block that has a directive of a kind replaces what outer
//! blocks say; what decides about the content belongs to the block alone.

use nowait_conf::Node;

/// A directive that applies.
pub struct Setting<'n> {
    /// What it is about.
    pub about: &'static str,
    /// The directive.
    pub node: &'n Node,
}

/// Directives that apply together: of these names, the innermost block with one of them decides.
struct Family {
    about: &'static str,
    /// Separated by blanks.
    names: &'static str,
    inherited: bool,
}

const fn inherited(about: &'static str, names: &'static str) -> Family {
    Family { about, names, inherited: true }
}

const FAMILIES: &[Family] = &[
    Family { about: "location", names: "internal", inherited: false },
    inherited("files", "root alias"),
    inherited("files", "index"),
    Family { about: "files", names: "try_files", inherited: false },
    inherited("files", "autoindex"),
    inherited("files", "error_page"),
    Family {
        about: "handler",
        names: "proxy_pass fastcgi_pass uwsgi_pass scgi_pass grpc_pass memcached_pass tunnel_pass \
                stub_status status_api metrics empty_gif flv mp4 random_index",
        inherited: false,
    },
    inherited("access", "satisfy"),
    inherited("access", "allow deny"),
    inherited("access", "auth_basic"),
    inherited("access", "auth_basic_user_file"),
    inherited("access", "auth_request"),
    inherited("access", "valid_referers"),
    inherited("limits", "limit_req"),
    inherited("limits", "limit_conn"),
    inherited("limits", "limit_rate"),
    inherited("limits", "limit_rate_after"),
    inherited("limits", "client_max_body_size"),
    inherited("client", "set_real_ip_from"),
    inherited("client", "real_ip_header"),
    inherited("upstream", "proxy_set_header"),
    inherited("upstream", "proxy_next_upstream"),
    inherited("subrequests", "mirror"),
    inherited("subrequests", "add_before_body"),
    inherited("subrequests", "add_after_body"),
    inherited("subrequests", "post_action"),
    inherited("fields", "add_header"),
    inherited("fields", "expires"),
    inherited("fields", "more_set_headers more_clear_headers"),
    inherited("fields", "proxy_hide_header"),
    inherited("caching", "proxy_cache"),
    inherited("caching", "proxy_cache_key"),
    inherited("caching", "proxy_cache_valid"),
    inherited("caching", "proxy_cache_bypass"),
    inherited("caching", "proxy_no_cache"),
    inherited("caching", "fastcgi_cache"),
    inherited("caching", "fastcgi_cache_key"),
    inherited("caching", "fastcgi_cache_valid"),
    inherited("caching", "fastcgi_cache_bypass"),
    inherited("caching", "fastcgi_no_cache"),
    inherited("caching", "uwsgi_cache"),
    inherited("caching", "scgi_cache"),
    inherited("content", "gzip"),
    inherited("content", "brotli"),
    inherited("content", "zstd"),
    inherited("content", "sub_filter"),
    inherited("content", "ssi"),
    inherited("content", "image_filter"),
    inherited("logs", "access_log"),
    inherited("logs", "error_log"),
];

/// Directives of one family in one block that are listed.
const LISTED_MAX: usize = 50;

/// The settings for a chain of blocks, the outermost first.
pub fn of<'n>(chain: &[&'n Node]) -> Vec<Setting<'n>> {
    let mut list = Vec::new();
    for family in FAMILIES {
        // The block of an `if` or `limit_except` is a part of its location.
        let part = |node: &&&Node| node.name == "if" || node.name == "limit_except";
        let parts = chain.iter().rev().take_while(part).count();
        let depth = if family.inherited { chain.len() } else { parts + 1 };
        let blocks = chain.iter().rev().take(depth);
        let of_family =
            |node: &&Node| family.names.split_ascii_whitespace().any(|name| node.name == *name);
        let deciding = blocks
            .map(|block| block.children().iter().filter(of_family).collect::<Vec<_>>())
            .find(|found| !found.is_empty());
        let found = deciding.unwrap_or_default().into_iter().take(LISTED_MAX);
        list.extend(found.map(|node| Setting { about: family.about, node }));
    }
    list
}

/// The directive of these names, separated by blanks, that applies in a chain of blocks.
pub fn behind<'n>(chain: &[&'n Node], names: &str) -> Option<&'n Node> {
    let fits = |node: &&Node| names.split_ascii_whitespace().any(|name| node.name == *name);
    chain.iter().rev().find_map(|block| block.children().iter().find(fits))
}

/// A directive as it is written, on one line.
pub fn shown(node: &Node) -> String {
    let mut out = node.name.lossy().into_owned();
    for word in &node.args {
        out.push(' ');
        match word.quoted {
            true => out.push_str(&format!("\"{}\"", word.lossy().replace('"', "\\\""))),
            false => out.push_str(&word.lossy()),
        }
    }
    out.push(';');
    out
}
