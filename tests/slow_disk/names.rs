//! Names that are not in memory: no matter which request looks them up, the loop does not wait.

use nowait_testkit::slow_disk::Ops;

use crate::stage::{Case, Setup, Stage, content, on_every_case, paths};

on_every_case!(
    open,
    open_file_cache,
    try_files,
    conditions,
    index,
    autoindex,
    error_page,
    missing,
    challenges
);

/// What a look at a name may ask of a file system.
fn looks() -> Ops {
    Ops::LOOKUP | Ops::GETATTR | Ops::OPEN
}

fn open(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_many_cold_files(300);
    let Some(mut run) = stage.start("") else { return };
    let gate = run.hold(looks());
    let mut cold = run.request(paths(&names));
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    cold.assert_waits();
    gate.open();
    cold.assert_right();
    run.finish();
}

/// An entry of the cache that is due to be looked at again.
fn open_file_cache(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let cache = "location /cold/ {
        open_file_cache max=1000; open_file_cache_valid 0; open_file_cache_min_uses 1;
    }";
    let Some(mut run) = stage.start(cache) else { return };
    if run.is_local() {
        // Nothing of it is cold once it is in the cache; let it fill while the disk is held.
        let gate = run.hold(looks());
        let mut cold = run.request(paths(&names));
        gate.wait_waiting(1);
        run.assert_hot_is_served();
        gate.open();
        cold.assert_right();
    } else {
        run.request(paths(&names)).assert_right();
        let gate = run.hold(looks());
        let mut cold = run.request(paths(&names));
        gate.wait_waiting(1);
        run.assert_hot_is_served();
        gate.open();
        cold.assert_right();
    }
    run.finish();
}

fn try_files(case: Case) {
    const FALLBACK: &str = "cold/fallback";
    let Some(stage) = Stage::new(case) else { return };
    stage.write(FALLBACK, content(FALLBACK));
    let locations = "location /cold/ { try_files $uri $uri.html $uri/ /cold/fallback; }";
    let Some(mut run) = stage.start(locations) else { return };
    let gate = run.hold(looks());
    let mut cold = run.request((0..20).map(|n| format!("/cold/nothing{n}")));
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    cold.assert_waits();
    gate.open();
    for (path, response) in cold.responses() {
        assert_eq!(response.status, 200, "{path}: {response}");
        assert!(response.body == content(FALLBACK), "{path}: wrong content");
    }
    run.finish();
}

/// Tests of files in `if`, with other code before and after them.
fn conditions(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let names = stage.write_cold_files();
    let code = "location /cold/ {
        set $found no;
        if (-f $document_root/cold/maintenance) { return 503; }
        if (-e $request_filename) { set $found yes; }
        if ($found = no) { rewrite ^ /none last; }
    }
    location /none { return 404 none; }";
    let Some(mut run) = stage.start(code) else { return };
    let gate = run.hold(looks());
    let mut cold = run.request(paths(&names));
    let mut none = run.request((0..20).map(|n| format!("/cold/nothing{n}")));
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    cold.assert_waits();
    gate.open();
    cold.assert_right();
    for (path, response) in none.responses() {
        assert_eq!(response.status, 404, "{path}: {response}");
        assert_eq!(response.text(), "none", "{path}");
    }
    run.finish();
}

fn index(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    let dirs: Vec<_> = (0..20).map(|n| format!("cold/dir{n}/")).collect();
    for dir in &dirs {
        stage.write(&format!("{dir}second.html"), content(dir));
    }
    let locations = "location /cold/ { index first.html second.html; }";
    let Some(mut run) = stage.start(locations) else { return };
    let gate = run.hold(looks());
    let mut cold = run.request(paths(&dirs));
    // Without the last slash: a look that ends in a redirect.
    let mut redirected =
        run.request(dirs.iter().map(|dir| format!("/{}", dir.trim_end_matches('/'))));
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    cold.assert_waits();
    gate.open();
    cold.assert_right();
    for (path, response) in redirected.responses() {
        assert_eq!(response.status, 301, "{path}: {response}");
    }
    run.finish();
}

fn autoindex(case: Case) {
    const ENTRIES: usize = 50;
    let Some(stage) = Stage::new(case) else { return };
    for n in 0..ENTRIES {
        stage.write(&format!("cold/list/entry{n}"), "x");
    }
    let Some(mut run) = stage.start("location /cold/ { autoindex on; }") else { return };
    let gate = run.hold(looks() | Ops::READDIR);
    let mut cold = run.request(["/cold/list/"; 20]);
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    cold.assert_waits();
    gate.open();
    for (_, response) in cold.responses() {
        let text = response.text();
        for n in 0..ENTRIES {
            assert!(text.contains(&format!(">entry{n}</a>")), "entry{n} is missing in {text}");
        }
    }
    run.finish();
}

/// The page for an error comes from the slow disk, as does the look that ends in the error.
fn error_page(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    stage.write("cold/404.html", content("cold/404.html"));
    let locations = "error_page 404 /cold/404.html; error_page 403 = /cold/404.html;
                     location /forbidden { return 403; }";
    let Some(mut run) = stage.start(locations) else { return };
    let gate = run.hold(looks());
    let mut missing = run.request((0..10).map(|n| format!("/cold/nothing{n}")));
    let mut forbidden = run.request(["/forbidden"; 10]);
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    missing.assert_waits();
    forbidden.assert_waits();
    gate.open();
    for (status, cold) in [(404, &mut missing), (200, &mut forbidden)] {
        for (path, response) in cold.responses() {
            assert_eq!(response.status, status, "{path}: {response}");
            assert!(response.body == content("cold/404.html"), "{path}: wrong content");
        }
    }
    run.finish();
}

/// What is not there has to be looked for as well, each time again on a file system that says so.
fn missing(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    stage.write("cold/other", "x");
    let Some(mut run) = stage.start("") else { return };
    let gate = run.hold(looks());
    let mut cold = run.request((0..40).map(|n| format!("/cold/deep/er{n}/nothing{n}")));
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    cold.assert_waits();
    gate.open();
    for (path, response) in cold.responses() {
        assert_eq!(response.status, 404, "{path}: {response}");
    }
    run.finish();
}

/// Responses to challenges in a state that instances share.
fn challenges(case: Case) {
    let Some(stage) = Stage::new(case) else { return };
    stage.make_shared_dir("state");
    stage.write("state/challenge-token", "token.print");
    let setup = Setup {
        main: "",
        http: "acme_issuer shared {
            uri https://localhost/; ssl_verify off; state_path %%DISK%%/state;
        }",
        locations: "location /.well-known/ { return 404 own; }",
    };
    let Some(mut run) = stage.start_as(setup) else { return };
    let gate = run.hold(looks() | Ops::READ);
    let path = "/.well-known/acme-challenge/token";
    let mut cold = run.request([path; 20]);
    gate.wait_waiting(1);
    run.assert_hot_is_served();
    gate.open();
    for (path, response) in cold.responses() {
        // Only some are looked for at a time, and not for long.
        let is_right = match response.status {
            200 => response.body == b"token.print",
            status => status == 404 && response.body == b"own",
        };
        assert!(is_right, "{path}: {response}");
    }
    for (path, response) in run.request([path]).responses() {
        assert_eq!(response.status, 200, "{path}: {response}");
    }
    run.finish();
}
