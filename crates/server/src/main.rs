//! The `nowait` program: command line, master and server process, generations, signals.
#![forbid(unsafe_code)]

mod cli;
mod features;
mod log;
mod service;

use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match cli::parse(std::env::args_os().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            log::complain(&message);
            return ExitCode::FAILURE;
        }
    };
    if options.version {
        eprint!("{}", features::version());
        if options.help {
            eprint!("{}", features::usage());
        }
        if options.configure {
            eprint!("{}", features::configure());
        }
    }
    ExitCode::SUCCESS
}
