//! The `nowait` program: command line, master and server process, generations, signals.
#![forbid(unsafe_code)]

mod api_client;
mod builtin;
mod certificate_watch;
mod cli;
mod command_hints;
mod commands;
mod conf_core;
mod config;
mod config_path;
mod connections_command;
mod control;
mod counters;
#[cfg(feature = "geoip2")]
mod databases;
#[cfg(any(feature = "fmt", feature = "lint"))]
mod edited_file;
mod engine;
mod events;
#[cfg(feature = "explain")]
mod explain_command;
mod features;
mod findings;
#[cfg(feature = "fmt")]
mod format_command;
mod generate;
mod health_command;
#[cfg(feature = "lint")]
mod lint_command;
#[cfg(feature = "lint")]
mod lint_surroundings;
mod log;
mod log_command;
mod log_process;
mod logs;
mod master;
#[cfg(feature = "migrate")]
mod migrate_command;
mod notify;
mod output;
mod pidfile;
mod preflight;
mod program_lock;
mod read_once;
mod reader;
mod reference;
#[cfg(any(feature = "lint", feature = "migrate"))]
mod regular_files;
mod running_commands;
mod server_process;
mod service;
mod settings;
mod sockets;
mod successors;
mod tools;
#[cfg(feature = "top")]
mod top;
mod watchdog;
mod wire;
mod worker;

use std::ops::ControlFlow;
use std::process::ExitCode;

use cli::{CommandLine, SignalCommand};
use commands::Subcommand;
use config::{ConfigError, Loaded};
use config_path::ConfigPath;
use control::{ControlReply, ControlRequest};
use log::{Level, OsErrorText, StartupLog, complain};
use master::{Master, MasterExit};
use notify::InheritedFds;
use nowait_sys::process;
use nowait_sys::signal::Signal;
use output::print_error;
use settings::MainSettings;

fn main() -> ExitCode {
    // Before other code can reuse the inherited descriptor numbers.
    let inherited = InheritedFds::take();
    process::ignore_foreign_threads();
    match run(inherited) {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

fn run(inherited: InheritedFds) -> Result<u8, String> {
    match commands::parse(std::env::args_os().skip(1)) {
        None => {}
        Some(Ok(asked)) => {
            let failure = asked.failure_code();
            return command(asked, inherited).or_else(|message| {
                complain(&message);
                Ok(failure)
            });
        }
        Some(Err(error)) => {
            let text = error.render().to_string();
            if error.use_stderr() {
                output::print_error(&text);
                return Ok(commands::usage_code(std::env::args_os().nth(1)));
            }
            return output::print(&text).map(|()| 0);
        }
    }
    let options = cli::parse(std::env::args_os().skip(1)).map_err(|message| {
        match command_hints::hint(std::env::args_os().skip(1), &message) {
            Some(hint) => format!("{message}\n  = hint: {hint}"),
            None => message,
        }
    })?;
    if options.version {
        show_version(&options);
        if !options.test {
            return Ok(0);
        }
    }
    let place = ConfigPath::find(&options)?;
    if place.builtin.is_some() && (options.test || options.command.is_some()) {
        complain(&place.no_configuration());
        return Ok(1);
    }
    if options.test {
        return if options.json { test_json(&place) } else { Ok(test(&options, &place)) };
    }
    let log = match &place.error_log {
        Some(path) => StartupLog::open(path, Level::Notice),
        // Without a log file, notices would only clutter the startup output.
        None => StartupLog::stderr(Level::Warn),
    };
    let refuse = |refused: ConfigError| {
        for line in &refused.lines {
            log.log_file_only(line.level, &line.text);
        }
        print_error(&refused.rendered);
        Ok(1)
    };
    if let Some(command) = options.command {
        return match config::settings(&place) {
            Ok(settings) => Ok(signal(command, &settings, &log)),
            Err(refused) => refuse(refused),
        };
    }
    let loaded = match config::load(&place) {
        Ok(loaded) => loaded,
        Err(refused) => return refuse(refused),
    };
    Ok(run_server(place, loaded, inherited, log))
}

/// Executes a subcommand.
fn command(asked: Subcommand, inherited: InheritedFds) -> Result<u8, String> {
    match asked {
        Subcommand::Reference(name) => output::print(&reference::text(&name)?).map(|()| 0),
        Subcommand::CheckHealth(check) => check.run().map(|()| 0),
        Subcommand::Log(log) => log.run().map(|()| 0),
        Subcommand::Connections(connections) => connections.run().map(|()| 0),
        Subcommand::Generate(text) => {
            output::print_with(|out| generate::write(text, out)).map(|()| 0)
        }
        Subcommand::Tool(tool) => tool.run(),
        Subcommand::Purge(order, options) => {
            output::print(&running_commands::purge(order, &options)?).map(|()| 0)
        }
        Subcommand::LogLevel(level, options) => {
            output::print(&running_commands::set_log_level(level, &options)?).map(|()| 0)
        }
        Subcommand::Start(builtin) => {
            let place = ConfigPath::builtin(builtin)?;
            let loaded = match config::load(&place) {
                Ok(loaded) => loaded,
                Err(refused) => {
                    print_error(&refused.rendered);
                    return Ok(1);
                }
            };
            let identity = loaded.settings.process.identity.as_ref();
            place.make_state(identity.map(|identity| identity.uid))?;
            Ok(run_server(place, loaded, inherited, StartupLog::stderr(Level::Warn)))
        }
    }
}

/// Starts the server and runs it until it ends; returns the exit code.
fn run_server(place: ConfigPath, loaded: Loaded, inherited: InheritedFds, log: StartupLog) -> u8 {
    print_error(&loaded.rendered);
    for warning in &loaded.warnings {
        log.log_file_only(Level::Warn, warning);
    }
    let ended = match start(place, loaded, inherited, log) {
        ControlFlow::Continue(master) => master.run(),
        ControlFlow::Break(ended) => ended,
    };
    match ended {
        MasterExit::Exit(code) => code,
        MasterExit::Server(start) => server_process::run(*start),
    }
}

fn start(
    place: ConfigPath,
    loaded: Loaded,
    inherited: InheritedFds,
    log: StartupLog,
) -> ControlFlow<MasterExit, Master> {
    let served = place.builtin.clone().map(|builtin| (builtin, place.prefix.clone()));
    let master = Master::start(place, loaded, inherited, log)?;
    if let Some((builtin, directory)) = served {
        for warning in builtin.warnings(&directory) {
            complain(&warning);
        }
        // A server that cannot print its address serves nevertheless.
        let _ = output::print(&format!("{}\n", builtin.greeting(&directory)));
    }
    ControlFlow::Continue(master)
}

fn show_version(options: &CommandLine) {
    print_error(&features::version());
    if options.help {
        print_error(&features::usage());
    }
    if options.configure {
        print_error(&features::configure());
    }
}

/// `-t` and `-T`: reads the configuration, without any change to the system.
fn test(options: &CommandLine, place: &ConfigPath) -> u8 {
    let file = place.conf_file.display();
    match config::load(place) {
        Ok(loaded) => {
            print_error(&loaded.rendered);
            if !options.quiet {
                complain(&format!("the configuration file {file} syntax is ok"));
            }
            let refusals = preflight::check(&loaded, place);
            for preflight::Refusal { message, hint } in &refusals {
                complain(&format!("[emerg] {message}"));
                print_error(&format!("  = hint: {hint}\n"));
            }
            if !refusals.is_empty() {
                complain(&format!("configuration file {file} test failed"));
                return 1;
            }
            if !options.quiet {
                complain(&format!("configuration file {file} test is successful"));
            }
            if options.dump {
                let dump = |out: &mut dyn std::io::Write| config::dump(&loaded.bundle, out);
                if let Err(message) = output::print_with(dump) {
                    complain(&message);
                    return 1;
                }
            }
            0
        }
        Err(refused) => {
            print_error(&refused.rendered);
            complain(&format!("configuration file {file} test failed"));
            1
        }
    }
}

/// `-t --json`: as `-t`, with every finding on standard output as JSON.
///
/// # Errors
/// Standard output cannot be written.
fn test_json(place: &ConfigPath) -> Result<u8, String> {
    let (findings, refused) = match config::load(place) {
        Ok(mut loaded) => {
            let mut findings = std::mem::take(&mut loaded.findings);
            let refusals = preflight::check(&loaded, place);
            let refused = !refusals.is_empty();
            for preflight::Refusal { message, hint } in refusals {
                findings.add(Level::Emerg.name(), message, hint);
            }
            (findings, refused)
        }
        Err(refused) => (refused.findings, true),
    };
    output::print(&findings.json(&place.conf_file, !refused))?;
    Ok(u8::from(refused))
}

/// `-s`: sends the command to the master named by the pid file.
fn signal(command: SignalCommand, settings: &MainSettings, log: &StartupLog) -> u8 {
    log.log(Level::Notice, "signal process started");
    let pid = match pidfile::read(&settings.pid) {
        Ok(pid) => pid,
        Err(message) => {
            // Errors of this level would not be copied to standard error, where operators expect them.
            if !log.has_stderr_sink() {
                complain(&format!("[error] {message}"));
            }
            log.log(Level::Error, &message);
            log.hint(pidfile::hint(&settings.pid));
            return 1;
        }
    };
    if command == SignalCommand::Reload {
        match control::request(pid, &ControlRequest::Reload) {
            ControlReply::Done(_, said) => {
                print_error(&said);
                return 0;
            }
            ControlReply::Failed(reason) => {
                print_error(&reason);
                return 1;
            }
            ControlReply::Unreachable => {}
        }
    }
    let signal = match command {
        SignalCommand::Stop => Signal::SIGTERM,
        SignalCommand::Quit => Signal::SIGQUIT,
        SignalCommand::Reopen => Signal::SIGUSR1,
        SignalCommand::Reload => Signal::SIGHUP,
    };
    match process::kill(pid, signal) {
        Ok(()) => 0,
        Err(error) => {
            let message = format!("kill({pid}, {}) failed {}", signal as i32, OsErrorText(&error));
            if !log.has_stderr_sink() {
                complain(&format!("[alert] {message}"));
            }
            log.log(Level::Alert, message);
            log.hint(match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "the master process belongs to another user; use its account, or root"
                }
                _ => "the pid file is stale: the process that wrote it has ended",
            });
            1
        }
    }
}
