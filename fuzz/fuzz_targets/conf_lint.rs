//! Mistakes in configurations: any text is looked at and its findings rendered without a panic; what fixes
//! them leaves a text that can be read, and once nothing is left to fix it stays so.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use nowait_conf::{Bundle, Registry, Tree, Words, directives, parse};
use nowait_lint::{Edit, Unknown, check, diagnostics, fix};

directives! {
    #[allow(dead_code)]
    module "core";
    struct Lists with ListsLayer;

    add_header: Vec<Words>, in ANY, args "";
    proxy_set_header: Vec<Words>, in ANY, args "";
    fastcgi_param: Vec<Words>, in ANY, args "";
}

/// Longer texts may have words that a fix makes too long to be read.
const TEXT_BYTES_MAX: usize = 4000;

/// Fixes that overlap are applied one after the other.
const ROUNDS_MAX: usize = 10;

fuzz_target!(|text: &[u8]| {
    if text.len() > TEXT_BYTES_MAX {
        return;
    }
    let Some(mut tree) = read(text) else { return };
    let registry = Registry::new(&[Lists::ROWS]);
    let mut text = text.to_vec();
    for round in 0.. {
        let found = check(&tree, &registry, &Unknown);
        let rendered = diagnostics(&tree, &found, 100).render(false);
        assert!(rendered.chars().all(|c| !c.is_control() || c == '\n'));
        let fixes: Vec<&[Edit]> = found.iter().map(|finding| &*finding.edits).collect();
        let (fixed, applied) = fix(&text, &fixes);
        if fixed == text {
            return;
        }
        assert!(round < ROUNDS_MAX && applied.contains(&true));
        text = fixed;
        tree = read(&text).expect("a fixed text can be read");
    }
});

fn read(text: &[u8]) -> Option<Tree> {
    let mut files = Bundle::default();
    files.add("/main.conf", text);
    let (tree, diagnostics) = parse(&files, Path::new("/main.conf"), None);
    diagnostics.is_empty().then_some(tree)
}
