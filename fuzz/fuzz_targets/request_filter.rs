//! The expressions of `nowait log`: a filter or an error that points into the text, no matter what it is. Whatever is
//! accepted can be negated, and then selects the opposite.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_modules::requests::filter::Filter;
use nowait_modules::requests::record::RequestRecord;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Filter::parse(text) {
        Ok(filter) => {
            let record = RequestRecord::default();
            let found = filter.matches(&record);
            // Two more levels, which may be too many.
            if let Ok(opposite) = Filter::parse(&format!("not ({text})"))
                && !text.contains('~')
            {
                assert_ne!(opposite.matches(&record), found);
            }
        }
        Err(error) => {
            assert!(error.at <= text.len() && !error.message.is_empty());
            assert!(text.is_char_boundary(error.at), "{error:?}");
        }
    }
});
