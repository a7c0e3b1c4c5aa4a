//! PHP-FPM with a script of our own: what it responds, and what becomes of requests when it fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nowait_testkit::server::{Signal, signal};
use nowait_testkit::{Client, Driver, Server, ServerBuilder, TempDir, wait};

use super::{FpmPool, UPLOAD_BYTES, adler32, content, large, open_up, site, uploads};
use crate::stage::{Background, DRIVERS, source};

/// The script and its files.
fn files() -> TempDir {
    let dir = TempDir::new("peers-php");
    dir.write("www/index.php", std::fs::read(source("app.php")).unwrap());
    dir.write("protected/report.txt", "the report");
    open_up(dir.path(), false);
    dir
}

/// The script, and a pool that runs it.
fn php(children: usize, lines: &str) -> Option<(TempDir, FpmPool)> {
    let dir = files();
    let pool = FpmPool::start(&dir, children, false, lines)?;
    Some((dir, pool))
}

/// Reads until this has arrived.
#[track_caller]
fn read_until(client: &mut Client, text: &str) {
    let mut read = String::new();
    while !read.contains(text) {
        read += &String::from_utf8(client.read_some(4096)).unwrap();
    }
}

#[test]
fn php_fpm() {
    let Some((dir, pool)) = php(2, "") else { return };
    let content = content();
    let expected = format!("{UPLOAD_BYTES} {:08x}", adler32(&content));
    for driver in DRIVERS {
        for buffering in ["on", "off"] {
            eprintln!("driver: {driver:?}, buffering: {buffering}");
            let mut server = site(&format!(
                "upstream php {{ server 127.0.0.1:{port}; keepalive 2; }}
                 server {{
                     listen 127.0.0.1:%%PORT%%; root {root}/www; client_max_body_size 0;
                     fastcgi_request_buffering {buffering}; fastcgi_buffering {buffering};
                     location /protected/ {{ internal; root {root}; }}
                     location ~ \\.php(/|$) {{
                         fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
                         include fastcgi.conf;
                         fastcgi_param PATH_INFO $fastcgi_path_info;
                         fastcgi_pass php; fastcgi_keep_conn on;
                     }}
                 }}",
                root = dir.path().display(),
                port = pool.port
            ))
            .driver(driver)
            .start();
            server.allow_log("FastCGI sent in stderr");
            let mut client = server.client();
            let response = client.get("/index.php/more?do=facts");
            assert_eq!((response.status, response.text()), (201, "GET localhost /more".to_owned()));
            assert_eq!(response.header("x-script"), Some("/index.php"));
            assert_eq!(response.header("set-cookie"), Some("a=b"));
            assert!(client.get("/index.php?do=large").text() == large());
            assert_eq!(client.get("/index.php?do=protected").text(), "the report");
            let response = client.get("/index.php?do=redirect");
            assert_eq!((response.status, response.header("location")), (302, Some("/elsewhere")));
            assert_eq!(client.get("/index.php?do=warning").text(), "warned");
            server.wait_log("FastCGI sent in stderr: \"PHP message: PHP Warning:  a complaint in");
            assert_eq!(client.get("/none.php").status, 404);
            server.wait_log("Primary script unknown");
            // PHP takes content without a length for none.
            let ways = if buffering == "on" { &[false, true][..] } else { &[false] };
            uploads(&mut client, "/index.php?do=upload", &content, &expected, ways);
            server.stop();
        }
    }
}

/// The site of the faults: what PHP responds is not stored up.
fn faulty(pool: &str, driver: Driver) -> ServerBuilder {
    site(&format!(
        "upstream php {{ server {pool}; }}
         server {{
             listen 127.0.0.1:%%PORT%%; root %%DIR%%/www;
             include fastcgi.conf;
             fastcgi_param SCRIPT_FILENAME %%SCRIPT%%;
             location / {{ fastcgi_pass php; }}
             location /streamed {{ fastcgi_pass php; fastcgi_buffering off; }}
             location /impatient {{ fastcgi_pass php; fastcgi_read_timeout 100ms; }}
         }}"
    ))
    .driver(driver)
}

/// Waits until a script has written the number of its process, and returns it.
#[track_caller]
fn script_process(dir: &TempDir) -> u32 {
    let file = dir.path().join("tmp/process");
    let pid = wait::until("the script to run", wait::PATIENCE, || {
        std::fs::read_to_string(&file).ok()?.strip_suffix('.')?.parse().ok()
    });
    std::fs::remove_file(file).unwrap();
    pid
}

#[test]
fn scripts_that_die() {
    let Some((dir, pool)) = php(2, "") else { return };
    for driver in DRIVERS {
        eprintln!("driver: {driver:?}");
        let server = faulty(&format!("127.0.0.1:{}", pool.port), driver)
            .variable("SCRIPT", dir.path().join("www/index.php").display())
            .allow_log("FastCGI sent in stderr")
            .allow_log("recv() failed (104: Connection reset by peer)")
            .start();
        let response = server.get("/?do=fatal");
        assert_eq!(response.status, 500, "{response}");
        server
            .wait_log("PHP message: PHP Fatal error:  Uncaught Error: Call to undefined function");
        // Before the head, and in the middle of the body.
        let mut client = server.client();
        client.send_get("/?do=hang");
        signal(script_process(&dir), Signal::KILL);
        assert_eq!(client.response().status, 502);
        server.wait_log(
            "recv() failed (104: Connection reset by peer) while reading response header from upstream",
        );
        let mut client = server.client();
        client.send_get("/streamed?do=hang&begun=1");
        read_until(&mut client, "begun");
        signal(script_process(&dir), Signal::KILL);
        assert!(client.try_response(false).is_err());
        server.wait_log("recv() failed (104: Connection reset by peer) while reading upstream");
        assert_eq!(server.get("/?do=facts").status, 201);
        server.stop();
    }
}

#[test]
fn scripts_that_complain_without_end() {
    let Some((dir, pool)) = php(2, "") else { return };
    for driver in DRIVERS {
        eprintln!("driver: {driver:?}");
        let server = faulty(&format!("127.0.0.1:{}", pool.port), driver)
            .variable("SCRIPT", dir.path().join("www/index.php").display())
            .allow_log("FastCGI sent")
            .allow_log("upstream sent too much in FastCGI stderr")
            .start();
        assert_eq!(server.get("/?do=complain&megabytes=4").text(), "complained");
        server.wait_log("FastCGI sent in stderr: \"PHP message: complaint complaint");
        server.wait_log("FastCGI sent more in stderr, which is not logged");
        assert!(server.log().len() < 1 << 20);
        assert_eq!(server.get("/?do=complain&megabytes=20").status, 502);
        server.wait_log("upstream sent too much in FastCGI stderr");
        assert_eq!(server.get("/?do=facts").status, 201);
        server.stop();
    }
}

#[test]
fn a_pool_that_is_exhausted() {
    let Some((dir, pool)) = php(1, "") else { return };
    for driver in DRIVERS {
        eprintln!("driver: {driver:?}");
        let server = faulty(&format!("127.0.0.1:{}", pool.port), driver)
            .variable("SCRIPT", dir.path().join("www/index.php").display())
            .allow_log("upstream timed out")
            .start();
        let mut busy = server.client();
        busy.send_get("/?do=wait");
        script_process(&dir);
        assert_eq!(server.get("/impatient?do=facts").status, 504);
        server.wait_log("upstream timed out (110: Connection timed out) while reading response header from upstream");
        let mut queued = server.client();
        queued.send_get("/?do=facts");
        dir.write("tmp/go", "");
        assert_eq!(busy.response().text(), "waited");
        assert_eq!(queued.response().status, 201);
        server.stop();
    }
}

/// A Unix socket whose queue is full refuses connections, unlike one of TCP.
#[test]
fn a_queue_that_is_full() {
    let dir = files();
    let socket = dir.path().join("tmp/socket");
    let lines = "listen.backlog = 1\nlisten.mode = 0666";
    let address = socket.display().to_string();
    let Some(mut command) = FpmPool::command(&dir, &address, 1, lines) else { return };
    let _php = Background::serve_at(command.arg("-n"), &socket);
    for driver in DRIVERS {
        eprintln!("driver: {driver:?}");
        let server = faulty(&format!("unix:{}", socket.display()), driver)
            .variable("SCRIPT", dir.path().join("www/index.php").display())
            .allow_log("connect() to unix:")
            .start();
        let mut busy = server.client();
        busy.send_get("/?do=wait");
        script_process(&dir);
        let mut others: Vec<_> = (0..5).map(|_| server.client()).collect();
        for other in &mut others {
            other.send_get("/?do=facts");
        }
        server
            .wait_log("failed (11: Resource temporarily unavailable) while connecting to upstream");
        dir.write("tmp/go", "");
        assert_eq!(busy.response().text(), "waited");
        let statuses: Vec<u16> = others.iter_mut().map(|other| other.response().status).collect();
        assert!(statuses.contains(&201) && statuses.contains(&502), "{statuses:?}");
        assert!(statuses.iter().all(|status| [201, 502].contains(status)), "{statuses:?}");
        server.stop();
    }
}

/// Reloads of PHP-FPM cost no request; restarts cost those that it has begun or refused.
#[test]
fn php_fpm_restarted_under_load() {
    let Some((dir, mut pool)) = php(4, "") else { return };
    for driver in DRIVERS {
        eprintln!("driver: {driver:?}");
        let server = site(&format!(
            "upstream php {{ server 127.0.0.1:{} max_fails=0; keepalive 2; }}
             server {{
                 listen 127.0.0.1:%%PORT%%;
                 include fastcgi.conf;
                 fastcgi_param SCRIPT_FILENAME {}/www/index.php;
                 location / {{ fastcgi_pass php; fastcgi_keep_conn on; }}
             }}",
            pool.port,
            dir.path().display()
        ))
        .driver(driver)
        .allow_log("upstream")
        .start();
        let ready = || {
            let log = std::fs::read_to_string(dir.path().join("fpm.log")).unwrap_or_default();
            log.matches("ready to handle connections").count()
        };
        let load = PhpLoad::start(&server);
        for _ in 0..3 {
            let before = ready();
            load.wait_requests(20);
            pool.fpm.signal(Signal::USR2);
            wait::until("the reload", wait::PATIENCE, || (ready() > before).then_some(()));
            load.wait_requests(20);
        }
        let statuses = load.statuses();
        assert!(statuses.keys().eq([&201]), "{statuses:?}\n{}", server.log());
        pool.restart();
        load.wait_requests(20);
        let statuses = load.end();
        assert!(statuses.keys().all(|status| [201, 502].contains(status)), "{statuses:?}");
        assert_eq!(server.get("/?do=facts").status, 201);
        server.stop();
    }
}

/// Clients that ask without a pause.
struct PhpLoad {
    ends: Arc<AtomicBool>,
    statuses: Arc<Mutex<BTreeMap<u16, usize>>>,
    clients: Vec<JoinHandle<()>>,
}

impl PhpLoad {
    fn start(server: &Server) -> PhpLoad {
        let (ends, statuses) =
            (Arc::<AtomicBool>::default(), Arc::<Mutex<BTreeMap<_, _>>>::default());
        let clients = (0..3).map(|_| {
            let (mut client, ends, statuses) = (server.client(), ends.clone(), statuses.clone());
            std::thread::spawn(move || {
                while !ends.load(Ordering::Acquire) {
                    let status = client.get("/?do=facts").status;
                    *statuses.lock().unwrap().entry(status).or_default() += 1;
                }
            })
        });
        let clients = clients.collect();
        PhpLoad { ends, statuses, clients }
    }

    fn statuses(&self) -> BTreeMap<u16, usize> {
        self.statuses.lock().unwrap().clone()
    }

    /// Waits until so many more requests have been answered by PHP.
    fn wait_requests(&self, count: usize) {
        let answered = || self.statuses().get(&201).copied().unwrap_or_default();
        let before = answered();
        wait::until("requests", wait::PATIENCE, || (answered() >= before + count).then_some(()));
    }

    fn end(self) -> BTreeMap<u16, usize> {
        self.ends.store(true, Ordering::Release);
        for client in self.clients {
            client.join().unwrap();
        }
        self.statuses.lock().unwrap().clone()
    }
}
