//! Directives of popular third-party modules, of NGINX Plus, and of former nginx releases: their
//! origin, and their replacement.
//!
//! Called for names that neither the [`Registry`](crate::Registry) nor the table of
//! [nginx's directives](crate::unsupported) knows, and by the parser for blocks of Lua code. Facts
//! only; a row of the registry always wins.

/// Directives of one origin.
struct Origin {
    /// The module or product, as messages name it.
    name: &'static str,
    /// Names separated by blanks; `*` stands for any rest at the beginning or the end.
    names: &'static str,
    /// The replacement.
    advice: &'static str,
}

const TABLE: &[Origin] = &[
    Origin {
        name: "Lua module",
        names: "lua_* *_by_lua *_by_lua_block *_by_lua_file",
        advice: "there is no scripting: use \"map\", \"auth_request\" or \"sub_filter\", or pass \
                 such requests to an application (\"proxy_pass\")",
    },
    Origin {
        name: "njs module",
        names: "js_*",
        advice: "there is no scripting: use \"map\", \"auth_request\" or \"sub_filter\", or pass \
                 such requests to an application (\"proxy_pass\")",
    },
    Origin {
        name: "ngx_cache_purge module",
        names: "cache_purge_response_type cache_purge_legacy_status",
        advice: "remove the line: \"proxy_cache_purge\" and its relatives answer 200 with a page, or 404",
    },
    Origin {
        name: "VTS module",
        names: "vhost_traffic_status* stream_server_traffic_status*",
        advice: "use \"status_api\" for JSON and \"metrics\" for Prometheus",
    },
    Origin {
        name: "upstream check module",
        names: "check check_http_send check_http_expect_alive check_keepalive_requests \
                check_status check_shm_size check_fastcgi_param",
        advice: "use \"health_check\" and \"match\" in the location with \"proxy_pass\"",
    },
    Origin {
        name: "upstream fair module",
        names: "fair upstream_fair_shm_size",
        advice: "use \"least_conn\", \"least_time\" or \"random two least_time=header\"",
    },
    Origin {
        name: "substitutions module",
        names: "subs_filter subs_filter_types subs_filter_bypass",
        advice: "use \"sub_filter\" with \"sub_filter_once off\" for fixed strings",
    },
    Origin {
        name: "replace-filter module",
        names: "replace_filter replace_filter_*",
        advice: "use \"sub_filter\" for fixed strings",
    },
    Origin { name: "echo module", names: "echo echo_*", advice: "use \"return 200 TEXT\"" },
    Origin {
        name: "set-misc module",
        names: "set_escape_uri set_unescape_uri set_quote_sql_str set_quote_pgsql_str \
                set_quote_json_str set_if_empty set_hashed_upstream set_base32 set_base32_alphabet \
                set_decode_base32 set_base64 set_decode_base64 set_base64url set_decode_base64url \
                set_encode_hex set_decode_hex set_sha1 set_md5 set_hmac_sha1 set_hmac_sha256 \
                set_random set_secure_random_alphanum set_secure_random_lcalpha set_rotate \
                set_local_today set_formatted_gmt_time set_formatted_local_time",
        advice: "use \"map\", \"split_clients\", \"secure_link_md5\" or $request_id where one fits",
    },
    Origin {
        name: "fancyindex module",
        names: "fancyindex fancyindex_*",
        advice: "use \"autoindex\"; \"autoindex_format xml\" or \"json\" with a page of your own \
                 gives other looks",
    },
    Origin {
        name: "ModSecurity module",
        names: "modsecurity modsecurity_*",
        advice: "run the firewall in a proxy in front of nowait; removing the lines removes its \
                 protection",
    },
    Origin {
        name: "NAXSI module",
        names: "SecRulesEnabled SecRulesDisabled LearningMode DeniedUrl CheckRule BasicRule \
                MainRule LibInjectionSql LibInjectionXss",
        advice: "run the firewall in a proxy in front of nowait; removing the lines removes its \
                 protection",
    },
    Origin {
        name: "testcookie module",
        names: "testcookie testcookie_*",
        advice: "use \"limit_req\" and \"limit_conn\" against floods",
    },
    Origin {
        name: "PageSpeed module",
        names: "pagespeed",
        advice: "optimise pages when they are built; the module is no longer maintained",
    },
    Origin {
        name: "RTMP module",
        names: "rtmp rtmp_*",
        advice: "run an RTMP server, and put nowait in front of its HLS or DASH files",
    },
    Origin {
        name: "VOD module",
        names: "vod vod_*",
        advice: "let a packager produce the segments, and cache them with \"proxy_cache\"",
    },
    Origin {
        name: "push stream module",
        names: "push_stream_*",
        advice: "pass such requests to a server for events (\"proxy_pass\" with \
                 \"proxy_buffering off\")",
    },
    Origin {
        name: "Nchan module",
        names: "nchan_*",
        advice: "pass such requests to a server for events (\"proxy_pass\" with \
                 \"proxy_buffering off\")",
    },
    Origin {
        name: "upload module",
        names: "upload_pass upload_store upload_store_access upload_set_form_field \
                upload_aggregate_form_field upload_pass_form_field upload_cleanup \
                upload_resumable upload_state_store upload_limit_rate upload_max_file_size \
                upload_max_output_body_len upload_buffer_size upload_pass_args \
                upload_tame_arrays upload_progress track_uploads report_uploads \
                upload_progress_*",
        advice: "pass uploads to the application; \"client_body_in_file_only\" hands it the file",
    },
    Origin {
        name: "LDAP authentication module",
        names: "auth_ldap auth_ldap_* ldap_server",
        advice: "use \"auth_request\" with a service that asks the directory",
    },
    Origin {
        name: "PAM authentication module",
        names: "auth_pam auth_pam_*",
        advice: "use \"auth_request\" with a service that asks PAM",
    },
    Origin {
        name: "SPNEGO module",
        names: "auth_gss auth_gss_*",
        advice: "use \"auth_request\" with a service that speaks Kerberos",
    },
    Origin {
        name: "digest authentication module",
        names: "auth_digest auth_digest_*",
        advice: "use \"auth_basic\" over TLS",
    },
    Origin {
        name: "Redis, memcached and SQL modules",
        names: "redis_pass redis_* redis2_* memc_* srcache_* drizzle_* postgres_* rds_json \
                rds_json_*",
        advice: "pass such requests to an application (\"proxy_pass\"), and cache its responses \
                 with \"proxy_cache\"",
    },
    Origin {
        name: "OpenTelemetry, OpenTracing and Datadog modules",
        names: "otel_* opentracing opentracing_* opentelemetry opentelemetry_* datadog_*",
        advice: "log $request_id and pass it on with \"proxy_set_header\"; remove the lines",
    },
    Origin {
        name: "connect module",
        names: "proxy_connect proxy_connect_*",
        advice: "use \"tunnel_pass\"",
    },
    Origin {
        name: "Phusion Passenger",
        names: "passenger_*",
        advice: "run Passenger Standalone, and pass requests to it (\"proxy_pass\")",
    },
    Origin {
        name: "dynamic upstream modules",
        names: "upsync upsync_* dyups_* check_upstream_* dynamic_upstream",
        advice: "use \"server ... resolve\" or \"service=\" to follow DNS, or reload: connections \
                 and caches survive it",
    },
    Origin {
        name: "cookie flag module",
        names: "set_cookie_flag",
        advice: "use \"proxy_cookie_flags\"",
    },
    Origin {
        name: "security headers module",
        names: "security_headers security_headers_* hide_server_tokens",
        advice: "use \"add_header ... always\" and \"server_tokens off\"",
    },
    Origin {
        name: "form-input and related modules",
        names: "set_form_input set_form_input_multi set_iconv iconv_* encrypted_session_* \
                array_* eval eval_*",
        advice: "let the application do this",
    },
    Origin {
        name: "Tengine",
        names: "concat concat_* trim trim_* sysguard sysguard_* req_status req_status_* \
                jemalloc tfs_* user_agent footer",
        advice: "remove the lines",
    },
    Origin {
        name: "NGINX Plus (API)",
        names: "api status_format upstream_conf status",
        advice: "use \"status_api\" for JSON and \"metrics\" for Prometheus",
    },
    Origin {
        name: "NGINX Plus (key-value store)",
        names: "keyval keyval_zone",
        advice: "use \"map\" with an included file, and reload after a change",
    },
    Origin {
        name: "NGINX Plus (JWT and OpenID Connect)",
        names: "auth_jwt auth_jwt_* oidc_provider auth_oidc",
        advice: "use \"auth_request\" with a service that checks tokens",
    },
    Origin {
        name: "NGINX Plus (zone synchronisation)",
        names: "zone_sync zone_sync_*",
        advice: "the state of zones stays on each node; remove the lines",
    },
    Origin {
        name: "NGINX Plus (HLS and HDS)",
        names: "hls hls_* f4f f4f_buffer_size",
        advice: "let a packager produce the segments",
    },
    Origin {
        name: "NGINX Plus (session log)",
        names: "session_log session_log_format session_log_zone",
        advice: "use \"access_log\" with $request_id or a cookie",
    },
    Origin {
        name: "NGINX Plus (licence and reports)",
        names: "mgmt usage_report license_token",
        advice: "remove the lines; nowait needs no licence key and reports to nobody",
    },
    Origin {
        name: "NGINX Plus",
        names: "num_map internal_redirect app_protect_*",
        advice: "there is no substitute in nowait",
    },
    Origin {
        name: "TLS of former nginx releases",
        names: "ssl",
        advice: "use the parameter \"ssl\" of \"listen\"",
    },
    Origin {
        name: "former nginx releases",
        names: "spdy_* limit_zone satisfy_any optimize_server_names open_file_cache_retest \
                proxy_downstream_buffer proxy_upstream_buffer",
        advice: "current nginx does not have these either; remove the lines",
    },
];

/// Every origin with its names and the advice, for the reference.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    TABLE.iter().map(|origin| (origin.name, origin.names, origin.advice))
}

/// The origin of a name.
pub(crate) fn find(name: &[u8]) -> Option<&'static str> {
    // A pattern would let anything into the summary, which is not escaped.
    if !name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_') {
        return None;
    }
    let name = std::str::from_utf8(name).ok()?;
    let belongs =
        |origin: &&Origin| origin.names.split_ascii_whitespace().any(|known| fits(known, name));
    TABLE.iter().find(belongs).map(|origin| origin.name)
}

/// Whether the block of a directive is code of the Lua module rather than directives.
pub(crate) fn contains_lua(name: &[u8]) -> bool {
    name.ends_with(b"_by_lua_block")
}

/// The advice on the directives of an origin.
pub(crate) fn advice(origin: &str) -> Option<&'static str> {
    TABLE.iter().find(|known| known.name == origin).map(|known| known.advice)
}

fn fits(known: &str, name: &str) -> bool {
    match (known.strip_prefix('*'), known.strip_suffix('*')) {
        (Some(end), _) => name.len() > end.len() && name.ends_with(end),
        (_, Some(start)) => name.len() > start.len() && name.starts_with(start),
        (None, None) => known == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns() {
        for (name, origin) in [
            ("lua_package_path", Some("Lua module")),
            ("content_by_lua_block", Some("Lua module")),
            ("lua_", None),
            ("_by_lua", None),
            ("js_import", Some("njs module")),
            ("auth_jwt", Some("NGINX Plus (JWT and OpenID Connect)")),
            ("fair", Some("upstream fair module")),
            ("unfair", None),
            ("lua_\n", None),
            ("lua_a b", None),
            ("\u{fffd}", None),
        ] {
            assert_eq!(find(name.as_bytes()), origin, "{name}");
        }
        assert_eq!(find(b"\xff"), None);
    }

    #[test]
    fn each_name_and_each_origin_stands_once() {
        let mut names: Vec<_> =
            TABLE.iter().flat_map(|origin| origin.names.split_ascii_whitespace()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for (n, origin) in TABLE.iter().enumerate() {
            assert!(TABLE[n + 1..].iter().all(|other| other.name != origin.name));
            assert_eq!(advice(origin.name), Some(origin.advice));
        }
    }

    #[test]
    fn directives_of_nginx_are_in_the_other_table() {
        for entry in crate::unsupported::all() {
            let exact = TABLE.iter().find(|origin| {
                origin.names.split_ascii_whitespace().any(|known| known == entry.name)
            });
            assert!(exact.is_none(), "{}", entry.name);
        }
    }
}
