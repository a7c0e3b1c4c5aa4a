//! Without a kernel that seals, or without the wish for one: everything works, and is counted.

use crate::stage::{
    ALWAYS, Authority, LARGE, TlsClient, assert_same, content, counters, on_each, site,
};

/// Whether the kernel has TLS; unlike `has_ktls`, without a word.
fn kernel_seals() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp")
        .is_ok_and(|known| known.split_whitespace().any(|name| name == "tls"))
}

#[test]
fn a_large_file_arrives_with_and_without_the_kernel() {
    let authority = Authority::new("CA");
    let builder = site(&authority, &[1000, LARGE - 1, LARGE, LARGE + 5], "");
    on_each(&builder, |server| {
        let config = authority.client(None);
        let mut client = TlsClient::new(server, &config, "localhost");
        for size in [1000, LARGE - 1] {
            assert_same(&client.get(&format!("/files/{size}")).1, &content(size), "small");
        }
        assert_eq!(counters(server), [0, 0, 0]);
        for size in [LARGE, 1000, LARGE + 5] {
            assert_same(&client.get(&format!("/files/{size}")).1, &content(size), "large");
        }
        // Once per connection, whichever it is.
        let expected = if kernel_seals() { [1, 0, 0] } else { [0, 1, 0] };
        assert_eq!(counters(server), expected);
    });
}

#[test]
fn an_explicit_wish_is_reported_once_where_it_cannot_be_granted() {
    let authority = Authority::new("CA");
    let builder = site(&authority, &[1000], ALWAYS).allow_log("has no effect");
    on_each(&builder, |server| {
        for n in 1..=3 {
            let mut client = TlsClient::new(server, &authority.client(None), "localhost");
            assert_same(&client.get("/files/1000").1, &content(1000), "a file");
            let expected = if kernel_seals() { [n, 0, 0] } else { [0, n, 0] };
            assert_eq!(counters(server), expected);
        }
        if !kernel_seals() {
            server.wait_log("the kernel has no TLS");
        }
        let reports = server.log().matches("the kernel has no TLS").count();
        assert_eq!(reports, usize::from(!kernel_seals()), "{}", server.log());
    });
}

#[test]
fn it_can_be_switched_off() {
    let authority = Authority::new("CA");
    let builder = site(&authority, &[LARGE], "ssl_conf_command Options -KTLS;");
    on_each(&builder, |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        assert_same(&client.get(&format!("/files/{LARGE}")).1, &content(LARGE), "a file");
        assert_eq!(counters(server), [0, 0, 0]);
    });
}

#[test]
fn without_sendfile_the_kernel_is_of_no_use() {
    let authority = Authority::new("CA");
    let builder = site(&authority, &[LARGE], "sendfile off;");
    on_each(&builder, |server| {
        let mut client = TlsClient::new(server, &authority.client(None), "localhost");
        assert_same(&client.get(&format!("/files/{LARGE}")).1, &content(LARGE), "a file");
        assert_eq!(counters(server), [0, 0, 0]);
    });
}
