//! Formatting: a text that can be read is formatted once and for all, and means the same as before.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use nowait_conf::{format, parse_text};
use nowait_fuzz::shape;

fuzz_target!(|text: &[u8]| {
    let name = Path::new("/main.conf");
    let (tree, diagnostics) = parse_text(name, text);
    let formatted = match format(name, text) {
        Ok(formatted) => formatted,
        Err(errors) => {
            assert!(!diagnostics.is_empty(), "{}", errors.render(false));
            return;
        }
    };
    assert!(diagnostics.is_empty());
    assert_eq!(format(name, &formatted).ok().as_ref(), Some(&formatted));
    assert_eq!(shape(&tree.nodes), shape(&parse_text(name, &formatted).0.nodes));
});
