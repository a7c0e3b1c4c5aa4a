//! `stub_status` and `$connections_active` and its like.

use nowait_testkit::{Server, wait};

use crate::stage::{exchanges, on_each_driver, server};

const SITE: &str = r#"
    location /stub { stub_status; }
    location /old { stub_status on; }
    location /own {
        return 200 "$connections_active $connections_reading $connections_writing $connections_waiting";
    }
"#;

/// The numbers: active, accepted, handled, requests, reading, writing, waiting.
fn numbers(server: &Server) -> [u64; 7] {
    let text = server.get("/stub").text();
    let numbers = text.split_ascii_whitespace().filter_map(|word| word.parse().ok());
    let numbers: Vec<u64> = numbers.collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{text:?}"))
}

/// Waits until a request finds these numbers of connections: active, reading, writing, waiting.
fn settle(server: &Server, expected: [u64; 4]) {
    let look = || {
        let [active, _, _, _, reading, writing, waiting] = numbers(server);
        ([active, reading, writing, waiting] == expected).then_some(())
    };
    assert!(wait::try_until(wait::PATIENCE, look).is_some(), "{:?}", numbers(server));
}

#[test]
fn the_page() {
    exchanges(
        &server(SITE),
        &[
            ("HEAD /stub HTTP/1.1\nHost: a", "200\nContent-Type: text/plain"),
            ("POST /stub HTTP/1.1\nHost: a\nContent-Length: 0", "405"),
        ],
    );
    on_each_driver(&server(SITE), |server| {
        settle(server, [1, 0, 1, 0]);
        let [_, accepted, handled, requests, ..] = numbers(server);
        assert_eq!(
            server.get("/old").text(),
            format!(
                "Active connections: 1 \nserver accepts handled requests\n {} {} {} \n\
                 Reading: 0 Writing: 1 Waiting: 0 \n",
                accepted + 1,
                handled + 1,
                requests + 1
            )
        );
    });
}

#[test]
fn connections_are_counted_where_they_stand() {
    on_each_driver(&server(SITE), |server| {
        settle(server, [1, 0, 1, 0]);
        let mut client = server.client();
        settle(server, [2, 0, 1, 1]);
        client.send("GET /own HTTP/1.1\r\n");
        settle(server, [2, 1, 1, 0]);
        client.send("Host: a\r\n\r\n");
        // The connection that asked before may still be open, and waits.
        let text = client.response().text();
        assert!(text.contains(" 0 1 "), "{text}");
        settle(server, [2, 0, 1, 1]);
        drop(client);
        settle(server, [1, 0, 1, 0]);
    });
}

#[test]
fn requests_are_counted() {
    on_each_driver(&server(SITE), |server| {
        let before = numbers(server);
        let mut client = server.client();
        for _ in 0..3 {
            assert_eq!(client.get("/own").status, 200);
        }
        let after = numbers(server);
        assert_eq!(after[1] - before[1], 2, "connections");
        assert_eq!(after[3] - before[3], 4, "requests");
    });
}
