//! Every kind of mistake: its wrong example has it, its right example has no mistake at all, and so
//! have the cases in `cases/KIND.conf`.
//!
//! In those files, `#! wrong` begins a text that has the mistake, `#! right` one that has not (others
//! are no matter), and `#! fixed` the text that `--fix` makes of the one before.

use std::path::Path;

use nowait_conf::{Bundle, Inheritance, Registry, Tree, Words, directives, parse};
use nowait_lint::{
    DirectoryState, Edit, Finding, Rule, Surroundings, check, diagnostics, fix, rules,
};

directives! {
    #[allow(dead_code)]
    module "core";
    struct Lists with ListsLayer;

    add_header: Vec<Words>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "";
    add_trailer: Vec<Words>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "";
    proxy_set_header: Vec<Words>, in HTTP | SERVER | LOCATION, args "";
    grpc_set_header: Vec<Words>, in HTTP | SERVER | LOCATION, args "";
    fastcgi_param: Vec<Words>, in HTTP | SERVER | LOCATION, args "";
    scgi_param: Vec<Words>, in HTTP | SERVER | LOCATION, args "";
    uwsgi_param: Vec<Words>, in HTTP | SERVER | LOCATION, args "";
}

const NAME: &str = "/conf/nginx.conf";

fn read(text: &str) -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf");
    let mut files = Bundle::default();
    files.add(NAME, text);
    for name in ["mime.types", "fastcgi_params", "fastcgi.conf"] {
        files.add(Path::new("/conf").join(name), std::fs::read(root.join(name)).unwrap());
    }
    let (tree, found) = parse(&files, Path::new(NAME), None);
    assert!(found.is_empty(), "{text}: {}", found.render(false));
    tree
}

/// A machine with directories that tell by their names whether they can be entered, and certificates likewise.
struct Machine;

impl Surroundings for Machine {
    fn directory(&self, path: &str, user: &str) -> DirectoryState {
        if path.contains("missing") {
            DirectoryState::Missing
        } else if path.contains("private") && user != "root" {
            DirectoryState::Denied("/private".to_owned())
        } else {
            DirectoryState::Usable
        }
    }

    fn expired(&self, path: &str) -> Option<String> {
        path.contains("expired").then(|| "Jan  1 00:00:00 2026 GMT".to_owned())
    }
}

fn findings(tree: &Tree) -> Vec<Finding> {
    check(tree, &Registry::new(&[Lists::ROWS]), &Machine)
}

fn shown(tree: &Tree, found: &[Finding]) -> String {
    diagnostics(tree, found, usize::MAX).render(false)
}

fn is_found(rule: &Rule, text: &str) -> bool {
    findings(&read(text)).iter().any(|finding| finding.rule.name == rule.name)
}

/// The text after all fixes of a kind.
fn fixed(rule: &Rule, text: &str) -> String {
    let tree = read(text);
    let found = findings(&tree);
    let edits: Vec<&[Edit]> = found
        .iter()
        .filter(|finding| finding.rule.name == rule.name)
        .map(|finding| finding.edits.as_slice())
        .collect();
    String::from_utf8(fix(text.as_bytes(), &edits).0).unwrap()
}

#[test]
fn examples_of_every_kind() {
    let mut problems = String::new();
    for rule in rules() {
        if !is_found(rule, rule.wrong) {
            problems += &format!("{}: not found in {}\n", rule.name, rule.wrong);
        }
        let tree = read(rule.right);
        let found = findings(&tree);
        if !found.is_empty() {
            problems += &format!("{}: {}\n{}\n", rule.name, rule.right, shown(&tree, &found));
        }
        let text = fixed(rule, rule.wrong);
        if rule.fixes && (text == rule.wrong || is_found(rule, &text)) {
            problems += &format!("{}: not fixed: {text}\n", rule.name);
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

#[test]
fn cases() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let (mut count, mut problems) = (0, String::new());
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let rule = nowait_lint::rule(name).unwrap_or_else(|| panic!("no kind {name}"));
        let text = std::fs::read_to_string(&path).unwrap();
        let mut last = "";
        for case in text.split("#! ").skip(1) {
            let (kind, body) = case.split_once('\n').unwrap();
            let is_right = match kind.trim() {
                "fixed" => fixed(rule, last) == body,
                kind @ ("wrong" | "right") => is_found(rule, body) == (kind == "wrong"),
                other => panic!("{name}: unknown case {other}"),
            };
            if !is_right {
                problems += &format!("{name}, {kind}:\n{body}");
                if kind == "fixed" {
                    problems += &format!("became:\n{}", fixed(rule, last));
                }
            }
            (last, count) = (body, count + 1);
        }
    }
    assert!(problems.is_empty(), "{problems}");
    assert!(count > 200, "{count} cases");
}

#[test]
fn kinds_are_described() {
    let mut names: Vec<&str> = rules().map(|rule| rule.name).collect();
    assert!(names.len() >= 60, "{}", names.len());
    for rule in rules() {
        let is_kebab =
            rule.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        assert!(is_kebab, "{}", rule.name);
        assert!(!rule.summary.ends_with('.') && rule.text.ends_with(['.', ')']), "{}", rule.name);
        assert!(!rule.source.is_empty() && rule.explain().contains("Wrong:\n\n    "));
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rules().count(), "a name twice");
}

#[test]
fn inheritance_is_that_of_the_tables() {
    let registry = Registry::new(&[Lists::ROWS]);
    assert_eq!(registry.named(b"add_header")[0].inheritance, Inheritance::List);
    // Without a table that says so, nothing is lost.
    let tree = read("server { add_header A b; location / { add_header C d; } }");
    assert!(!check(&tree, &registry, &Machine).is_empty());
    assert!(check(&tree, &Registry::new(&[]), &Machine).is_empty());
}

#[test]
fn remarks_silence_one_kind_in_one_line() {
    let count = |text: &str| findings(&read(text)).len();
    assert_eq!(count("merge_slashes off;"), 1);
    assert_eq!(count("merge_slashes off; # lint: allow merge-slashes-off paths have \"//\""), 0);
    assert_eq!(count("# lint: allow merge-slashes-off reason\nmerge_slashes off;"), 0);
    assert_eq!(count("# lint: allow merge-slashes-off reason\n# more\nmerge_slashes off;"), 0);
    assert_eq!(count("# lint: allow merge-slashes-off reason\n\nmerge_slashes off;"), 1);
    assert_eq!(count("# lint: allow error-log-off reason\nmerge_slashes off;"), 1);
    assert_eq!(count("a \"# lint: allow merge-slashes-off x\"; merge_slashes off;"), 1);
    // Without a reason it counts, and is a finding itself.
    let tree = read("merge_slashes off; # lint: allow merge-slashes-off");
    let found = findings(&tree);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].rule.name, "lint-remark");
    let said = shown(&tree, &findings(&read("a; # lint: allow merge-slash-off why")));
    assert!(said.contains("did you mean \"merge-slashes-off\"?"), "{said}");
}

#[test]
fn findings_name_their_places() {
    let tree = read("server {\n    merge_slashes off;\n}\n");
    let said = shown(&tree, &findings(&tree));
    let expected = "nowait: [warn] locations do not match paths with \"//\" in \
                    /conf/nginx.conf:2:5\n2 |     merge_slashes off;\n";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.ends_with("= kind: merge-slashes-off\n"), "{said}");
}

/// A finding in a file that several servers include is reported once.
#[test]
fn included_files_are_found_once() {
    let mut files = Bundle::default();
    files.add("/a.conf", "http { server { include b.conf; } server { include b.conf; } }");
    files.add("/b.conf", "merge_slashes off;");
    let (tree, _) = parse(&files, Path::new("/a.conf"), None);
    assert_eq!(findings(&tree).len(), 1);
}

/// Edits are of the finding's own file, and right wherever that is included.
#[test]
fn fixes_of_included_files() {
    let fixable = |main: &str, included: &str| {
        let mut files = Bundle::default();
        files.add("/a.conf", main);
        files.add("/b.conf", included);
        let (tree, _) = parse(&files, Path::new("/a.conf"), None);
        let found = findings(&tree);
        assert!(!found.is_empty());
        found.iter().any(|finding| !finding.edits.is_empty())
    };
    let ssl = "server { listen 443; include b.conf; }";
    assert!(!fixable(ssl, "ssl on;"), "the address is in another file");
    assert!(!fixable(&format!("{ssl}{ssl}"), "ssl on;"));
    assert!(fixable("server { include b.conf; }", "listen 443; ssl on;"));
    let redirect = "return 301 https://a.b$uri?$args;";
    assert!(fixable("server { include b.conf; } server { include b.conf; }", redirect));
    assert!(!fixable("server { include b.conf; } server { index a; include b.conf; }", redirect));
    // Where the server is the other protocol's, there is no finding to compare with.
    assert!(!fixable("server { include b.conf; } types { include b.conf; }", redirect));
}

/// Places in words that are not UTF-8 are not those of the text that is shown: nothing is changed there.
#[test]
fn other_bytes_are_not_fixed() {
    let mut files = Bundle::default();
    files.add("/a.conf", &b"server { return 301 https://\xff\xff.example$uri?$args; }"[..]);
    let (tree, _) = parse(&files, Path::new("/a.conf"), None);
    let found = findings(&tree);
    assert!(found.iter().any(|finding| finding.rule.name == "header-injection"));
    assert!(found.iter().all(|finding| finding.edits.is_empty()));
}

/// No matter what the text is, nothing panics.
#[test]
fn odd_texts() {
    for text in [
        "",
        "server;",
        "location;",
        "server { listen; server_name; location { } }",
        "if { }",
        "server { location ~ ( { rewrite ( /x last; } }",
        "map; map $a { }; map $a $a { $a $a; }",
        "set $a $a; proxy_pass http://$a;",
        "server { set $a $b; set $b $a; return 301 $a; }",
        "types { a; }",
        "upstream { server; } upstream a;",
        "limit_req_zone;",
        "gzip_types;",
        "server { listen [; listen [::1; listen :; listen unix:; server_name \"\" ~ ~^; }",
        "error_page; try_files; error_page @; try_files @;",
        "ssl_ciphers; ssl_ciphers \"\";",
        "location $ { alias $; proxy_pass $; proxy_pass ${; return $$; }",
        "allow; deny;",
        "location ~ [ { } location ~ (?< { } location ~ \\ { alias /; }",
        "if (a) { } if () { } if ( ) { return; }",
        "add_header; add_header a; add_header a \"\";",
    ] {
        let mut files = Bundle::default();
        files.add("/a.conf", text);
        let (tree, _) = parse(&files, Path::new("/a.conf"), None);
        let found = findings(&tree);
        let _ = shown(&tree, &found);
    }
}
