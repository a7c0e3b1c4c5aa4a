//! Mistakes in configurations.

use crate::stage::{refused, site};

#[test]
fn mistakes() {
    let path = "proxy_cache_path %%DIR%%/cache";
    for (http, reason) in [
        (format!("{path} inactive=1m;"), "\"proxy_cache_path\" must have \"keys_zone\" parameter"),
        (format!("{path} keys_zone=one;"), "invalid keys zone size \"keys_zone=one\""),
        (format!("{path} keys_zone=one:1k;"), "keys zone \"keys_zone=one:1k\" is too small"),
        (format!("{path} keys_zone=one:1m levels=3;"), "invalid \"levels\" \"levels=3\""),
        (format!("{path} keys_zone=one:1m use_temp_path=x;"), "invalid use_temp_path value"),
        (format!("{path} keys_zone=one:1m other=1;"), "invalid parameter \"other=1\""),
        (format!("{path} keys_zone=one:1m tier=two;"), "tier \"two\" is unknown"),
        (format!("{path} keys_zone=one:1m; {path}2 keys_zone=one:1m;"), "duplicate zone \"one\""),
        (format!("{path} keys_zone=one:1m; {path} keys_zone=two:1m;"), "the same path name"),
        ("server { proxy_cache one; }".into(), "\"proxy_cache\" zone \"one\" is unknown"),
        ("proxy_cache_valid 99 1m;".into(), "invalid status \"99\""),
        ("proxy_cache_valid 200 x;".into(), "invalid time value \"x\""),
        ("proxy_cache_use_stale http_418;".into(), "invalid value \"http_418\""),
        ("proxy_cache_methods PUT;".into(), "invalid value \"PUT\""),
    ] {
        let listen = "server { listen 127.0.0.1:%%PORT%%; }";
        refused(&site(&format!("{http} {listen}")), reason);
    }
}
