//! `mp4`. What parts contain is tested with the parser; here it is what clients see.

use nowait_testkit::movie::{self, MovieSample, Track, movie, play};

use crate::stage::{ask, asks_nginx, on_each_driver, refused, server};

fn tracks() -> [Track; 2] {
    [Track::video(10, 60, &[10]), Track::sound(50, 50, &[40, 60])]
}

fn samples(file: &[u8]) -> Vec<Vec<MovieSample>> {
    play(file).into_iter().map(|track| track.samples).collect()
}

#[test]
fn parts_by_time() {
    let [video, sound] = tracks();
    let tail = movie(&tracks(), false);
    let fast = movie(&tracks(), true);
    let builder = server(
        "location / { mp4; index index.html; }
        location /key/ { mp4; mp4_start_key_frame on; alias %%DIR%%/html/; }
        location /small/ { mp4; mp4_buffer_size 16; alias %%DIR%%/html/; }",
    )
    .file("html/a.mp4", tail.clone())
    .file("html/b.mp4", fast.clone())
    .file("html/index.html", "index");
    let part = |from: usize, to: usize| {
        let sound = &sound.samples[(5 * from).min(2500)..(5 * to).min(2500)];
        let mut all = vec![video.samples[from..to].to_vec(), sound.to_vec()];
        // A track that ends before the part is absent.
        all.retain(|samples| !samples.is_empty());
        all
    };
    on_each_driver(&builder, |server| {
        for file in ["a", "b", "small/a"] {
            for (arguments, from, to) in [
                ("start=20&end=30", 200, 300),
                ("start=20.1&end=30.000", 201, 300),
                ("end=30&start=20", 200, 300),
                ("START=1.0000001", 10, 600),
                ("end=.3", 0, 3),
                ("start=55", 550, 600),
                ("start=55&end=99", 550, 600),
                ("start=5&end=5", 50, 600),
                ("start=5&end=2", 50, 600),
                ("start=5&end=x", 50, 600),
            ] {
                let response = ask(server, &format!("/{file}.mp4?{arguments}"), &[]);
                assert_eq!(response.status, 200, "{arguments}");
                assert_eq!(samples(&response.body), part(from, to), "{file} {arguments}");
            }
        }
        // The whole file, as it is or with the table of contents first.
        for arguments in ["", "?start=x", "?start=", "?end=0", "?start=-1", "?x=1"] {
            assert_eq!(ask(server, &format!("/a.mp4{arguments}"), &[]).body, tail, "{arguments}");
        }
        assert_eq!(ask(server, "/b.mp4?start=0", &[]).body, fast);
        let moved = ask(server, "/a.mp4?start=0", &[]).body;
        assert_ne!(moved, tail);
        assert_eq!(samples(&moved), samples(&tail));
        // Four pictures precede the start time.
        let key = play(&ask(server, "/key/a.mp4?start=20.4&end=21", &[]).body);
        assert_eq!(key[0].samples, video.samples[200..210]);
        assert_eq!((key[0].edit, key[0].decoded), (Some((600, 400)), 1000));
        assert_eq!(key[1].samples, sound.samples[1020..1050]);
        // Others have their turn.
        assert_eq!(ask(server, "/", &[]).text(), "index");
        assert_eq!(ask(server, "/none.mp4?start=1", &[]).status, 404);
        let mut client = server.client();
        client.send("POST /a.mp4 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.response().status, 405);
    });
}

#[test]
fn parts_are_like_files() {
    let file = movie(&tracks(), false);
    let builder = server("location / { mp4; types { video/mp4 mp4; } }").file("html/a.mp4", file);
    on_each_driver(&builder, |server| {
        let whole = ask(server, "/a.mp4?start=20", &[]);
        assert_eq!(whole.header("content-type"), Some("video/mp4"));
        assert_eq!(whole.header("accept-ranges"), Some("bytes"));
        let etag = whole.header("etag").unwrap().to_owned();
        let size = whole.body.len();
        let mut client = server.client();
        client.send("HEAD /a.mp4?start=20 HTTP/1.1\r\nHost: x\r\n\r\n");
        let head = client.response_to_head();
        assert_eq!(head.header("content-length"), Some(size.to_string().as_str()));
        // Within the beginning, across, within the file.
        for (from, to) in [(0, 9), (30, size - 2), (size - 20, size - 1)] {
            let range = format!("Range: bytes={from}-{to}");
            let response = ask(server, "/a.mp4?start=20", &[&range]);
            assert_eq!((response.status, &response.body[..]), (206, &whole.body[from..=to]));
        }
        let condition = format!("If-None-Match: {etag}");
        assert_eq!(ask(server, "/a.mp4?start=20", &[&condition]).status, 304);
    });
}

#[test]
fn large_tables_are_shortened_elsewhere() {
    let track = Track::video(50, 2000, &[3, 1]);
    let file = movie(std::slice::from_ref(&track), true);
    assert!(movie::moov(&file).len() > 1 << 20);
    let builder = server(
        "location / { mp4; mp4_buffer_size 4k; }
        location /few/ { mp4; mp4_buffer_size 4k; mp4_max_buffer_size 1m; alias %%DIR%%/html/; }",
    )
    .file("html/a.mp4", file);
    on_each_driver(&builder, |server| {
        let part = ask(server, "/a.mp4?start=1500&end=1500.2", &[]);
        assert_eq!(samples(&part.body), [&track.samples[75_000..75_010]]);
        assert_eq!(ask(server, "/few/a.mp4?start=1", &[]).status, 500);
        server.wait_file("error.log", "you may want to increase mp4_max_buffer_size");
    });
}

#[test]
fn broken_files_are_named() {
    let file = movie(&[Track::video(10, 8, &[10])], true);
    let broken = |name: &str, at: usize, bytes: &[u8]| {
        let mut file = file.clone();
        let place = file.windows(4).position(|of| of == name.as_bytes()).unwrap() + at;
        file[place..place + bytes.len()].copy_from_slice(bytes);
        file
    };
    let mut twice = file.clone();
    twice.splice(..0, movie::atom("mdat", b"x").repeat(2));
    let files = [
        ("late", file.clone(), "mp4 start time exceeds file duration"),
        ("stts", broken("stts", 8, &[0xff; 4]), "mp4 stts atom too small"),
        ("chunk", broken("stco", 12, &[0xff; 4]), "too large chunk offset"),
        ("cmov", broken("mvhd", 0, b"cmov"), "mp4 compressed moov atom (cmov) is not supported"),
        ("size", broken("trak", 0, b"\xff"), "mp4 trak atoms were found"),
        ("text", b"not an MP4 file at all".to_vec(), "mp4 atom too large:1852797984"),
        ("twice", twice, "duplicate mp4 mdat atom"),
        ("empty", Vec::new(), "no mp4 trak atoms were found"),
        ("cut", file[..file.len() - 1].to_vec(), "mp4 atom too large"),
    ];
    let mut builder = server(
        "location / { mp4; }
        location /limited/ { mp4; mp4_limit_rate on; alias %%DIR%%/html/; }",
    );
    for (name, file, _) in &files {
        builder = builder.file(&format!("html/{name}.mp4"), file.clone());
    }
    on_each_driver(&builder, |server| {
        for (name, file, message) in &files {
            let start = if *name == "late" { "9" } else { "0.5" };
            let target = format!("/{name}.mp4?start={start}");
            assert_eq!(ask(server, &target, &[]).status, 500, "{name}");
            server.wait_file("error.log", message);
            // Without times it is only a file.
            assert_eq!(&ask(server, &format!("/{name}.mp4"), &[]).body, file, "{name}");
            assert_eq!(&ask(server, &format!("/limited/{name}.mp4"), &[]).body, file, "{name}");
        }
    });
}

#[test]
fn the_rate_is_that_of_the_file() {
    if asks_nginx() {
        // A directive of its commercial version.
        return;
    }
    let mut track = Track::video(1, 600, &[10]);
    for sample in &mut track.samples {
        sample.bytes.resize(1000, 0);
    }
    let file = movie(&[track], true);
    let builder = server(
        "location / { mp4; mp4_limit_rate 2.5; mp4_limit_rate_after 10s; }
        location /off/ { mp4; alias %%DIR%%/html/; }
        location /set/ { mp4; mp4_limit_rate on; set $limit_rate 0; alias %%DIR%%/html/; }
        location /fast/ { mp4; mp4_limit_rate on; mp4_limit_rate_after 1h; alias %%DIR%%/html/; }
        add_header X-Rate $limit_rate;",
    )
    .file("html/a.mp4", file.clone());
    let rate = |factor: usize| (file.len() * factor / 1000 / 600).to_string();
    on_each_driver(&builder, |server| {
        for (target, expected) in [
            ("/a.mp4", rate(2500)),
            ("/a.mp4?start=300", rate(2500)),
            ("/fast/a.mp4", rate(1100)),
            ("/off/a.mp4", "0".to_owned()),
            ("/set/a.mp4", "0".to_owned()),
        ] {
            let mut client = server.client();
            client.send(format!("HEAD {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let head = client.response_to_head();
            assert_eq!(head.header("x-rate"), Some(expected.as_str()), "{target}");
        }
        // All of it is sent before the limit applies.
        assert_eq!(ask(server, "/fast/a.mp4", &[]).body, file);
    });
    let wrong = server("location / { mp4; mp4_limit_rate fast; }");
    refused(&wrong, "\"mp4_limit_rate\" directive invalid value");
}
