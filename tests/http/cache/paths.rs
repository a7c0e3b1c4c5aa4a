//! Parameters of `proxy_cache_path` that bound the work in the background.

use nowait_testkit::{Driver, Origin, Server, wait};

use super::{get, scripts};
use crate::stage::{asks_nginx, site};

const REPLY: &str =
    "HTTP/1.1 200 OK\nCache-Control: max-age=600\nContent-Length: 4000\nConnection: close\n\n";

/// A server whose cache has these parameters, and an origin for so many objects.
fn with_path(parameters: &str, objects: usize, test: impl Fn(&mut Server)) {
    if asks_nginx() {
        return;
    }
    let reply = format!("{REPLY}{}", "x".repeat(4000));
    let origin = Origin::start(scripts(&vec![&reply[..]; objects]));
    let mut server = site(&format!(
        "proxy_cache_path %%DIR%%/cache keys_zone=one:1m {parameters};
         map $request_method $purge {{ PURGE 1; default ''; }}
         server {{
             listen 127.0.0.1:%%PORT%%;
             location = /state {{ status_api; }}
             location / {{
                 proxy_pass http://{};
                 proxy_cache one;
                 proxy_cache_key $uri;
                 proxy_cache_purge $purge;
                 add_header X-Cache $upstream_cache_status;
             }}
         }}",
        origin.addr()
    ))
    .driver(Driver::Epoll)
    .start();
    for n in 0..objects {
        assert_eq!(get(&server, &format!("/{n}")).status, 200);
    }
    test(&mut server);
    server.stop();
}

/// What the status pages say of the cache.
fn objects(server: &Server) -> u64 {
    let report: serde_json::Value = serde_json::from_str(&server.get("/state").text()).unwrap();
    report["caches"][0]["objects"].as_u64().unwrap()
}

#[track_caller]
fn wait_objects(server: &Server, wanted: impl Fn(u64) -> bool) {
    wait::until("objects", wait::PATIENCE, || wanted(objects(server)).then_some(()));
}

#[test]
fn the_manager_keeps_the_size() {
    let parameters = "max_size=40k manager_files=1 manager_sleep=1ms manager_threshold=1ms";
    with_path(parameters, 20, |server| {
        // An object takes two blocks of 4 KB.
        wait_objects(server, |objects| (1..=5).contains(&objects));
        assert_eq!(get(server, "/19").header("X-Cache"), Some("HIT"), "the newest one stays");
    });
}

#[test]
fn the_manager_removes_what_is_not_used() {
    with_path("inactive=1s manager_files=2 manager_sleep=1ms", 5, |server| {
        wait_objects(server, |objects| objects == 0);
    });
}

#[test]
fn free_space_is_kept() {
    // No disk has so much.
    with_path("min_free=1000000g manager_files=3 manager_sleep=1ms", 5, |server| {
        wait_objects(server, |objects| objects == 0);
    });
}

/// A second server over the same directory, without the saved index, finds the objects: all of them in
/// steps, and what is asked for at once.
#[test]
fn the_loader_works_in_steps() {
    for (parameters, ends) in [
        ("loader_files=2 loader_sleep=1ms loader_threshold=1ms", true),
        // It takes a pause after the first directory.
        ("levels=1:2 loader_files=1 loader_sleep=1h", false),
        ("levels=1:2 loader_threshold=0 loader_sleep=1h", false),
    ] {
        let levels = if ends { "" } else { "levels=1:2" };
        with_path(levels, 10, |server| {
            wait_objects(server, |objects| objects == 10);
            let cache = server.dir().join("cache");
            let http = format!(
                "proxy_cache_path {} keys_zone=one:1m {parameters};
                 server {{
                     listen 127.0.0.1:%%PORT%%;
                     location = /state {{ status_api; }}
                     location / {{
                         proxy_pass http://127.0.0.1:1;
                         proxy_cache one;
                         proxy_cache_key $uri;
                     }}
                 }}",
                cache.display()
            );
            let mut second = site(&http).driver(Driver::Epoll).start();
            if ends {
                wait_objects(&second, |objects| objects == 10);
            }
            for n in 0..10 {
                assert_eq!(get(&second, &format!("/{n}")).status, 200, "{parameters}");
            }
            assert_eq!(objects(&second), 10);
            let report: serde_json::Value =
                serde_json::from_str(&second.get("/state").text()).unwrap();
            let cold = &report["caches"][0]["cold"];
            assert!(ends || *cold == true, "{parameters}: {report}");
            second.check_logs();
            second.stop();
        });
    }
}

#[test]
fn the_purger_works_in_steps() {
    with_path("purger=on purger_files=1 purger_sleep=1ms purger_threshold=1ms", 10, |server| {
        wait_objects(server, |objects| objects == 10);
        let mut client = server.client();
        client.send("PURGE /* HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().header("X-Purged"), Some("10"));
        assert_eq!(objects(server), 0);
    });
}
