//! `cargo xtask peers`: the tests in `tests/peers`, with every peer that they know.

use std::process::Command;

use crate::workspace::{Outcome, cargo, require, root, succeed};

const USAGE: &str = "usage: cargo xtask peers [--install] [TEST]...

  --install        installs the Debian packages that the tests use (as root)
  TEST             part of the name of a test (default: all)

Fetches h2spec, pebble and grpc-go's interoperability programs (Go), httpx (Python), and axe-core (npm), to
target/peers, and builds a receiver of traces and a client of HTTP/3 by quic-go (Go) there.";

/// Programs that the tests run, with their Debian packages.
const PROGRAMS: &[(&str, &str)] = &[
    ("curl", "curl"),
    ("nginx", "nginx"),
    ("openssl", "openssl"),
    ("python3", "python3-venv"),
    ("nghttp", "nghttp2-client"),
    ("h2load", "nghttp2-client"),
    ("chromium", "chromium"),
    ("certutil", "libnss3-tools"),
    ("testssl", "testssl.sh"),
    ("go", "golang"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("uwsgi", "uwsgi"),
    ("memcached", "memcached"),
    ("litmus", "litmus"),
    ("cadaver", "cadaver"),
    ("mariadbd", "mariadb-server"),
];

/// Further Debian packages. Tests say by themselves if one of these is missing.
const PACKAGES: &[&str] =
    &["php-fpm", "php-mysql", "phpmyadmin", "python3-django", "uwsgi-plugin-python3", "wordpress"];

/// The conformance tests of HTTP/2.
const H2SPEC: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";

/// An issuer of certificates for tests of ACME clients.
const PEBBLE: &str = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1";

/// Client and server of grpc-go that exercise each other.
const GRPC: [&str; 2] = ["client", "server"];

/// Their version.
const GRPC_VERSION: &str = "v1.72.0";

/// Programs in Go that are built here, and their directories.
const BUILT: [(&str, &str); 2] = [("otlp-receiver", "otlp"), ("http3-client", "http3")];

/// A client library of Python, with HTTP/2.
const HTTPX: &str = "httpx[http2]==0.28.1";

/// Finds barriers in pages.
const AXE: &str = "axe-core@4.10.3";

/// Fetches what is missing, and runs the tests. `args`: parts of tests' names.
pub fn run(args: &[String]) -> Outcome {
    let mut args = args;
    if let [first, rest @ ..] = args
        && first == "--install"
    {
        install()?;
        args = rest;
    }
    if args.iter().any(|arg| arg.starts_with('-')) {
        return Err(USAGE.to_owned());
    }
    require(PROGRAMS)?;
    fetch()?;
    let mut command = cargo();
    command.args(["test", "--locked", "-p", "nowait", "--test", "peers", "--"]).args(args);
    succeed(command.env("NOWAIT_TESTS_REQUIRE", "peers"))
}

/// Installs what Debian has.
fn install() -> Outcome {
    let mut command = Command::new("apt-get");
    command.args(["install", "--yes", "--no-install-recommends"]);
    command.args(PROGRAMS.iter().map(|(_, package)| package)).args(PACKAGES);
    succeed(command.env("DEBIAN_FRONTEND", "noninteractive"))
}

fn fetch() -> Outcome {
    let dir = root().join("target/peers");
    if !dir.join("bin/h2spec").is_file() {
        succeed(Command::new("go").args(["install", H2SPEC]).env("GOBIN", dir.join("bin")))?;
    }
    if !dir.join("bin/pebble").is_file() {
        succeed(Command::new("go").args(["install", PEBBLE]).env("GOBIN", dir.join("bin")))?;
    }
    for name in GRPC {
        let file = dir.join(format!("bin/grpc-interop-{name}"));
        if !file.is_file() {
            let package = format!("google.golang.org/grpc/interop/{name}@{GRPC_VERSION}");
            succeed(Command::new("go").args(["install", &package]).env("GOBIN", dir.join("grpc")))?;
            std::fs::rename(dir.join("grpc").join(name), &file)
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    for (name, source) in BUILT {
        let program = dir.join("bin").join(name);
        if !program.is_file() {
            let mut build = Command::new("go");
            build.arg("build").arg("-o").arg(&program).arg(".");
            succeed(build.current_dir(root().join("tests/peers/programs").join(source)))?;
        }
    }
    let environment = dir.join("venv");
    if !environment.join("bin/httpx").is_file() {
        succeed(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        succeed(Command::new(environment.join("bin/pip")).args(["install", "--quiet", HTTPX]))?;
    }
    if !dir.join("node_modules/axe-core/axe.min.js").is_file() {
        let mut command = Command::new("npm");
        command
            .args(["install", "--no-save", "--ignore-scripts", "--silent", "--prefix"])
            .arg(&dir);
        succeed(command.arg(AXE))?;
    }
    Ok(())
}
