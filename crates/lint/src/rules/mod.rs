//! The kinds of mistakes, by topic.

mod access;
mod caching;
mod certificates;
mod files;
mod headers;
mod limits;
mod locations;
mod machine;
mod proxying;
mod quic;
mod rewriting;
mod scripts;
mod servers;

use nowait_conf::Level;

use crate::rule::Rule;

/// Every kind, by topic.
pub(crate) static TOPICS: &[(&str, &[Rule])] = &[
    ("Locations", locations::RULES),
    ("Files", files::RULES),
    ("Rewriting", rewriting::RULES),
    ("Header fields", headers::RULES),
    ("Upstream servers", proxying::RULES),
    ("Caching", caching::RULES),
    ("Applications", scripts::RULES),
    ("Servers", servers::RULES),
    ("TLS", certificates::RULES),
    ("HTTP/3", quic::RULES),
    ("Access", access::RULES),
    ("Limits and logs", limits::RULES),
    ("Machine and editor", machine::RULES),
    ("Remarks", std::slice::from_ref(&REMARK)),
];

/// Found by `allow`, which knows the remarks.
pub(crate) static REMARK: Rule = Rule {
    name: "lint-remark",
    level: Level::Notice,
    fixes: false,
    summary: "a `# lint: allow` remark that names no kind, or gives no reason",
    text: "A remark silences the findings of one kind in its line, or in the line below if it stands \
           alone. With a misspelt name it silences nothing; without a reason it is not clear later \
           whether it is still right.",
    wrong: "
# lint: allow merge-slash
merge_slashes off;
",
    right: "
# lint: allow merge-slashes-off the application has paths with \"//\"
merge_slashes off;
",
    source: "docs/configurations.md",
    check: |_, _| (),
};
