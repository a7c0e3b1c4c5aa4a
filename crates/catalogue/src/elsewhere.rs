//! Directives of popular third-party modules, of NGINX Plus, and of former nginx releases: their
//! origin, and their replacement.
//!
//! Called for names that neither the [`Registry`](nowait_conf::Registry) nor the table of
//! [nginx's directives](crate::unsupported) knows, for `load_module`, and by `nowait migrate`. Facts only; a
//! row of the registry always wins.

/// Directives of one origin.
#[derive(Debug)]
pub struct Origin {
    /// The module or product, as messages name it.
    pub name: &'static str,
    /// Names separated by blanks; `*` stands for any rest at the beginning or the end.
    names: &'static str,
    /// The shared objects that `load_module` names, without `.so`, separated by blanks.
    files: &'static str,
    /// Directives that respond to requests: without them, a location would send files.
    handlers: &'static str,
    /// Directives that admit or refuse clients: without them, every client is admitted.
    guards: &'static str,
    /// The directives protect clients or applications otherwise.
    pub protects: bool,
    /// Only the operator can decide what to do about the directives.
    pub decide: bool,
    /// The consequence of their absence.
    pub loss: &'static str,
    /// The replacement.
    pub advice: &'static str,
}

/// The effect of a directive on a request, if its absence must be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Responds to requests.
    Handler,
    /// Admits or refuses clients.
    Guard,
    /// Any other effect.
    Other,
}

impl Origin {
    const NONE: Origin = Origin {
        name: "",
        names: "",
        files: "",
        handlers: "",
        guards: "",
        protects: false,
        decide: false,
        loss: "",
        advice: "",
    };

    /// The role of one of its directives.
    pub fn role(&self, name: &[u8]) -> Role {
        let Ok(name) = std::str::from_utf8(name) else { return Role::Other };
        if lists(self.handlers, name) {
            Role::Handler
        } else if lists(self.guards, name) {
            Role::Guard
        } else {
            Role::Other
        }
    }
}

/// A module that is a shared object of its own in nginx's packages, or comes from a third party,
/// and is built in here.
#[derive(Debug)]
pub struct BuiltIn {
    /// The usual name.
    pub name: &'static str,
    /// The shared objects that `load_module` names, without `.so`, separated by blanks.
    files: &'static str,
    /// The modules of the reference, separated by blanks.
    modules: &'static str,
}

const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "ngx_brotli",
        files: "ngx_http_brotli_filter_module ngx_http_brotli_static_module",
        modules: "brotli brotli_static",
    },
    BuiltIn {
        name: "zstd-nginx-module",
        files: "ngx_http_zstd_filter_module ngx_http_zstd_static_module",
        modules: "zstd zstd_static",
    },
    BuiltIn {
        name: "headers-more-nginx-module",
        files: "ngx_http_headers_more_filter_module",
        modules: "more_headers",
    },
    BuiltIn {
        name: "ngx_http_geoip2_module",
        files: "ngx_http_geoip2_module ngx_stream_geoip2_module",
        modules: "geoip2 stream_geoip2",
    },
    BuiltIn { name: "nginx-dav-ext-module", files: "ngx_http_dav_ext_module", modules: "dav_ext" },
    BuiltIn {
        name: "nginx-upload-progress-module",
        files: "ngx_http_uploadprogress_module",
        modules: "upload_progress",
    },
    BuiltIn { name: "ngx_cache_purge", files: "ngx_http_cache_purge_module", modules: "" },
    BuiltIn { name: "ngx_http_acme_module", files: "ngx_http_acme_module", modules: "acme" },
    BuiltIn { name: "ngx_otel_module", files: "ngx_otel_module", modules: "otel" },
    BuiltIn {
        name: "ngx_http_image_filter_module",
        files: "ngx_http_image_filter_module",
        modules: "image_filter",
    },
    BuiltIn { name: "ngx_stream_module", files: "ngx_stream_module", modules: "" },
    BuiltIn { name: "NGINX Plus (health checks)", files: "", modules: "upstream_hc" },
];

/// The shared object that a `load_module` directive names.
#[derive(Clone, Copy, Debug)]
pub enum SharedObject {
    /// Built in.
    BuiltIn(&'static BuiltIn),
    /// The module, of a third party or of NGINX Plus, is missing.
    Foreign(&'static Origin),
    /// The module, of nginx, is missing: the name of a directive that shows why.
    Missing(&'static str),
    /// An unknown name.
    Unknown,
}

/// nginx's own modules that may be shared objects and are missing, each with one of its directives.
const MISSING: &[(&str, &str)] = &[
    ("ngx_mail_module", "mail"),
    ("ngx_http_perl_module", "perl"),
    ("ngx_http_xslt_filter_module", "xslt_stylesheet"),
    ("ngx_http_geoip_module", "geoip_country"),
    ("ngx_stream_geoip_module", "geoip_country"),
    ("ngx_google_perftools_module", "google_perftools_profiles"),
];

/// The module of a shared object: `modules/ngx_http_lua_module.so`, or the name alone.
pub fn shared_object(file: &str) -> SharedObject {
    let name = file.rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(".so").unwrap_or(name);
    if let Some(built_in) = BUILT_IN.iter().find(|known| lists(known.files, name)) {
        return SharedObject::BuiltIn(built_in);
    }
    if let Some(origin) = TABLE.iter().find(|known| lists(known.files, name)) {
        return SharedObject::Foreign(origin);
    }
    match MISSING.iter().find(|(known, _)| *known == name) {
        Some((_, directive)) => SharedObject::Missing(directive),
        None => SharedObject::Unknown,
    }
}

/// The module outside of nginx that a module of the reference stands for.
pub fn built_in(module: &str) -> Option<&'static BuiltIn> {
    BUILT_IN.iter().find(|known| lists(known.modules, module))
}

const TABLE: &[Origin] = &[
    Origin {
        name: "Lua module",
        names: "lua_* *_by_lua *_by_lua_block *_by_lua_file",
        files: "ngx_http_lua_module ngx_stream_lua_module ngx_meta_lua_module ndk_http_module",
        handlers: "content_by_lua content_by_lua_*",
        guards: "access_by_lua access_by_lua_* rewrite_by_lua rewrite_by_lua_* \
                 server_rewrite_by_lua_* preread_by_lua preread_by_lua_*",
        loss: "the code does not run: pages, access rules and changes of requests and responses that it makes are gone",
        advice: "there is no scripting: use \"map\", \"auth_request\" or \"sub_filter\", or pass \
                 such requests to an application (\"proxy_pass\")",
        ..Origin::NONE
    },
    Origin {
        name: "njs module",
        names: "js_*",
        files: "ngx_http_js_module ngx_stream_js_module",
        handlers: "js_content",
        guards: "js_access js_preread",
        loss: "the code does not run: pages, variables and changes of responses that it makes are gone",
        advice: "there is no scripting: use \"map\", \"auth_request\" or \"sub_filter\", or pass \
                 such requests to an application (\"proxy_pass\")",
        ..Origin::NONE
    },
    Origin {
        name: "ngx_cache_purge module",
        names: "cache_purge_response_type cache_purge_legacy_status",
        loss: "the form of the answer to purges is fixed",
        advice: "remove the line: \"proxy_cache_purge\" and its relatives answer 200 with a page, or 404",
        ..Origin::NONE
    },
    Origin {
        name: "VTS module",
        names: "vhost_traffic_status* stream_server_traffic_status*",
        files: "ngx_http_vhost_traffic_status_module ngx_http_stream_server_traffic_status_module ngx_stream_server_traffic_status_module",
        handlers: "vhost_traffic_status_display stream_server_traffic_status_display",
        loss: "filters, limits and buckets are gone; the page and its counters per server run",
        advice: "use \"status_zone\" in locations, \"limit_req\" and \"limit_conn\", and \"metrics\" for histograms",
        ..Origin::NONE
    },
    Origin {
        name: "upstream check module",
        names: "check check_http_send check_http_expect_alive check_keepalive_requests \
                check_status check_shm_size check_fastcgi_param",
        files: "ngx_http_upstream_check_module",
        handlers: "check_status",
        loss: "servers are not probed; failures of requests alone take them out of use",
        advice: "use \"health_check\" and \"match\" in the location with \"proxy_pass\"",
        ..Origin::NONE
    },
    Origin {
        name: "upstream fair module",
        names: "fair upstream_fair_shm_size",
        files: "ngx_http_upstream_fair_module",
        loss: "servers are used in turn",
        advice: "use \"least_conn\", \"least_time\" or \"random two least_time=header\"",
        ..Origin::NONE
    },
    Origin {
        name: "substitutions module",
        names: "subs_filter subs_filter_types subs_filter_bypass",
        files: "ngx_http_subs_filter_module",
        loss: "responses are not rewritten",
        advice: "use \"sub_filter\" with \"sub_filter_once off\" for fixed strings",
        ..Origin::NONE
    },
    Origin {
        name: "replace-filter module",
        names: "replace_filter replace_filter_*",
        files: "ngx_http_replace_filter_module",
        loss: "responses are not rewritten",
        advice: "use \"sub_filter\" for fixed strings",
        ..Origin::NONE
    },
    Origin {
        name: "echo module",
        names: "echo echo_*",
        files: "ngx_http_echo_module",
        handlers: "echo echo_duplicate echo_exec echo_location echo_location_async echo_subrequest echo_subrequest_async echo_read_request_body",
        loss: "texts are not sent, and subrequests not made",
        advice: "use \"return 200 TEXT\"",
        ..Origin::NONE
    },
    Origin {
        name: "fancyindex module",
        names: "fancyindex fancyindex_*",
        files: "ngx_http_fancyindex_module",
        loss: "listings have nowait's own look",
        advice: "use \"autoindex\" with \"autoindex_format page\", which can be sorted; formats \"xml\" and \"json\" \
                 are for a page of your own",
        ..Origin::NONE
    },
    Origin {
        name: "ModSecurity module",
        names: "modsecurity modsecurity_*",
        files: "ngx_http_modsecurity_module",
        protects: true,
        loss: "requests reach applications unfiltered",
        advice: "run the firewall in a proxy in front of nowait; removing the lines removes its \
                 protection",
        ..Origin::NONE
    },
    Origin {
        name: "NAXSI module",
        names: "SecRulesEnabled SecRulesDisabled LearningMode DeniedUrl CheckRule BasicRule \
                MainRule LibInjectionSql LibInjectionXss",
        files: "ngx_http_naxsi_module",
        protects: true,
        loss: "requests reach applications unfiltered",
        advice: "run the firewall in a proxy in front of nowait; removing the lines removes its \
                 protection",
        ..Origin::NONE
    },
    Origin {
        name: "testcookie module",
        names: "testcookie testcookie_*",
        files: "ngx_http_testcookie_access_module",
        protects: true,
        loss: "floods of automated requests are not held back",
        advice: "use \"limit_req\" and \"limit_conn\" against floods",
        ..Origin::NONE
    },
    Origin {
        name: "PageSpeed module",
        names: "pagespeed",
        files: "ngx_pagespeed",
        loss: "pages are sent as they are",
        advice: "optimise pages when they are built; the module is no longer maintained",
        ..Origin::NONE
    },
    Origin {
        name: "RTMP module",
        names: "rtmp rtmp_*",
        files: "ngx_rtmp_module",
        loss: "streams cannot be published or played over RTMP",
        advice: "run an RTMP server, and put nowait in front of its HLS or DASH files",
        ..Origin::NONE
    },
    Origin {
        name: "Kaltura's modules",
        names: "secure_token secure_token_* akamai_token_validate akamai_token_validate_* parallel parallel_*",
        files: "ngx_http_secure_token_filter_module ngx_http_akamai_token_validate_module \
                ngx_http_parallel_module",
        guards: "akamai_token_validate",
        protects: true,
        loss: "tokens are neither made nor checked, and files are fetched by one request",
        advice: "check tokens by \"secure_link\" or \"auth_request\"; fetch parts by \"slice\"",
        ..Origin::NONE
    },
    Origin {
        name: "VOD module",
        names: "vod vod_*",
        files: "ngx_http_vod_module",
        handlers: "vod",
        loss: "video is not packaged on the fly",
        advice: "let a packager produce the segments, and cache them with \"proxy_cache\"",
        ..Origin::NONE
    },
    Origin {
        name: "push stream module",
        names: "push_stream_*",
        files: "ngx_http_push_stream_module",
        handlers: "push_stream_publisher push_stream_subscriber push_stream_channels_statistics push_stream_websocket",
        loss: "events are neither accepted nor delivered",
        advice: "pass such requests to a server for events (\"proxy_pass\" with \
                 \"proxy_buffering off\")",
        ..Origin::NONE
    },
    Origin {
        name: "Nchan module",
        names: "nchan_*",
        files: "ngx_nchan_module",
        handlers: "nchan_publisher nchan_subscriber nchan_pubsub nchan_stub_status nchan_group_location",
        loss: "events are neither accepted nor delivered",
        advice: "pass such requests to a server for events (\"proxy_pass\" with \
                 \"proxy_buffering off\")",
        ..Origin::NONE
    },
    Origin {
        name: "upload module",
        names: "upload_pass upload_store upload_store_access upload_set_form_field \
                upload_aggregate_form_field upload_pass_form_field upload_cleanup \
                upload_resumable upload_state_store upload_limit_rate upload_max_file_size \
                upload_max_output_body_len upload_buffer_size upload_pass_args \
                upload_tame_arrays",
        files: "ngx_http_upload_module",
        handlers: "upload_pass",
        loss: "uploads are not taken out of requests",
        advice: "pass uploads to the application; \"client_body_in_file_only\" hands it the file",
        ..Origin::NONE
    },
    Origin {
        name: "LDAP authentication module",
        names: "auth_ldap auth_ldap_* ldap_server",
        files: "ngx_http_auth_ldap_module",
        guards: "auth_ldap",
        loss: "users are not authenticated",
        advice: "use \"auth_request\" with a service that asks the directory",
        ..Origin::NONE
    },
    Origin {
        name: "PAM authentication module",
        names: "auth_pam auth_pam_*",
        files: "ngx_http_auth_pam_module",
        guards: "auth_pam",
        loss: "users are not authenticated",
        advice: "use \"auth_request\" with a service that asks PAM",
        ..Origin::NONE
    },
    Origin {
        name: "SPNEGO module",
        names: "auth_gss auth_gss_*",
        files: "ngx_http_auth_spnego_module",
        guards: "auth_gss",
        loss: "users are not authenticated",
        advice: "use \"auth_request\" with a service that speaks Kerberos",
        ..Origin::NONE
    },
    Origin {
        name: "digest authentication module",
        names: "auth_digest auth_digest_*",
        files: "ngx_http_auth_digest_module",
        guards: "auth_digest",
        loss: "users are not authenticated",
        advice: "use \"auth_basic\" over TLS",
        ..Origin::NONE
    },
    Origin {
        name: "Redis, memcached and SQL modules",
        names: "redis_pass redis_* redis2_* memc_* srcache_* drizzle_* postgres_* rds_json \
                rds_json_*",
        files: "ngx_http_redis_module ngx_http_redis2_module ngx_http_memc_module ngx_http_srcache_filter_module ngx_http_drizzle_module ngx_postgres_module ngx_http_rds_json_filter_module",
        handlers: "redis_pass redis2_pass memc_pass drizzle_pass postgres_pass",
        loss: "data is not read from these servers",
        advice: "pass such requests to an application (\"proxy_pass\"), and cache its responses \
                 with \"proxy_cache\"",
        ..Origin::NONE
    },
    Origin {
        name: "OpenTracing and Datadog modules, and the older one for OpenTelemetry",
        names: "opentracing opentracing_* opentelemetry opentelemetry_* datadog_*",
        files: "otel_ngx_module ngx_http_opentracing_module ngx_http_datadog_module ngx_http_opentelemetry_module",
        loss: "no spans are sent, and trace contexts are passed on unchanged",
        advice: "use \"otel_exporter\", \"otel_trace\" and \"otel_trace_context\"",
        ..Origin::NONE
    },
    Origin {
        name: "connect module",
        names: "proxy_connect proxy_connect_*",
        files: "ngx_http_proxy_connect_module",
        loss: "CONNECT requests are refused",
        advice: "use \"tunnel_pass\"",
        ..Origin::NONE
    },
    Origin {
        name: "Phusion Passenger",
        names: "passenger_*",
        files: "ngx_http_passenger_module",
        handlers: "passenger_enabled",
        loss: "applications are not started",
        advice: "run Passenger Standalone, and pass requests to it (\"proxy_pass\")",
        ..Origin::NONE
    },
    Origin {
        name: "dynamic upstream modules",
        names: "upsync upsync_* dyups_* check_upstream_* dynamic_upstream",
        files: "ngx_http_upsync_module ngx_stream_upsync_module ngx_http_dyups_module",
        handlers: "dyups_interface",
        loss: "lists of servers change only by a reload or by DNS",
        advice: "use \"server ... resolve\" or \"service=\" to follow DNS, or reload: connections \
                 and caches survive it",
        ..Origin::NONE
    },
    Origin {
        name: "cookie flag module",
        names: "set_cookie_flag",
        files: "ngx_http_cookie_flag_filter_module",
        protects: true,
        loss: "cookies lack the attributes that protect them",
        advice: "use \"proxy_cookie_flags\"",
        ..Origin::NONE
    },
    Origin {
        name: "security headers module",
        names: "security_headers security_headers_* hide_server_tokens",
        files: "ngx_http_security_headers_module",
        protects: true,
        loss: "responses lack the fields",
        advice: "use \"add_header ... always\" and \"server_tokens off\"",
        ..Origin::NONE
    },
    Origin {
        name: "form-input and related modules",
        names: "set_form_input set_form_input_multi set_iconv iconv_* encrypted_session_* \
                array_* eval eval_*",
        files: "ngx_http_form_input_module ngx_http_iconv_module ngx_http_encrypted_session_module ngx_http_array_var_module ngx_http_eval_module",
        loss: "the variables are not set; using one is an error",
        advice: "let the application do this",
        ..Origin::NONE
    },
    Origin {
        name: "Tengine",
        names: "concat concat_* trim trim_* sysguard sysguard_* req_status req_status_* \
                jemalloc tfs_* user_agent footer",
        files: "ngx_http_concat_module ngx_http_trim_filter_module ngx_http_sysguard_module ngx_http_reqstat_module ngx_http_footer_filter_module ngx_http_user_agent_module",
        loss: "files are not joined, pages not shortened, and load does not limit requests",
        advice: "remove the lines",
        ..Origin::NONE
    },
    Origin {
        name: "Coraza module",
        names: "coraza coraza_rules coraza_rules_file coraza_transaction_id",
        files: "ngx_http_coraza_module",
        protects: true,
        loss: "requests reach applications unfiltered",
        advice: "run the firewall in a proxy in front of nowait; removing the lines removes its \
                 protection",
        ..Origin::NONE
    },
    Origin {
        name: "WAF modules",
        names: "waf waf_*",
        files: "ngx_http_waf_module",
        protects: true,
        loss: "requests reach applications unfiltered",
        advice: "run the firewall in a proxy in front of nowait; removing the lines removes its \
                 protection",
        ..Origin::NONE
    },
    Origin {
        name: "Shibboleth module",
        names: "shib_request shib_request_*",
        files: "ngx_http_shibboleth_module",
        guards: "shib_request",
        loss: "users are not authenticated",
        advice: "use \"auth_request\" and \"auth_request_set\" with the Shibboleth authorizer behind \
                 \"fastcgi_pass\"",
        ..Origin::NONE
    },
    Origin {
        name: "HMAC secure link module",
        names: "secure_link_hmac secure_link_hmac_*",
        files: "ngx_http_hmac_secure_link_module",
        protects: true,
        loss: "signatures of links are not checked",
        advice: "use \"secure_link\" and \"secure_link_md5\", or \"auth_request\" with a service \
                 that checks them",
        ..Origin::NONE
    },
    Origin {
        name: "TOTP authentication module",
        names: "auth_totp_*",
        files: "ngx_http_auth_totp_module",
        guards: "auth_totp_realm",
        loss: "users are not authenticated",
        advice: "use \"auth_request\" with a service that checks the codes",
        ..Origin::NONE
    },
    Origin {
        name: "dynamic TLS records (patch)",
        names: "ssl_dyn_rec_*",
        loss: "records have the size of what is sent",
        advice: "remove the lines",
        ..Origin::NONE
    },
    Origin {
        name: "traffic rate module",
        names: "limit_traffic_rate limit_traffic_rate_zone",
        files: "ngx_http_limit_traffic_rate_filter_module",
        loss: "bandwidth is not limited per key",
        advice: "use \"limit_rate\", which limits each response, and \"limit_conn\"",
        ..Origin::NONE
    },
    Origin {
        name: "metrics modules",
        names: "statsd_* graphite_* influxdb kafka_* http_accounting*",
        files: "ngx_http_statsd_module ngx_http_graphite_module ngx_http_influxdb_module",
        loss: "nothing is sent to these servers",
        advice: "use \"metrics\" for Prometheus, or \"access_log\" to a syslog server",
        ..Origin::NONE
    },
    Origin {
        name: "slow file system cache module",
        names: "slowfs_*",
        files: "ngx_http_slowfs_module",
        loss: "files are not copied to a faster disk",
        advice: "nowait waits for no disk; a \"proxy_cache\" on the faster disk does the same",
        ..Origin::NONE
    },
    Origin {
        name: "length-hiding module",
        names: "length_hiding length_hiding_max",
        files: "ngx_http_length_hiding_filter_module",
        protects: true,
        loss: "the length of compressed pages is visible (BREACH)",
        advice: "switch compression off for pages that contain secrets",
        ..Origin::NONE
    },
    Origin {
        name: "WebAssembly module",
        names: "wasm proxy_wasm proxy_wasm_* wasm_*",
        files: "ngx_wasmx_module ngx_wasm_module",
        protects: true,
        loss: "the code does not run",
        advice: "pass such requests to an application (\"proxy_pass\")",
        ..Origin::NONE
    },
    Origin {
        name: "untar, zip and similar modules",
        names: "zip untar untar_* markdown_filter unbrotli unzstd ipscrub_* sorted_querystring_*",
        files: "ngx_http_zip_module ngx_http_untar_module ngx_ipscrub_module",
        loss: "responses are sent as they are",
        advice: "let the application do this",
        ..Origin::NONE
    },
    Origin {
        name: "NGINX Plus (API)",
        names: "status_format upstream_conf status",
        handlers: "status upstream_conf",
        loss: "its status page is gone, and nothing changes the configuration at run time",
        advice: "use \"api\", which has replaced it, with \"write=on\" to change servers",
        ..Origin::NONE
    },
    Origin {
        name: "NGINX Plus (JWT and OpenID Connect)",
        names: "auth_jwt auth_jwt_* oidc_provider auth_oidc",
        files: "ngx_http_auth_jwt_module",
        guards: "auth_jwt auth_oidc",
        loss: "users are not authenticated",
        advice: "use \"auth_request\" with a service that checks tokens",
        ..Origin::NONE
    },
    Origin {
        name: "NGINX Plus (zone synchronisation)",
        names: "zone_sync zone_sync_*",
        loss: "limits and sessions are counted on each machine alone",
        advice: "the state of zones stays on each node; remove the lines",
        ..Origin::NONE
    },
    Origin {
        name: "NGINX Plus (HLS and HDS)",
        names: "hls hls_* f4f f4f_buffer_size",
        files: "ngx_http_hls_module ngx_http_f4f_module",
        handlers: "hls f4f",
        loss: "video is not packaged on the fly",
        advice: "let a packager produce the segments",
        ..Origin::NONE
    },
    Origin {
        name: "NGINX Plus (session log)",
        names: "session_log session_log_format session_log_zone",
        files: "ngx_http_session_log_module",
        loss: "sessions are not logged",
        advice: "use \"access_log\" with $request_id or a cookie",
        ..Origin::NONE
    },
    Origin {
        name: "NGINX Plus (licence and reports)",
        names: "mgmt usage_report license_token",
        loss: "nothing is reported",
        advice: "remove the lines; nowait needs no licence key and sends no reports",
        ..Origin::NONE
    },
    Origin {
        name: "NGINX Plus",
        names: "internal_redirect app_protect_*",
        files: "ngx_http_app_protect_module ngx_http_app_protect_dos_module",
        protects: true,
        loss: "the feature is gone",
        advice: "there is no substitute in nowait",
        ..Origin::NONE
    },
    Origin {
        name: "former nginx releases",
        names: "spdy_* limit_zone satisfy_any optimize_server_names open_file_cache_retest \
                proxy_downstream_buffer proxy_upstream_buffer",
        loss: "nothing",
        advice: "current nginx does not have these either; remove the lines",
        ..Origin::NONE
    },
];

/// Every origin with its names and the advice, for the reference.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    TABLE.iter().map(|origin| (origin.name, origin.names, origin.advice))
}

/// The origin of a name.
pub fn find(name: &[u8]) -> Option<&'static Origin> {
    // A pattern could match any text, and the summary is not escaped.
    if !name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_') {
        return None;
    }
    let name = std::str::from_utf8(name).ok()?;
    TABLE.iter().find(|origin| lists(origin.names, name))
}

/// Whether a name matches one of several names or patterns, separated by blanks.
fn lists(names: &str, name: &str) -> bool {
    names.split_ascii_whitespace().any(|known| fits(known, name))
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
            assert_eq!(find(name.as_bytes()).map(|known| known.name), origin, "{name}");
        }
        assert!(find(b"\xff").is_none());
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
        }
    }

    #[test]
    fn roles_and_shared_objects() {
        let role = |name: &str| find(name.as_bytes()).unwrap().role(name.as_bytes());
        assert_eq!(role("content_by_lua_block"), Role::Handler);
        assert_eq!(role("access_by_lua_file"), Role::Guard);
        assert_eq!(role("log_by_lua_block"), Role::Other);
        assert_eq!(role("auth_ldap"), Role::Guard);
        assert_eq!(role("auth_ldap_servers"), Role::Other);
        for origin in TABLE {
            for name in [origin.handlers, origin.guards].join(" ").split_ascii_whitespace() {
                assert!(lists(origin.names, &name.replace('*', "block")), "{name}");
            }
            assert!(!origin.loss.is_empty() && !origin.advice.is_empty(), "{}", origin.name);
        }
        let kind = |file: &str| match shared_object(file) {
            SharedObject::BuiltIn(known) => known.name,
            SharedObject::Foreign(origin) => origin.name,
            SharedObject::Missing(directive) => directive,
            SharedObject::Unknown => "unknown",
        };
        for (file, expected) in [
            ("modules/ngx_http_brotli_filter_module.so", "ngx_brotli"),
            ("/usr/lib/nginx/modules/ngx_http_lua_module.so", "Lua module"),
            ("ngx_mail_module", "mail"),
            ("modules/ngx_http_x_module.so", "unknown"),
        ] {
            assert_eq!(kind(file), expected);
        }
        for (_, directive) in MISSING {
            assert!(crate::unsupported::all().any(|entry| entry.name == *directive));
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
