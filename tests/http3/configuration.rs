//! Configurations with `listen … quic` that are refused, and why.

use crate::stage::site;

const TLS: &str = "ssl_certificate %%DIR%%/own.pem; ssl_certificate_key %%DIR%%/own.key;";

#[track_caller]
fn refused(http: &str, reason: &str) {
    let failure = site(http).try_start().expect_err(reason);
    let said = format!("{}{}", failure.stderr, failure.log);
    assert!(said.contains(reason), "{reason}: {said}");
}

#[test]
fn parameters_of_tcp_exclude_quic() {
    for (parameter, name) in [
        ("ssl", "ssl"),
        ("http2", "http2"),
        ("proxy_protocol", "proxy_protocol"),
        ("backlog=5", "backlog"),
        ("deferred", "deferred"),
        ("fastopen=5", "fastopen"),
        ("multipath", "multipath"),
        ("so_keepalive=on", "so_keepalive"),
    ] {
        let http = format!("server {{ {TLS} listen 127.0.0.1:%%PORT%% quic {parameter}; }}");
        refused(&http, &format!("\"{name}\" parameter is incompatible with \"quic\""));
    }
    let http = format!("server {{ {TLS} listen unix:%%DIR%%/sock quic; }}");
    refused(&http, "\"quic\" is not supported for \"unix:");
}

#[test]
fn quic_needs_a_certificate_and_tls_13() {
    refused(
        "server { listen 127.0.0.1:%%PORT%% quic; }",
        "no \"ssl_certificate\" is defined for the \"listen ... quic\" directive",
    );
    refused(
        &format!("server {{ {TLS} listen 127.0.0.1:%%PORT%% quic; ssl_protocols TLSv1.2; }}"),
        "\"ssl_protocols\" must enable TLSv1.3 for the \"listen ... quic\" directive",
    );
    refused(
        &format!("server {{ {TLS} listen 127.0.0.1:%%PORT%% quic; quic_host_key missing.key; }}"),
        "missing.key\" failed (2: No such file or directory)",
    );
    let text = format!("server {{ {TLS} listen 127.0.0.1:%%PORT%% quic; quic_host_key short; }}");
    let failure = site(&text).file("short", "0123").try_start().expect_err("a short key");
    assert!(failure.stderr.contains("\"short\" has only 4 bytes, not 32"), "{}", failure.stderr);
}

#[test]
fn every_parameter_and_directive_is_taken() {
    let http = format!(
        "quic_active_connection_id_limit 4; quic_gso off; quic_host_key key; quic_retry on; http3 on; http3_hq on;\
         http3_max_concurrent_streams 16; http3_stream_buffer_size 128k; http3_advertise on;\
         server {{ {TLS} listen 127.0.0.1:%%PORT%% quic reuseport default_server rcvbuf=128k sndbuf=128k; \
         listen 127.0.0.1:%%PORT%% ssl; }}\
         server {{ {TLS} listen 127.0.0.1:%%PORT%% quic reuseport; server_name other; }}"
    );
    let server = site(&http).main("quic_bpf on;").file("key", [7; 32]).start();
    server.stop();
}
