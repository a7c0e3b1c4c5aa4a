//! What WebDAV reads: XML in bodies, `If`, and `Destination`. No matter what comes, it is read or refused; what
//! was read can be written and read again.
//!
//! Input: a choice, then the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_modules::dav::if_header::If;
use nowait_modules::dav::properties::{PropertyChange, PropertySelection, load, save};
use nowait_modules::dav::{parse_destination, xml};

fuzz_target!(|data: &[u8]| {
    let [choice, text @ ..] = data else { return };
    match choice % 4 {
        0 => {
            let Ok(root) = xml::parse(text) else { return };
            let mut written = String::new();
            root.write("", &mut written);
            // Escapes may make it longer than what is accepted.
            if written.len() <= xml::XML_BYTES_MAX {
                assert_eq!(xml::parse(written.as_bytes()), Ok(root));
            }
        }
        1 => {
            let _ = PropertySelection::parse(text);
            let Some(patches) = PropertyChange::parse(text) else { return };
            let mut properties = Vec::new();
            patches.into_iter().for_each(|patch| patch.apply(&mut properties));
            let saved = save(&properties);
            if saved.len() <= xml::XML_BYTES_MAX {
                assert_eq!(load(&saved), properties);
            }
        }
        2 => {
            if let Some(field) = If::parse(text) {
                assert!(!field.0.is_empty());
                assert!(field.0.iter().all(|list| !list.conditions.is_empty()));
            }
        }
        _ => {
            if let Ok(path) = parse_destination(text, b"host") {
                assert!(path.starts_with(b"/") && !path.contains(&0));
                assert!(path.split(|byte| *byte == b'/').all(|part| part != b".."));
            }
        }
    }
});
