//! All directives of nginx 1.31 as data, with a reason for those that no table implements.
//!
//! A row of the [`Registry`] always wins over an entry here, so implementing a
//! directive needs no edit; [`stale`] lists the entries that have become superfluous. Facts only:
//! names, modules and contexts. Directives that nginx itself lacks are in
//! [`elsewhere`](crate::elsewhere).

use std::collections::HashMap;
use std::sync::OnceLock;

use nowait_conf::{Context, Registry};

/// A directive of nginx.
#[derive(Clone, Copy, Debug)]
pub struct Unsupported {
    pub name: &'static str,
    /// nginx's module.
    pub module: &'static str,
    pub contexts: Context,
    /// The reason for refusing it; completes `directive "x" is not supported by nowait: `.
    pub reason: &'static str,
}

const NOT_YET: &str = "not implemented yet";
const MODULES: &str = "there are no loadable modules";
const OUT_OF_SCOPE_MAIL: &str =
    "there is no mail proxy; keep nginx for it, or pass the connections on with \"stream\"";
const PERL: &str =
    "there is no embedded Perl; use \"map\", or pass such requests to an application";
const IMAGES: &str = "there is no image processing";
const XSLT: &str = "there is no XML transformation; let the application do it";
const GEOIP: &str = "the database format is discontinued; use \"geoip2\", \"geo\" or \"map\"";
const PERFTOOLS: &str = "use perf or another external profiler";
const NTLM: &str = "upstream connections are never bound to a client: proxy whole connections with \"stream\", or use \
     Kerberos or \"auth_basic\", which authenticate each request";
const DEGRADATION: &str = "it relies on sbrk(), which current systems do not use";

macro_rules! table {
    ($($module:literal, $reason:ident { $($($context:ident)|+ => $names:literal;)+ })*) => {
        const TABLE: &[Group] = &[$($(Group {
            module: $module,
            reason: $reason,
            contexts: Context::NONE$(.or(Context::$context))+,
            names: $names,
        },)+)*];
    };
}

/// Directives of one module with the same contexts, names separated by blanks.
struct Group {
    module: &'static str,
    reason: &'static str,
    contexts: Context,
    names: &'static str,
}

table! {
    "ngx_core_module", NOT_YET {
        MAIN =>
            "daemon master_process timer_resolution pid lock_file worker_processes debug_points \
             user worker_priority worker_cpu_affinity worker_rlimit_nofile worker_rlimit_core \
             worker_shutdown_timeout working_directory env";
    }
    "ngx_core_module", MODULES {
        MAIN => "load_module";
    }
    "ngx_errlog_module", NOT_YET {
        MAIN => "error_log";
    }
    "ngx_regex_module", NOT_YET {
        MAIN => "pcre_jit";
    }
    "ngx_thread_pool_module", NOT_YET {
        MAIN => "thread_pool";
    }
    "ngx_epoll_module", NOT_YET {
        EVENTS => "epoll_events worker_aio_requests";
    }
    "ngx_events_module", NOT_YET {
        MAIN => "events";
    }
    "ngx_event_core_module", NOT_YET {
        EVENTS =>
            "worker_connections use multi_accept accept_mutex accept_mutex_delay debug_connection";
    }
    "ngx_openssl_module", NOT_YET {
        MAIN => "ssl_engine";
    }
    "ngx_openssl_cache_module", NOT_YET {
        MAIN => "ssl_object_cache_inheritable";
    }
    "ngx_quic_bpf_module", NOT_YET {
        MAIN => "quic_bpf";
    }
    "ngx_http_core_module", NOT_YET {
        HTTP =>
            "variables_hash_max_size variables_hash_bucket_size server_names_hash_max_size \
             server_names_hash_bucket_size server";
        HTTP | SERVER =>
            "connection_pool_size request_pool_size client_header_timeout \
             client_header_buffer_size large_client_header_buffers max_headers \
             ignore_invalid_headers merge_slashes underscores_in_headers client_body_early_read";
        SERVER | LOCATION => "location";
        SERVER => "listen server_name";
        HTTP | SERVER | LOCATION =>
            "types_hash_max_size types_hash_bucket_size types default_type client_max_body_size \
             client_body_buffer_size client_body_timeout client_body_temp_path \
             client_body_in_file_only client_body_in_single_buffer sendfile_max_chunk \
             subrequest_output_buffer_size aio aio_write read_ahead directio directio_alignment \
             tcp_nopush tcp_nodelay send_timeout send_lowat postpone_output keepalive_time \
             keepalive_timeout keepalive_min_timeout keepalive_requests keepalive_disable satisfy \
             auth_delay lingering_close lingering_time lingering_timeout \
             reset_timedout_connection absolute_redirect server_name_in_redirect port_in_redirect \
             msie_padding msie_refresh log_not_found log_subrequest recursive_error_pages \
             server_tokens if_modified_since max_ranges chunked_transfer_encoding etag \
             early_hints error_log open_file_cache open_file_cache_valid open_file_cache_min_uses \
             open_file_cache_errors open_file_cache_events resolver resolver_timeout gzip_vary \
             gzip_http_version gzip_proxied gzip_disable disable_symlinks";
        HTTP | SERVER | LOCATION | LOCATION_IF =>
            "root sendfile limit_rate limit_rate_after error_page post_action";
        LOCATION => "alias limit_except internal";
    }
    "ngx_http_access_module", NOT_YET {
        HTTP | SERVER | LOCATION | LIMIT_EXCEPT => "allow deny";
    }
    "ngx_http_auth_basic_module", NOT_YET {
        HTTP | SERVER | LOCATION | LIMIT_EXCEPT => "auth_basic auth_basic_user_file";
    }
    "ngx_http_autoindex_module", NOT_YET {
        HTTP | SERVER | LOCATION =>
            "autoindex autoindex_format autoindex_localtime autoindex_exact_size";
    }
    "ngx_http_browser_module", NOT_YET {
        HTTP | SERVER | LOCATION =>
            "modern_browser ancient_browser modern_browser_value ancient_browser_value";
    }
    "ngx_http_charset_filter_module", NOT_YET {
        HTTP | SERVER | LOCATION | LOCATION_IF => "charset source_charset override_charset";
        HTTP | SERVER | LOCATION => "charset_types";
        HTTP => "charset_map";
    }
    "ngx_http_dav_module", NOT_YET {
        HTTP | SERVER | LOCATION =>
            "dav_methods create_full_put_path min_delete_depth dav_access";
    }
    "ngx_http_degradation_module", DEGRADATION {
        HTTP => "degradation";
        HTTP | SERVER | LOCATION => "degrade";
    }
    "ngx_http_empty_gif_module", NOT_YET {
        LOCATION => "empty_gif";
    }
    "ngx_http_fastcgi_module", NOT_YET {
        LOCATION | LOCATION_IF => "fastcgi_pass";
        HTTP | SERVER | LOCATION =>
            "fastcgi_index fastcgi_split_path_info fastcgi_store fastcgi_store_access \
             fastcgi_buffering fastcgi_request_buffering fastcgi_ignore_client_abort fastcgi_bind \
             fastcgi_socket_keepalive fastcgi_socket_rcvbuf fastcgi_socket_sndbuf \
             fastcgi_connect_timeout fastcgi_send_timeout fastcgi_send_lowat fastcgi_buffer_size \
             fastcgi_pass_request_headers fastcgi_pass_request_body fastcgi_intercept_errors \
             fastcgi_read_timeout fastcgi_buffers fastcgi_busy_buffers_size fastcgi_force_ranges \
             fastcgi_limit_rate fastcgi_cache fastcgi_cache_key fastcgi_cache_bypass \
             fastcgi_no_cache fastcgi_cache_valid fastcgi_cache_min_uses \
             fastcgi_cache_max_range_offset fastcgi_cache_use_stale fastcgi_cache_methods \
             fastcgi_cache_lock fastcgi_cache_lock_timeout fastcgi_cache_lock_age \
             fastcgi_cache_revalidate fastcgi_cache_background_update fastcgi_temp_path \
             fastcgi_max_temp_file_size fastcgi_temp_file_write_size fastcgi_next_upstream \
             fastcgi_next_upstream_tries fastcgi_next_upstream_timeout fastcgi_param \
             fastcgi_pass_header fastcgi_hide_header fastcgi_ignore_headers fastcgi_catch_stderr \
             fastcgi_keep_conn";
        HTTP => "fastcgi_cache_path";
    }
    "ngx_http_flv_module", NOT_YET {
        LOCATION => "flv";
    }
    "ngx_http_geo_module", NOT_YET {
        HTTP => "geo";
    }
    "ngx_http_geoip_module", GEOIP {
        HTTP => "geoip_country geoip_org geoip_city geoip_proxy geoip_proxy_recursive";
    }
    "ngx_http_grpc_module", NOT_YET {
        LOCATION | LOCATION_IF => "grpc_pass";
        HTTP | SERVER | LOCATION =>
            "grpc_bind grpc_socket_keepalive grpc_socket_rcvbuf grpc_socket_sndbuf \
             grpc_connect_timeout grpc_send_timeout grpc_intercept_errors grpc_buffer_size \
             grpc_read_timeout grpc_next_upstream grpc_next_upstream_tries \
             grpc_next_upstream_timeout grpc_set_header grpc_pass_header grpc_hide_header \
             grpc_ignore_headers grpc_ssl_session_reuse grpc_ssl_protocols grpc_ssl_ciphers \
             grpc_ssl_name grpc_ssl_server_name grpc_ssl_verify grpc_ssl_verify_depth \
             grpc_ssl_trusted_certificate grpc_ssl_crl grpc_ssl_certificate \
             grpc_ssl_certificate_key grpc_ssl_certificate_cache grpc_ssl_password_file \
             grpc_ssl_conf_command";
    }
    "ngx_http_gunzip_filter_module", NOT_YET {
        HTTP | SERVER | LOCATION => "gunzip gunzip_buffers";
    }
    "ngx_http_gzip_filter_module", NOT_YET {
        HTTP | SERVER | LOCATION | LOCATION_IF => "gzip";
        HTTP | SERVER | LOCATION =>
            "gzip_buffers gzip_types gzip_comp_level gzip_window gzip_hash postpone_gzipping \
             gzip_no_buffer gzip_min_length";
    }
    "ngx_http_gzip_static_module", NOT_YET {
        HTTP | SERVER | LOCATION => "gzip_static";
    }
    "ngx_http_headers_filter_module", NOT_YET {
        HTTP | SERVER | LOCATION | LOCATION_IF =>
            "expires add_header add_trailer add_header_inherit add_trailer_inherit";
    }
    "ngx_http_image_filter_module", IMAGES {
        LOCATION => "image_filter";
        HTTP | SERVER | LOCATION =>
            "image_filter_jpeg_quality image_filter_webp_quality image_filter_sharpen \
             image_filter_transparency image_filter_interlace image_filter_buffer";
    }
    "ngx_http_index_module", NOT_YET {
        HTTP | SERVER | LOCATION => "index";
    }
    "ngx_http_limit_conn_module", NOT_YET {
        HTTP => "limit_conn_zone";
        HTTP | SERVER | LOCATION =>
            "limit_conn limit_conn_log_level limit_conn_status limit_conn_dry_run";
    }
    "ngx_http_limit_req_module", NOT_YET {
        HTTP => "limit_req_zone";
        HTTP | SERVER | LOCATION =>
            "limit_req limit_req_log_level limit_req_status limit_req_dry_run";
    }
    "ngx_http_log_module", NOT_YET {
        HTTP => "log_format";
        HTTP | SERVER | LOCATION | LOCATION_IF | LIMIT_EXCEPT => "access_log";
        HTTP | SERVER | LOCATION => "open_log_file_cache";
    }
    "ngx_http_map_module", NOT_YET {
        HTTP => "map map_hash_max_size map_hash_bucket_size";
    }
    "ngx_http_memcached_module", NOT_YET {
        LOCATION | LOCATION_IF => "memcached_pass";
        HTTP | SERVER | LOCATION =>
            "memcached_bind memcached_socket_keepalive memcached_connect_timeout \
             memcached_send_timeout memcached_buffer_size memcached_read_timeout \
             memcached_next_upstream memcached_next_upstream_tries \
             memcached_next_upstream_timeout memcached_gzip_flag";
    }
    "ngx_http_mp4_module", NOT_YET {
        LOCATION => "mp4";
        HTTP | SERVER | LOCATION => "mp4_buffer_size mp4_max_buffer_size mp4_start_key_frame";
    }
    "ngx_http_proxy_module", NOT_YET {
        LOCATION | LOCATION_IF | LIMIT_EXCEPT => "proxy_pass";
        HTTP | SERVER | LOCATION =>
            "proxy_redirect proxy_cookie_domain proxy_cookie_path proxy_cookie_flags proxy_store \
             proxy_store_access proxy_buffering proxy_request_buffering proxy_ignore_client_abort \
             proxy_bind proxy_socket_keepalive proxy_socket_rcvbuf proxy_socket_sndbuf \
             proxy_connect_timeout proxy_send_timeout proxy_send_lowat proxy_intercept_errors \
             proxy_set_header proxy_headers_hash_max_size proxy_headers_hash_bucket_size \
             proxy_set_body proxy_method proxy_pass_request_headers proxy_pass_request_body \
             proxy_pass_trailers proxy_buffer_size proxy_read_timeout proxy_buffers \
             proxy_busy_buffers_size proxy_force_ranges proxy_limit_rate \
             proxy_temp_path proxy_max_temp_file_size proxy_temp_file_write_size \
             proxy_next_upstream proxy_next_upstream_tries proxy_next_upstream_timeout \
             proxy_pass_header proxy_hide_header proxy_ignore_headers proxy_http_version \
             proxy_ssl_session_reuse proxy_ssl_protocols proxy_ssl_ciphers proxy_ssl_name \
             proxy_ssl_server_name proxy_ssl_verify proxy_ssl_verify_depth \
             proxy_ssl_trusted_certificate proxy_ssl_crl proxy_ssl_certificate \
             proxy_ssl_certificate_key proxy_ssl_certificate_cache proxy_ssl_password_file \
             proxy_ssl_conf_command";
    }
    "ngx_http_random_index_module", NOT_YET {
        LOCATION => "random_index";
    }
    "ngx_http_realip_module", NOT_YET {
        HTTP | SERVER | LOCATION => "set_real_ip_from real_ip_header real_ip_recursive";
    }
    "ngx_http_rewrite_module", NOT_YET {
        SERVER | LOCATION | SERVER_IF | LOCATION_IF => "rewrite return break set";
        SERVER | LOCATION => "if";
        HTTP | SERVER | LOCATION | SERVER_IF | LOCATION_IF =>
            "rewrite_log uninitialized_variable_warn";
    }
    "ngx_http_scgi_module", NOT_YET {
        LOCATION | LOCATION_IF => "scgi_pass";
        HTTP | SERVER | LOCATION =>
            "scgi_store scgi_store_access scgi_buffering scgi_request_buffering \
             scgi_ignore_client_abort scgi_bind scgi_socket_keepalive scgi_socket_rcvbuf \
             scgi_socket_sndbuf scgi_connect_timeout scgi_send_timeout scgi_buffer_size \
             scgi_pass_request_headers scgi_pass_request_body scgi_intercept_errors \
             scgi_read_timeout scgi_buffers scgi_busy_buffers_size scgi_force_ranges \
             scgi_limit_rate scgi_cache scgi_cache_key scgi_cache_bypass scgi_no_cache \
             scgi_cache_valid scgi_cache_min_uses scgi_cache_max_range_offset \
             scgi_cache_use_stale scgi_cache_methods scgi_cache_lock scgi_cache_lock_timeout \
             scgi_cache_lock_age scgi_cache_revalidate scgi_cache_background_update \
             scgi_temp_path scgi_max_temp_file_size scgi_temp_file_write_size scgi_next_upstream \
             scgi_next_upstream_tries scgi_next_upstream_timeout scgi_param scgi_pass_header \
             scgi_hide_header scgi_ignore_headers";
        HTTP => "scgi_cache_path";
    }
    "ngx_http_split_clients_module", NOT_YET {
        HTTP => "split_clients";
    }
    "ngx_http_ssl_module", NOT_YET {
        HTTP | SERVER =>
            "ssl_certificate ssl_certificate_key ssl_certificate_cache ssl_ech_file \
             ssl_password_file ssl_certificate_compression ssl_dhparam ssl_ecdh_curve \
             ssl_protocols ssl_ciphers ssl_buffer_size ssl_verify_client ssl_verify_depth \
             ssl_client_certificate ssl_trusted_certificate ssl_prefer_server_ciphers \
             ssl_session_cache ssl_session_tickets ssl_session_ticket_key ssl_session_timeout \
             ssl_crl ssl_ocsp ssl_ocsp_responder ssl_ocsp_cache ssl_stapling ssl_stapling_file \
             ssl_stapling_responder ssl_stapling_verify ssl_early_data ssl_conf_command \
             ssl_reject_handshake";
    }
    "ngx_http_stub_status_module", NOT_YET {
        SERVER | LOCATION => "stub_status";
    }
    "ngx_http_try_files_module", NOT_YET {
        SERVER | LOCATION => "try_files";
    }
    "ngx_http_tunnel_module", NOT_YET {
        SERVER | LOCATION | LOCATION_IF => "tunnel_pass";
        HTTP | SERVER | LOCATION =>
            "tunnel_bind tunnel_socket_keepalive tunnel_socket_rcvbuf tunnel_socket_sndbuf \
             tunnel_connect_timeout tunnel_send_timeout tunnel_send_lowat tunnel_buffer_size \
             tunnel_read_timeout tunnel_next_upstream tunnel_next_upstream_tries \
             tunnel_next_upstream_timeout";
    }
    "ngx_http_uwsgi_module", NOT_YET {
        LOCATION | LOCATION_IF => "uwsgi_pass";
        HTTP | SERVER | LOCATION =>
            "uwsgi_modifier1 uwsgi_modifier2 uwsgi_store uwsgi_store_access uwsgi_buffering \
             uwsgi_request_buffering uwsgi_ignore_client_abort uwsgi_bind uwsgi_socket_keepalive \
             uwsgi_socket_rcvbuf uwsgi_socket_sndbuf uwsgi_connect_timeout uwsgi_send_timeout \
             uwsgi_buffer_size uwsgi_pass_request_headers uwsgi_pass_request_body \
             uwsgi_intercept_errors uwsgi_read_timeout uwsgi_buffers uwsgi_busy_buffers_size \
             uwsgi_force_ranges uwsgi_limit_rate uwsgi_cache uwsgi_cache_key uwsgi_cache_bypass \
             uwsgi_no_cache uwsgi_cache_valid uwsgi_cache_min_uses uwsgi_cache_max_range_offset \
             uwsgi_cache_use_stale uwsgi_cache_methods uwsgi_cache_lock uwsgi_cache_lock_timeout \
             uwsgi_cache_lock_age uwsgi_cache_revalidate uwsgi_cache_background_update \
             uwsgi_temp_path uwsgi_max_temp_file_size uwsgi_temp_file_write_size \
             uwsgi_next_upstream uwsgi_next_upstream_tries uwsgi_next_upstream_timeout \
             uwsgi_param uwsgi_string uwsgi_pass_header uwsgi_hide_header uwsgi_ignore_headers \
             uwsgi_ssl_session_reuse uwsgi_ssl_protocols uwsgi_ssl_ciphers uwsgi_ssl_name \
             uwsgi_ssl_server_name uwsgi_ssl_verify uwsgi_ssl_verify_depth \
             uwsgi_ssl_trusted_certificate uwsgi_ssl_crl uwsgi_ssl_certificate \
             uwsgi_ssl_certificate_key uwsgi_ssl_certificate_cache uwsgi_ssl_password_file \
             uwsgi_ssl_conf_command";
        HTTP => "uwsgi_cache_path";
    }
    "ngx_http_xslt_filter_module", XSLT {
        HTTP | SERVER | LOCATION =>
            "xml_entities xml_external_entities xslt_param xslt_string_param xslt_types \
             xslt_last_modified";
        LOCATION => "xslt_stylesheet";
    }
    "ngx_http_perl_module", PERL {
        HTTP => "perl_modules perl_require perl_set";
        LOCATION | LIMIT_EXCEPT => "perl";
    }
    "ngx_http_module", NOT_YET {
        MAIN => "http";
    }
    "ngx_http_copy_filter_module", NOT_YET {
        HTTP | SERVER | LOCATION => "output_buffers";
    }
    "ngx_http_upstream_module", NTLM {
        UPSTREAM => "ntlm";
    }
    "ngx_http_v2_module", NOT_YET {
        HTTP | SERVER =>
            "http2 http2_pool_size http2_max_concurrent_streams http2_max_concurrent_pushes \
             http2_max_requests http2_max_field_size http2_max_header_size \
             http2_body_preread_size http2_streams_index_size http2_recv_timeout \
             http2_idle_timeout";
        HTTP => "http2_recv_buffer_size";
        HTTP | SERVER | LOCATION => "http2_chunk_size http2_push_preload http2_push";
    }
    "ngx_http_v3_module", NOT_YET {
        HTTP | SERVER =>
            "http3 http3_hq http3_max_concurrent_streams http3_stream_buffer_size quic_retry \
             quic_gso quic_host_key quic_active_connection_id_limit";
    }
    "ngx_stream_access_module", NOT_YET {
        STREAM | STREAM_SERVER => "allow deny";
    }
    "ngx_stream_geo_module", NOT_YET {
        STREAM => "geo";
    }
    "ngx_stream_geoip_module", GEOIP {
        STREAM => "geoip_country geoip_org geoip_city";
    }
    "ngx_stream_limit_conn_module", NOT_YET {
        STREAM => "limit_conn_zone";
        STREAM | STREAM_SERVER => "limit_conn limit_conn_log_level limit_conn_dry_run";
    }
    "ngx_stream_map_module", NOT_YET {
        STREAM => "map map_hash_max_size map_hash_bucket_size";
    }
    "ngx_stream_pass_module", NOT_YET {
        STREAM_SERVER => "pass";
    }
    "ngx_stream_proxy_module", NOT_YET {
        STREAM | STREAM_SERVER =>
            "proxy_ssl proxy_ssl_session_reuse proxy_ssl_protocols proxy_ssl_ciphers \
             proxy_ssl_name proxy_ssl_server_name proxy_ssl_alpn proxy_ssl_verify \
             proxy_ssl_verify_depth proxy_ssl_trusted_certificate proxy_ssl_crl \
             proxy_ssl_certificate proxy_ssl_certificate_key proxy_ssl_certificate_cache \
             proxy_ssl_password_file proxy_ssl_conf_command";
    }
    "ngx_stream_realip_module", NOT_YET {
        STREAM | STREAM_SERVER => "set_real_ip_from";
    }
    "ngx_stream_return_module", NOT_YET {
        STREAM_SERVER => "return";
    }
    "ngx_stream_set_module", NOT_YET {
        STREAM_SERVER => "set";
    }
    "ngx_stream_split_clients_module", NOT_YET {
        STREAM => "split_clients";
    }
    "ngx_stream_ssl_module", NOT_YET {
        STREAM | STREAM_SERVER =>
            "ssl_handshake_timeout ssl_certificate ssl_certificate_key ssl_certificate_cache \
             ssl_ech_file ssl_password_file ssl_certificate_compression ssl_dhparam \
             ssl_ecdh_curve ssl_protocols ssl_ciphers ssl_verify_client ssl_verify_depth \
             ssl_client_certificate ssl_trusted_certificate ssl_prefer_server_ciphers \
             ssl_session_cache ssl_session_tickets ssl_session_ticket_key ssl_session_timeout \
             ssl_crl ssl_ocsp ssl_ocsp_responder ssl_ocsp_cache ssl_stapling ssl_stapling_file \
             ssl_stapling_responder ssl_stapling_verify ssl_conf_command ssl_reject_handshake \
             ssl_alpn";
    }
    "ngx_stream_ssl_preread_module", NOT_YET {
        STREAM | STREAM_SERVER => "ssl_preread";
    }
    "ngx_mail_core_module", OUT_OF_SCOPE_MAIL {
        MAIL => "server";
        MAIL_SERVER => "listen protocol";
        MAIL | MAIL_SERVER =>
            "timeout server_name error_log resolver resolver_timeout max_errors";
    }
    "ngx_mail_module", OUT_OF_SCOPE_MAIL {
        MAIN => "mail";
    }
    "ngx_mail_auth_http_module", OUT_OF_SCOPE_MAIL {
        MAIL | MAIL_SERVER =>
            "auth_http auth_http_timeout auth_http_header auth_http_pass_client_cert";
    }
    "ngx_mail_imap_module", OUT_OF_SCOPE_MAIL {
        MAIL | MAIL_SERVER => "imap_client_buffer imap_capabilities imap_auth";
    }
    "ngx_mail_pop3_module", OUT_OF_SCOPE_MAIL {
        MAIL | MAIL_SERVER => "pop3_capabilities pop3_auth";
    }
    "ngx_mail_proxy_module", OUT_OF_SCOPE_MAIL {
        MAIL | MAIL_SERVER =>
            "proxy proxy_buffer proxy_timeout proxy_pass_error_message xclient proxy_smtp_auth \
             proxy_protocol";
    }
    "ngx_mail_realip_module", OUT_OF_SCOPE_MAIL {
        MAIL | MAIL_SERVER => "set_real_ip_from";
    }
    "ngx_mail_smtp_module", OUT_OF_SCOPE_MAIL {
        MAIL | MAIL_SERVER =>
            "smtp_client_buffer smtp_greeting_delay smtp_capabilities smtp_auth";
    }
    "ngx_mail_ssl_module", OUT_OF_SCOPE_MAIL {
        MAIL | MAIL_SERVER =>
            "starttls ssl_certificate ssl_certificate_key ssl_password_file \
             ssl_certificate_compression ssl_dhparam ssl_ecdh_curve ssl_protocols ssl_ciphers \
             ssl_prefer_server_ciphers ssl_session_cache ssl_session_tickets \
             ssl_session_ticket_key ssl_session_timeout ssl_verify_client ssl_verify_depth \
             ssl_client_certificate ssl_trusted_certificate ssl_crl ssl_conf_command";
    }
    "ngx_google_perftools_module", PERFTOOLS {
        MAIN => "google_perftools_profiles";
    }
}

/// All entries, modules in nginx's order. A name stands in several modules if it differs by context.
pub fn all() -> impl Iterator<Item = Unsupported> {
    TABLE.iter().flat_map(|group| {
        group.names.split_ascii_whitespace().map(|name| Unsupported {
            name,
            module: group.module,
            contexts: group.contexts,
            reason: group.reason,
        })
    })
}

/// The entry of a name: the one allowed in `context`, or else the first.
pub fn find(name: &[u8], context: Context) -> Option<Unsupported> {
    static INDEX: OnceLock<HashMap<&'static str, Vec<Unsupported>>> = OnceLock::new();
    let index = INDEX.get_or_init(|| {
        let mut index: HashMap<_, Vec<_>> = HashMap::new();
        for entry in all() {
            index.entry(entry.name).or_default().push(entry);
        }
        index
    });
    let entries = index.get(std::str::from_utf8(name).ok()?)?;
    let here = entries.iter().find(|entry| entry.contexts.intersects(context));
    here.or(entries.first()).copied()
}

/// The replacement of what a module offers, or the consequence of removing the lines.
pub(crate) fn advice(module: &str) -> Option<&'static str> {
    match module {
        "ngx_core_module" => Some("every available module is built in; remove the lines"),
        _ => None,
    }
}

/// The entries that no table implements.
pub fn missing(registry: &Registry) -> impl Iterator<Item = Unsupported> {
    all().filter(|entry| registry.find(entry.name.as_bytes(), entry.contexts).is_none())
}

/// The entries that a table implements by now.
pub fn stale(registry: &Registry) -> impl Iterator<Item = Unsupported> {
    all().filter(|entry| registry.find(entry.name.as_bytes(), entry.contexts).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_nginx() {
        assert!(all().count() > 500);
        let proxy_ssl = find(b"proxy_ssl", Context::STREAM_SERVER).unwrap();
        assert_eq!(proxy_ssl.module, "ngx_stream_proxy_module");
        let pass = find(b"fastcgi_pass", Context::LOCATION).unwrap();
        assert_eq!(pass.module, "ngx_http_fastcgi_module");
        assert_eq!(find(b"load_module", Context::MAIN).unwrap().reason, MODULES);
        assert!(find(b"no_such_directive", Context::MAIN).is_none());
    }

    #[test]
    fn advice_is_for_modules_of_nginx() {
        let module = "ngx_core_module";
        assert!(advice(module).is_some());
        assert!(all().any(|entry| entry.module == module));
    }

    #[test]
    fn names_are_unique_within_a_context() {
        let entries: Vec<_> = all().collect();
        for (n, entry) in entries.iter().enumerate() {
            let twin = entries[n + 1..]
                .iter()
                .find(|e| e.name == entry.name && e.contexts.intersects(entry.contexts));
            assert!(twin.is_none(), "{entry:?} {twin:?}");
        }
    }
}
