//! `101 Switching Protocols`: what follows is the two sides' own matter.

use nowait_testkit::origin::Step;

use super::on_each;

const UPGRADE: &str = "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; \
                       proxy_set_header Connection upgrade;";

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n";

const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n";

#[test]
fn both_directions_pass() {
    let script = || {
        vec![vec![
            Step::expect("\r\n\r\n"),
            // With the first bytes of the new protocol.
            Step::reply(format!("{SWITCH}hello ")),
            Step::expect("early late"),
            Step::reply("bye"),
        ]]
    };
    on_each(script, UPGRADE, |server, _| {
        let mut client = server.client();
        client.send(format!("{REQUEST}early "));
        let head = client.response_to_head();
        assert_eq!((head.status, head.header("upgrade")), (101, Some("echo")));
        client.send("late");
        assert_eq!(client.rest(), b"hello bye");
        drop(client);
        crate::stage::wait_file(server, "access.log", "\"GET / HTTP/1.1\" 101 9 ");
    });
}

/// What follows is no content, of which a client could ask for ranges.
#[test]
fn nothing_of_another_protocol_is_a_range() {
    let script = || {
        vec![vec![Step::expect("\r\n\r\n"), Step::reply(format!("{SWITCH}bye")), Step::HalfClose]]
    };
    on_each(script, &format!("{UPGRADE} proxy_force_ranges on;"), |server, _| {
        let mut client = server.client();
        client.send(REQUEST);
        let head = client.response_to_head();
        assert_eq!((head.status, head.header("accept-ranges")), (101, None));
        assert_eq!(client.rest(), b"bye");
    });
}

#[test]
fn each_side_may_end_its_sending_first() {
    let script = || {
        vec![vec![Step::expect("\r\n\r\n"), Step::reply(SWITCH), Step::expect("all"), Step::Closed]]
    };
    on_each(script, UPGRADE, |server, _| {
        let mut client = server.client();
        client.send(REQUEST);
        assert_eq!(client.response_to_head().status, 101);
        client.send("all");
        client.half_close();
        client.expect_closed();
    });
    let script = || {
        vec![vec![
            Step::expect("\r\n\r\n"),
            Step::reply(format!("{SWITCH}last words")),
            Step::HalfClose,
            Step::expect("and mine"),
        ]]
    };
    on_each(script, UPGRADE, |server, origin| {
        let mut client = server.client();
        client.send(REQUEST);
        assert_eq!(client.response_to_head().status, 101);
        super::read_until(&mut client, "last words");
        client.send("and mine");
        super::wait_received(origin, "and mine");
        client.expect_closed();
    });
}

#[test]
fn a_silent_tunnel_ends() {
    let script = || vec![vec![Step::expect("\r\n\r\n"), Step::reply(SWITCH), Step::Closed]];
    on_each(script, &format!("{UPGRADE} proxy_read_timeout 100ms;"), |server, _| {
        server.allow_log("upstream timed out");
        let mut client = server.client();
        client.send(REQUEST);
        assert_eq!(client.response_to_head().status, 101);
        client.expect_closed();
        server.wait_log("upstream timed out (110: Connection timed out) while proxying upgraded");
    });
}

#[test]
fn a_switch_that_nobody_asked_for() {
    on_each(
        || vec![super::answer(SWITCH)],
        "",
        |server, _| {
            server.allow_log("upstream sent unexpected interim response");
            assert_eq!(server.get("/").status, 502);
        },
    );
}
