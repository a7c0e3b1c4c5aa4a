//! `listen ... proxy_protocol` and the variables that it fills.

use crate::stage::{on_each_driver, site, wait_file};

const SHOW: &str = "server { listen 127.0.0.1:%%PORT%% proxy_protocol; location / { return 200 \
     \"$proxy_protocol_addr|$proxy_protocol_port|$proxy_protocol_server_addr|\
     $proxy_protocol_server_port|$remote_addr|$proxy_protocol_tlv_alpn|$proxy_protocol_tlv_0xae|\
     $proxy_protocol_tlv_ssl_version|$proxy_protocol_tlv_ssl_verify\"; } }";

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len()).unwrap().to_be_bytes();
    [&[kind][..], &len, value].concat()
}

fn version_2() -> Vec<u8> {
    let ssl = [&[1, 0, 0, 0, 9][..], &tlv(0x21, b"TLSv1.3")].concat();
    let rest = [
        vec![192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 0, 80],
        tlv(1, b"h2"),
        tlv(0x20, &ssl),
        tlv(0xae, b"own"),
    ]
    .concat();
    let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11"[..], &len, &rest].concat()
}

#[test]
fn the_header_is_read_before_the_first_request() {
    if crate::stage::asks_nginx() {
        return; // the records are newer than the nginx that is usually installed
    }
    on_each_driver(&site(SHOW), |server| {
        for (header, shown) in [
            (
                b"PROXY TCP4 192.0.2.1 192.0.2.2 123 80\r\n".to_vec(),
                "192.0.2.1|123|192.0.2.2|80|127.0.0.1||||",
            ),
            (
                b"PROXY TCP6 2001:db8::1 2001:db8::2 123 80\r\n".to_vec(),
                "2001:db8::1|123|2001:db8::2|80|127.0.0.1||||",
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), "||||127.0.0.1||||"),
            (version_2(), "192.0.2.1|123|192.0.2.2|80|127.0.0.1|h2|own|TLSv1.3|9"),
        ] {
            // In one packet, in two, and byte by byte.
            for piece in [header.len() + GET.len(), header.len(), 1] {
                let mut client = server.client();
                for part in [&header[..], GET].concat().chunks(piece) {
                    client.send(part);
                }
                assert_eq!(client.response().text(), shown);
                // It is said once.
                client.send(GET);
                assert_eq!(client.response().text(), shown);
            }
        }
    });
}

#[test]
fn a_connection_without_it_is_closed() {
    let site = site(SHOW).allow_log("broken header");
    on_each_driver(&site, |server| {
        for start in
            [GET, b"PROXY TCP4 a b c d\r\n", &[b'P'; 200], b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\0"]
        {
            let mut client = server.client();
            client.send(start);
            client.expect_closed();
        }
        let log = wait_file(server, "error.log", "broken header: \"GET / ");
        assert!(log.contains("[error]") && log.contains("while reading PROXY protocol"));
    });
}

#[test]
fn silence_is_timed_out() {
    let site = site(&SHOW.replace("location", "client_header_timeout 100ms; location"));
    on_each_driver(&site, |server| {
        let mut client = server.client();
        client.send("PROXY TCP4 ");
        client.expect_closed();
    });
}
