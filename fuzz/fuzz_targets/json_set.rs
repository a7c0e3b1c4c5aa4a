//! `json_set`: the first line is a path, the rest a document. Values are found or not, without panics, and a document
//! is as valid with a path as without.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_variables::json_set::{Paths, extract};

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let (path, text) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let (mut paths, none) = (Paths::default(), Paths::default());
    if paths.add(path).is_none() {
        return;
    }
    for depth_max in [1, 5, 256] {
        let values = extract(text, &paths, depth_max);
        assert_eq!(values.is_some(), extract(text, &none, depth_max).is_some());
        let value = values.and_then(|values| values.into_iter().next().flatten());
        assert!(value.is_none_or(|value| value.len() <= text.len()));
    }
});
