//! The command line: options, `-t`, `-T`, the reference, and their messages.

use super::*;

#[test]
fn version_and_usage_go_to_standard_error() {
    let output = nowait(&["-v"]);
    assert!(output.status.success());
    assert!(stderr(&output).contains("nginx version: nginx/1.31.4\n"));
    let output = nowait(&["-V"]);
    assert!(stderr(&output).contains("configure arguments: "));
    assert!(stderr(&output).contains("--without-mail_pop3_module"));
    let output = nowait(&["-?"]);
    assert!(output.status.success());
    assert!(stderr(&output).contains("Usage: nowait [-?hvVtTq]"));
    for command in ["serve [DIR]", "reference NAME", "cache purge"] {
        assert!(stderr(&output).contains(command), "{}", stderr(&output));
    }
}

#[test]
fn the_reference_is_in_the_binary() {
    let output = nowait(&["reference", "directives"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("### worker_processes\n"));
    let output = nowait(&["reference", "$uri"]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("### `$uri` in http\n"));
    let output = nowait(&["reference"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("Usage: nowait reference <NAME>"), "{}", stderr(&output));
    let output = nowait(&["reference", "autoindx"]);
    assert_eq!(output.status.code(), Some(1));
    let message = "nowait: there is no directive, variable or page \"autoindx\"; did you mean \
                   \"autoindex\"?\n";
    assert!(stderr(&output).starts_with(message), "{}", stderr(&output));
}

#[test]
fn a_reader_that_has_gone_is_no_reason_to_panic() {
    let dir = TempDir::new("pipe");
    dir.write("nginx.conf", "events {}");
    let path = dir.path().to_str().unwrap();
    for arguments in [
        &["reference", "directives"][..],
        &["serve", "--help"],
        &["-p", path, "-c", "nginx.conf", "-T"],
        &["-h"],
        &["-x"],
        &["-p", path, "-c", "missing.conf", "-t"],
    ] {
        let closed = || {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            writer
        };
        // One of them at a time: the other one would tell of the panic.
        let output = binary().command().args(arguments).stdout(closed()).output().unwrap();
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
        let status =
            binary().command().args(arguments).stdout(closed()).stderr(closed()).status().unwrap();
        assert!(matches!(status.code(), Some(0 | 1)), "{arguments:?}: {status}");
    }
}

#[test]
fn wrong_options_are_refused_in_nginx_words() {
    for (arguments, message) in [
        (&["stop"][..], "nowait: invalid option: \"stop\"\n  = hint: did you mean \"-s stop\"?\n"),
        (&["relod"], "nowait: invalid option: \"relod\"\n  = hint: did you mean \"-s reload\"?\n"),
        (
            &["explian", "http://a/"],
            "nowait: invalid option: \"explian\"\n  = hint: did you mean \"explain\"?\n",
        ),
        (
            &["nothing"],
            "nowait: invalid option: \"nothing\"\n  = hint: \"nowait help\" lists the commands, \
             \"nowait -h\" the options\n",
        ),
        (
            &["--port=9000"],
            "nowait: invalid option: \"-\"\n  = hint: \"--port\" is an option of \"nowait serve\"\n",
        ),
        (
            &["/usr"],
            "nowait: invalid option: \"/usr\"\n  = hint: \"nowait serve /usr\" serves this directory\n",
        ),
        (&["-tx"], "nowait: invalid option: \"x\"\n  = hint: \"nowait -h\" lists the options\n"),
        (
            &["-s", "halt"],
            "nowait: invalid option: \"-s halt\"\n  = hint: \"-s\" takes one of stop, quit, reopen, \
             reload\n",
        ),
        (&["-c"], "nowait: option \"-c\" requires file name\n"),
    ] {
        let output = nowait(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stderr(&output), message);
    }
}

#[test]
fn a_test_says_so_and_touches_nothing() {
    let dir = TempDir::new("test");
    let text = "pid x.pid; error_log logs/error.log; events {}\n\
                http { server { listen 127.0.0.1:8080; return 200 x; } }\n";
    dir.write("nginx.conf", text);
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-e", "early.log", "-t"]);
    let expected = format!(
        "nowait: the configuration file {path}/nginx.conf syntax is ok\n\
         nowait: configuration file {path}/nginx.conf test is successful\n"
    );
    assert_eq!(stderr(&output), expected);
    assert!(output.status.success());
    assert_eq!(listing(dir.path()), ["nginx.conf"]);
    assert_eq!(stderr(&nowait(&["-p", path, "-cnginx.conf", "-tq"])), "");
}

#[test]
fn a_failed_test_shows_every_error_where_it_is() {
    let dir = TempDir::new("test");
    dir.write("nginx.conf", "worker_procesess 2;\nevents { use kqueue; }\n");
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    let first =
        format!("nowait: [emerg] unknown directive \"worker_procesess\" in {path}/nginx.conf:1\n");
    assert!(text.starts_with(&first), "{text}");
    assert!(text.contains("did you mean \"worker_processes\"?"), "{text}");
    assert!(text.contains(&format!("invalid event type \"kqueue\" in {path}/nginx.conf:2\n")));
    assert!(text.ends_with(&format!("configuration file {path}/nginx.conf test failed\n")));
}

/// The exit code of `-t --json`, and what it prints.
fn findings(dir: &TempDir) -> (Option<i32>, serde_json::Value) {
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t", "--json"]);
    assert_eq!(stderr(&output), "");
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn findings_are_available_as_json() {
    let dir = TempDir::new("json");
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    dir.write("nginx.conf", "pid x.pid; events {}\nhttp { include a.inc; }\n");
    dir.write("a.inc", "server { listen 127.0.0.1:8080;\n    \"\u{e9}\" 1; frob; frob;\n}\n");
    let (code, found) = findings(&dir);
    assert_eq!(code, Some(1));
    assert_eq!((&found["ok"], &found["not_listed"]), (&false.into(), &0.into()));
    assert_eq!(found["configuration"], file("nginx.conf"));
    let list = found["findings"].as_array().unwrap();
    let places: Vec<_> = list.iter().map(|found| found["column"].as_u64().unwrap()).collect();
    assert_eq!(places, [5, 12, 18], "a recurring problem is listed once for each place: {found}");
    for found in list {
        assert_eq!(found["file"], file("a.inc"));
        assert_eq!((&found["line"], &found["severity"]), (&2.into(), &"emerg".into()));
    }
    assert_eq!(list[1]["message"], "unknown directive \"frob\"");

    dir.write(
        "a.inc",
        "server { listen 127.0.0.1:8080; lisen 1;\nlocation /a { } location /a { } }\n",
    );
    let (code, found) = findings(&dir);
    assert_eq!(code, Some(1));
    assert_eq!(found["findings"][0]["hint"], "did you mean \"listen\"?");
    let note = &found["findings"][1]["notes"][0];
    assert_eq!((&note["file"], &note["line"]), (&file("a.inc").into(), &2.into()), "{found}");

    // Warnings alone refuse nothing.
    let server = "server { listen 127.0.0.1:8080; server_name a; }\n";
    dir.write("a.inc", format!("access_log off; {server}{server}"));
    let (code, found) = findings(&dir);
    assert_eq!((code, &found["ok"]), (Some(0), &true.into()), "{found}");
    assert_eq!(found["findings"][0]["severity"], "warn");

    // What a start would stumble over has no place.
    dir.write("a.inc", server);
    dir.write("nginx.conf", "pid missing/x.pid; events {} http { access_log off; include a.inc; }");
    let (code, found) = findings(&dir);
    assert_eq!((code, &found["ok"]), (Some(1), &false.into()));
    let only = &found["findings"][0];
    assert!(only["file"].is_null() && only["line"].is_null() && only["column"].is_null());
    assert!(only["message"].as_str().unwrap().contains("missing/x.pid"), "{found}");
    assert!(only["hint"].as_str().unwrap().contains("create the directory"), "{found}");
    assert_eq!(found["findings"].as_array().unwrap().len(), 1);

    let output = nowait(&["--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "nowait: option \"--json\" works only with \"-t\"\n");
}

#[test]
fn findings_beyond_the_limit_are_counted_by_level() {
    let dir = TempDir::new("many");
    let path = dir.path().to_str().unwrap();
    let network = |n: usize| format!("10.{n}.0.0/16 a;\n10.{n}.0.0/16 b;\n");
    let networks: String = (0..150).map(network).collect();
    let configuration = |more: &str| {
        let server = "server { listen 127.0.0.1:8080; }";
        format!(
            "pid x.pid; events {{}} http {{ access_log off; geo $g {{ {networks} }} {server} {more} }}"
        )
    };
    dir.write("nginx.conf", configuration(""));
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("\nnowait: [warn] 50 more warnings not shown\n"));
    assert!(stderr(&output).ends_with("test is successful\n"));
    let (code, found) = findings(&dir);
    assert_eq!((code, &found["ok"], &found["not_listed"]), (Some(0), &true.into(), &50.into()));

    let unknown: String = (0..101).map(|n| format!("frob{n};\n")).collect();
    dir.write("nginx.conf", configuration(&unknown));
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    assert_eq!(output.status.code(), Some(1));
    let summary = "\nnowait: [emerg] 1 more error not shown\n\
                   nowait: [warn] 50 more warnings not shown\n";
    assert!(stderr(&output).contains(summary), "{}", stderr(&output));
    let (code, found) = findings(&dir);
    assert_eq!((code, &found["ok"], &found["not_listed"]), (Some(1), &false.into(), &51.into()));
    assert_eq!(found["findings"].as_array().unwrap().len(), 200);
}

#[test]
fn a_name_given_twice_is_shown_where_it_is_ignored() {
    let dir = TempDir::new("twice");
    let server = "server { listen 127.0.0.1:8080; server_name a; }\n";
    dir.write("nginx.conf", format!("events {{}} http {{\n{server}{server}}}\n"));
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    assert!(output.status.success());
    let warning = format!(
        "[warn] conflicting server name \"a\" on 127.0.0.1:8080, ignored in {path}/nginx.conf:3\n"
    );
    assert!(stderr(&output).contains(&warning), "{}", stderr(&output));
}

#[test]
fn what_does_not_do_what_it_seems_to_is_warned_of() {
    let dir = TempDir::new("seems");
    let path = dir.path().to_str().unwrap();
    let open = "[warn] \"auth_basic\" has no effect without \"auth_basic_user_file\"";
    let handlers = "replaces another handler of the same block, only the last one is used";
    for (server, warnings) in [
        ("auth_basic a;", vec![open]),
        // One line is named once, no matter which blocks inherit it.
        ("auth_basic a; location / { } location /a { location /a/b { } }", vec![open]),
        ("location / { limit_except GET { auth_basic a; } }", vec![open]),
        ("auth_basic a; location / { auth_basic_user_file f; }", vec![]),
        ("auth_basic a; location / { auth_basic off; }", vec![]),
        ("auth_basic off;", vec![]),
        ("location / { metrics; status_api; stub_status; }", vec![handlers, handlers]),
        ("location / { proxy_pass http://127.0.0.1:1; empty_gif; }", vec![handlers]),
        (
            "location / { stub_status; stub_status; if ($arg_a) { proxy_pass http://127.0.0.1:1; } }",
            vec![],
        ),
    ] {
        dir.write("nginx.conf", format!("events {{}} http {{ server {{ {server} }} }}\n"));
        let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
        assert!(output.status.success());
        let said = stderr(&output);
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("[warn]")).collect();
        assert_eq!(lines.len(), warnings.len(), "{server}: {said}");
        for (line, warning) in lines.iter().zip(warnings) {
            assert!(line.contains(warning), "{server}: {said}");
        }
    }
}

#[test]
fn a_dump_prints_every_file_once() {
    let dir = TempDir::new("dump");
    let main = "include a.inc;\ninclude a.in?;\nevents {}\n";
    dir.write("nginx.conf", main);
    dir.write("a.inc", "env A=1;\n");
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-T"]);
    let expected = format!(
        "# configuration file {path}/nginx.conf:\n{main}\n\
         # configuration file {path}/a.inc:\nenv A=1;\n\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn directives_of_the_main_context_are_checked() {
    let dir = TempDir::new("main");
    let path = dir.path().to_str().unwrap();
    for (line, message) in [
        ("thread_pool x max_queue=1;", "\"x\" must have \"threads\" parameter"),
        ("thread_pool x threads=0;", "invalid threads value \"threads=0\""),
        ("thread_pool x threads=1; thread_pool x threads=2;", "duplicate thread pool \"x\""),
        ("worker_processes many;", "\"worker_processes\" directive invalid value"),
        ("worker_cpu_affinity 0102;", "invalid character \"2\" in \"worker_cpu_affinity\""),
        ("error_log x loud;", "invalid log level \"loud\""),
        (
            "load_module modules/ngx_http_lua_module.so;",
            "module \"ngx_http_lua_module\" does not exist in nowait",
        ),
        ("daemon on; daemon off;", "\"daemon\" directive is duplicate"),
        ("events { use select; }", "invalid event type \"select\""),
    ] {
        let text =
            if line.contains("events") { line.into() } else { format!("{line} events {{}}") };
        dir.write("nginx.conf", text);
        let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(stderr(&output).contains(message), "{line}: {}", stderr(&output));
    }
    dir.write(
        "nginx.conf",
        "load_module modules/ngx_http_headers_more_filter_module.so; \
         worker_processes auto; worker_cpu_affinity auto; thread_pool default threads=4; \
         thread_pool d1 threads=1 max_queue=0; worker_priority -5; worker_rlimit_core 500M; \
         worker_shutdown_timeout 5s; timer_resolution 100ms; lock_file x; pcre_jit on; \
         debug_points stop; env PATH; error_log x debug_http; ssl_object_cache_inheritable on; \
         events { use epoll; multi_accept on; accept_mutex on; accept_mutex_delay 100ms; \
         epoll_events 1; worker_aio_requests 64; event_loop_guard strict; worker_connections 10; }",
    );
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Images for containers without privileges set all directories, no matter which are used.
#[test]
fn lines_without_effect_are_accepted() {
    let dir = TempDir::new("idle-lines");
    let path = dir.path().to_str().unwrap();
    let conf = |listen: &str| {
        format!(
            "pid nginx.pid; events {{ worker_connections 64; }} http {{ \
             client_body_temp_path client_temp; proxy_temp_path proxy_temp_path; \
             fastcgi_temp_path fastcgi_temp; uwsgi_temp_path uwsgi_temp; scgi_temp_path scgi_temp; \
             types_hash_max_size 2048; server_names_hash_bucket_size 128; connection_pool_size 256; \
             http3 on; quic_gso on; quic_retry off; http3_stream_buffer_size 1m; \
             http3_max_concurrent_streams 64; quic_active_connection_id_limit 2; \
             server {{ {listen} http3_hq off; access_log off; }} }}"
        )
    };
    dir.write("nginx.conf", conf("listen 127.0.0.1:8000;"));
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    assert!(output.status.success(), "{}", stderr(&output));
    dir.write("nginx.conf", conf("listen 127.0.0.1:8000 quic;"));
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    let text = "no \"ssl_certificate\" is defined for the \"listen ... quic\" directive";
    assert!(stderr(&output).contains(text), "{}", stderr(&output));
    dir.write("nginx.conf", conf("listen 127.0.0.1:8000; quic_host_key missing.key;"));
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    assert!(
        stderr(&output).contains("missing.key\" failed (2: No such file"),
        "{}",
        stderr(&output)
    );
    dir.write("nginx.conf", conf("listen 127.0.0.1:8000; http3_hq maybe;"));
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    assert!(stderr(&output).contains("\"http3_hq\""), "{}", stderr(&output));
}

#[test]
fn what_could_be_waited_for_forever_is_refused() {
    let dir = TempDir::new("irregular");
    let path = dir.path().to_str().unwrap();
    fs::create_dir(dir.path().join("conf.d")).unwrap();
    dir.write("nginx.conf", "events {}\ninclude conf.d/*;\n");
    let fifo = dir.path().join("conf.d/fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let said = stderr(&nowait(&["-p", path, "-c", "nginx.conf", "-t"]));
    let expected = format!(
        "nowait: [emerg] open() \"{path}/conf.d/fifo\" failed (it is not a regular file but a FIFO) in \
         {path}/nginx.conf:2\n"
    );
    assert!(said.starts_with(&expected), "{said}");
    assert!(said.contains("= hint: name a regular file"), "{said}");
    // Nor is it the main file, and nor does a start wait.
    let output = nowait(&["-p", path, "-c", "conf.d/fifo"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("conf.d/fifo\" failed (it is not"), "{}", stderr(&output));
    dir.write(
        "nginx.conf",
        "events {}\nhttp { server { listen 127.0.0.1:8080; } }\ninclude /dev/zero;\n",
    );
    let said = stderr(&nowait(&["-p", path, "-c", "nginx.conf", "-t"]));
    assert!(
        said.contains("\"/dev/zero\" failed (it is not a regular file but a device)"),
        "{said}"
    );
}

#[test]
fn a_configuration_may_come_from_a_pipe() {
    let dir = TempDir::new("piped");
    let text = "include /dev/null; events {} http { server { listen 127.0.0.1:8080; } }";
    for file in ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        drop(writer);
        let mut command = binary().command();
        command.arg("-p").arg(dir.path()).args(["-t", "-c", file]);
        let output = command.stdin(reader).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(!stderr(&output).contains("[warn]"), "it was read: {}", stderr(&output));
    }
}
