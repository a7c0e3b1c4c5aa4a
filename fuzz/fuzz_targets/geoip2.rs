//! Databases of `geoip2`: values, none, or an error, no matter what a file contains.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| nowait_variables::geoip2::probe(data));
