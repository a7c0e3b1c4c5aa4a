//! Which server is asked.

use nowait_testkit::{Driver, Server};

use super::{SlowOrigin, group, letters};
use crate::stage::{on_each_driver, send};

#[test]
fn servers_take_turns_by_weight() {
    on_each_driver(&group("server A weight=5; server B; server C;", ""), |server| {
        assert_eq!(letters(server, 14, "/", &[]), "aabacaaaabacaa");
    });
}

#[test]
fn servers_that_are_down_are_not_asked() {
    on_each_driver(&group("server A down; server B; server C backup;", ""), |server| {
        assert_eq!(letters(server, 3, "/", &[]), "bbb");
    });
}

/// The same letter for the same value, several for many values.
#[track_caller]
fn spreads(server: &Server, target: impl Fn(usize) -> (String, String)) {
    let mut seen = String::new();
    for n in 0..30 {
        let (target, header) = target(n);
        let two = letters(server, 2, &target, &[&header]);
        assert_eq!(two[..1], two[1..], "{target} {header}");
        seen.push_str(&two[..1]);
    }
    for letter in ["a", "b", "c"] {
        assert!(seen.contains(letter), "{seen}");
    }
}

#[test]
fn keys_have_their_servers() {
    for block in ["hash $arg_k;", "hash $arg_k consistent;"] {
        let site = group(&format!("{block} server A; server B; server C;"), "");
        on_each_driver(&site, |server| {
            spreads(server, |n| (format!("/?k=key{n}"), "X-None: 1".to_owned()));
        });
    }
}

/// The same choice as nginx's for keys of the formula of Cache::Memcached.
#[test]
fn keys_have_the_servers_that_nginx_gives_them() {
    on_each_driver(&group("hash $arg_k; server A; server B; server C;", ""), |server| {
        // (crc32(key) >> 16 & 0x7fff) % 3
        for (key, letter) in [("a", "c"), ("abc", "c"), ("123456789", "b")] {
            assert_eq!(letters(server, 1, &format!("/?k={key}"), &[]), letter, "{key}");
        }
    });
}

#[test]
fn clients_have_their_servers() {
    let block = "ip_hash; server A; server B; server C;";
    let conf = "set_real_ip_from 127.0.0.1;";
    on_each_driver(&group(block, conf), |server| {
        spreads(server, |n| ("/".to_owned(), format!("X-Real-IP: 10.{n}.0.1")));
        // All of a network have the same.
        let letter = |ip: &str| letters(server, 1, "/", &[&format!("X-Real-IP: {ip}")]);
        assert_eq!(letter("10.1.2.3"), letter("10.1.2.200"));
    });
}

#[test]
fn all_are_asked_at_random() {
    for block in ["random;", "random two;", "random two least_conn;"] {
        on_each_driver(&group(&format!("{block} server A; server B;"), ""), |server| {
            let seen = letters(server, 40, "/", &[]);
            assert!(seen.contains('a') && seen.contains('b'), "{seen}");
        });
    }
}

#[test]
fn the_least_busy_server_is_asked() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let slow = SlowOrigin::new(1);
        let block = format!("least_conn; server {}; server B;", slow.origin.addr());
        let server = group(&block, "").driver(driver).start();
        let mut client = server.client();
        send(&mut client, "/", &[]);
        slow.wait_requests(1);
        assert_eq!(letters(&server, 4, "/", &[]), "bbbb");
        slow.answer_next();
        assert_eq!(client.response().text(), "slow");
        server.stop();
    }
}

#[test]
fn requests_under_way_are_limited() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let slow = SlowOrigin::new(1);
        let block = format!("server {} max_conns=1; server B backup;", slow.origin.addr());
        let server = group(&block, "").driver(driver).start();
        let mut client = server.client();
        send(&mut client, "/", &[]);
        slow.wait_requests(1);
        assert_eq!(letters(&server, 3, "/", &[]), "bbb");
        slow.answer_next();
        assert_eq!(client.response().text(), "slow");
        server.stop();
    }
}

#[test]
fn requests_wait_in_the_queue() {
    for driver in [Driver::Epoll, Driver::IoUring] {
        let slow = SlowOrigin::new(2);
        let block = format!("server {} max_conns=1; queue 1;", slow.origin.addr());
        let times = "add_header X-Queue '$upstream_queue_time' always;";
        let server = group(&block, times).driver(driver).start();
        if server.binary().is_nginx() {
            // Only its commercial build has a queue.
            return;
        }
        let mut first = server.client();
        send(&mut first, "/", &[]);
        slow.wait_requests(1);
        let mut second = server.client();
        send(&mut second, "/", &[]);
        // One of the next two waits, and there is no room for the other one.
        let mut third = server.client();
        send(&mut third, "/", &[]);
        server.wait_log("no live upstreams");
        slow.answer_next();
        let answered = first.response();
        assert_eq!(answered.text(), "slow");
        assert_eq!(answered.header("X-Queue"), Some("-"));
        slow.answer_next();
        let mut answers = [second.response(), third.response()];
        answers.sort_by_key(|answer| answer.status);
        assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 502]);
        let queued = answers[0].header("X-Queue").unwrap();
        assert!(queued.parse::<f64>().is_ok(), "{queued}");
        assert_eq!(answers[1].header("X-Queue"), Some("-"));
        server.stop();
    }
}

/// Times of responses decide, and how many requests are under way.
#[test]
fn the_fastest_server_is_asked() {
    for what in ["header", "last_byte", "header inflight", "last_byte inflight"] {
        let slow = SlowOrigin::new(2);
        let block = format!("least_time {what}; server {}; server B;", slow.origin.addr());
        let server = group(&block, "").driver(Driver::Epoll).start();
        if server.binary().is_nginx() {
            // Only its commercial build has it.
            return;
        }
        let mut client = server.client();
        send(&mut client, "/", &[]);
        slow.wait_requests(1);
        assert_eq!(letters(&server, 3, "/", &[]), "bbb", "{what}: one is under way");
        // It has taken long enough to be slower than the other one.
        std::thread::sleep(std::time::Duration::from_millis(300));
        slow.answer_next();
        assert_eq!(client.response().text(), "slow");
        assert_eq!(letters(&server, 6, "/", &[]), "bbbbbb", "{what}");
        server.stop();
    }
}
