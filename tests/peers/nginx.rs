//! nginx on the other side: as a proxy before the server, and as a server behind it.

use nowait_testkit::{Binary, Server};

use crate::stage::{Authority, DRIVERS, on_each, program};

/// Files of the site, by size.
const SIZES: [usize; 3] = [1, 16_385, 3_000_000];

#[test]
fn as_a_client() {
    if program("nginx").is_none() {
        return;
    }
    on_each("", |server| {
        let Some(nginx) = Binary::nginx() else { return };
        for protocols in ["TLSv1.2", "TLSv1.3"] {
            let http = format!(
                "server {{ listen 127.0.0.1:%%PORT%%; client_max_body_size 10m;
                 location / {{
                     proxy_pass https://origin; proxy_http_version 1.1;
                     proxy_set_header Connection ''; proxy_ssl_name localhost;
                     proxy_ssl_server_name on; proxy_ssl_protocols {protocols};
                     proxy_ssl_verify on; proxy_ssl_trusted_certificate {ca};
                 }} }}
                 upstream origin {{ server 127.0.0.1:{port}; keepalive 4; }}",
                ca = server.dir().join("ca.pem").display(),
                port = server.port(),
            );
            let proxy = Server::of(nginx.clone()).http(&http).start();
            let mut client = proxy.client();
            for _ in 0..5 {
                for size in SIZES {
                    let response = client.get(&format!("/files/{size}"));
                    assert_eq!((response.status, response.body.len()), (200, size));
                }
            }
            client.send(format!(
                "POST /app/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n{}",
                "x".repeat(900_000)
            ));
            assert_eq!(client.response().body.len(), 900_000);
            proxy.stop();
        }
    });
}

#[test]
fn as_an_upstream() {
    let (Some(_), Some(nginx)) = (program("nginx"), Binary::nginx()) else { return };
    let authority = Authority::new("Test CA");
    let own = authority.issue("localhost");
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let mut origin = Server::of(nginx.clone())
            .http(&format!(
                "server {{ listen 127.0.0.1:%%PORT%% ssl; ssl_protocols {protocols};
                 ssl_certificate %%DIR%%/own.pem; ssl_certificate_key %%DIR%%/own.key;
                 ssl_session_cache shared:s:1m;
                 root %%DIR%%/html; add_header X-Reused $ssl_session_reused; }}"
            ))
            .file("own.pem", &own.chain)
            .file("own.key", &own.key);
        for size in SIZES {
            origin = origin.file(&format!("html/files/{size}"), vec![b'x'; size]);
        }
        let origin = origin.start();
        for driver in DRIVERS {
            let http = format!(
                "server {{ listen 127.0.0.1:%%PORT%%;
                 location / {{
                     proxy_pass https://origin; proxy_http_version 1.1;
                     proxy_set_header Connection ''; proxy_ssl_name localhost;
                     proxy_ssl_server_name on;
                     proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem;
                 }}
                 location /once/ {{
                     proxy_pass https://127.0.0.1:{port}/; proxy_ssl_name localhost;
                     proxy_ssl_server_name on;
                     proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem;
                 }} }}
                 upstream origin {{ server 127.0.0.1:{port}; keepalive 4; }}",
                port = origin.port(),
            );
            let proxy = Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait")))
                .http(&http)
                .file("ca.pem", &authority.pem)
                .driver(driver)
                .start();
            let mut client = proxy.client();
            for _ in 0..5 {
                for size in SIZES {
                    let response = client.get(&format!("/files/{size}"));
                    assert_eq!((response.status, response.body.len()), (200, size));
                }
            }
            // A new connection for each: sessions are resumed.
            let once: Vec<_> = (0..4).map(|_| client.get("/once/files/1")).collect();
            assert_eq!(once[3].header("X-Reused"), Some("r"), "{protocols}");
            proxy.stop();
        }
        origin.stop();
    }
}
