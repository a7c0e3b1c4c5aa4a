//! The `nowait` program: command line, master and server process, generations, signals.
#![forbid(unsafe_code)]

mod builtin;
mod cache_command;
mod cli;
mod conf_core;
mod config;
mod control;
mod counters;
mod engine;
mod events;
mod features;
mod http_service;
mod log;
mod logs;
mod master;
mod notify;
mod pidfile;
mod place;
mod preflight;
mod program;
mod reference;
mod server_process;
mod service;
mod services;
mod settings;
mod sockets;
mod stream_service;
mod wire;
mod worker;

use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;

use cli::{Command, Options};
use config::Loaded;
use control::{Answer, Wish};
use log::{Level, Reason, StartupLog, complain};
use master::{Ended, Master};
use notify::Inherited;
use nowait_sys::process;
use nowait_sys::signal::Signal;
use place::Place;

fn main() -> ExitCode {
    // Before anything else can own the inherited numbers.
    let inherited = Inherited::take();
    match run(inherited) {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

fn run(inherited: Inherited) -> Result<u8, String> {
    if let Some(page) = reference::asked(std::env::args_os().skip(1)) {
        print!("{}", page?);
        return Ok(0);
    }
    if let Some(done) = cache_command::asked(std::env::args_os().skip(1)) {
        print!("{}", done?);
        return Ok(0);
    }
    let options = cli::parse(std::env::args_os().skip(1))?;
    if options.version {
        show_version(&options);
        if !options.test {
            return Ok(0);
        }
    }
    let place = Place::find(&options)?;
    if place.builtin && (options.test || options.command.is_some()) {
        complain(&format!(
            "[warn] there is no configuration: neither {} nor conf/{} here; -p and -c name one",
            place.conf_file.display(),
            features::CONF_FILE,
        ));
        if options.command.is_some() {
            return Ok(1);
        }
    }
    if options.test {
        return Ok(test(&options, &place));
    }
    let log = match &place.error_log {
        Some(path) => StartupLog::open(path, Level::Notice),
        // What is normal need not be said to a person who just starts the program.
        None => StartupLog::stderr(Level::Warn),
    };
    let loaded = match config::load(&place) {
        Ok(loaded) => loaded,
        Err(refused) => {
            for line in &refused.lines {
                log.log_file_only(line.level, &line.text);
            }
            eprint!("{}", refused.rendered);
            return Ok(1);
        }
    };
    if let Some(command) = options.command {
        return Ok(signal(command, &loaded, &log));
    }
    eprint!("{}", loaded.rendered);
    for warning in &loaded.warnings {
        log.log_file_only(Level::Warn, warning);
    }
    let ended = match start(place, loaded, inherited, log) {
        ControlFlow::Continue(master) => master.run(),
        ControlFlow::Break(ended) => ended,
    };
    Ok(match ended {
        Ended::Exit(code) => code,
        Ended::Server(start) => server_process::run(*start),
    })
}

fn start(
    place: Place,
    loaded: Loaded,
    inherited: Inherited,
    log: StartupLog,
) -> ControlFlow<Ended, Master> {
    let greeting = place.builtin.then(|| builtin::greeting(&place.prefix));
    let master = Master::start(place, loaded, inherited, log)?;
    if let Some(greeting) = greeting {
        println!("{greeting}");
    }
    ControlFlow::Continue(master)
}

fn show_version(options: &Options) {
    eprint!("{}", features::version());
    if options.help {
        eprint!("{}", features::usage());
    }
    if options.configure {
        eprint!("{}", features::configure());
    }
}

/// `-t` and `-T`: reads everything, touches nothing.
fn test(options: &Options, place: &Place) -> u8 {
    let file = place.conf_file.display();
    match config::load(place) {
        Ok(loaded) => {
            eprint!("{}", loaded.rendered);
            if !options.quiet {
                complain(&format!("the configuration file {file} syntax is ok"));
            }
            let refusals = preflight::check(&loaded, place);
            for preflight::Refusal { message, hint } in &refusals {
                complain(&format!("[emerg] {message}"));
                eprintln!("  = hint: {hint}");
            }
            if !refusals.is_empty() {
                complain(&format!("configuration file {file} test failed"));
                return 1;
            }
            if !options.quiet {
                complain(&format!("configuration file {file} test is successful"));
            }
            if options.dump {
                let mut out = std::io::BufWriter::new(std::io::stdout().lock());
                let written = config::dump(&loaded.bundle, &mut out).and_then(|()| out.flush());
                if let Err(error) = written {
                    complain(&format!("write() failed {}", Reason(&error)));
                    return 1;
                }
            }
            0
        }
        Err(refused) => {
            eprint!("{}", refused.rendered);
            complain(&format!("configuration file {file} test failed"));
            1
        }
    }
}

/// `-s`: tells the master of the pid file what to do.
fn signal(command: Command, loaded: &Loaded, log: &StartupLog) -> u8 {
    log.log(Level::Notice, "signal process started");
    let pid = match pidfile::read(&loaded.settings.pid) {
        Ok(pid) => pid,
        Err(message) => {
            // Errors of this level are not copied to standard error; a person waits there.
            if !log.has_stderr_sink() {
                complain(&format!("[error] {message}"));
            }
            log.log(Level::Error, &message);
            log.hint("no server runs with this configuration; -p, -c and \"pid\" choose it");
            return 1;
        }
    };
    if command == Command::Reload {
        match control::request(pid, &Wish::Reload) {
            Answer::Done(_) => return 0,
            Answer::Failed(reason) => {
                eprint!("{reason}");
                return 1;
            }
            Answer::Unreachable => {}
        }
    }
    let signal = match command {
        Command::Stop => Signal::SIGTERM,
        Command::Quit => Signal::SIGQUIT,
        Command::Reopen => Signal::SIGUSR1,
        Command::Reload => Signal::SIGHUP,
    };
    match process::kill(pid, signal) {
        Ok(()) => 0,
        Err(error) => {
            let message = format!("kill({pid}, {}) failed {}", signal as i32, Reason(&error));
            log.log(Level::Alert, message);
            1
        }
    }
}
