//! The command line, exactly nginx's: single letters, which may be grouped (`-tq`) and take their
//! value attached (`-p/dir`) or as the next argument.
//!
//! Called by `main`. Parsed by hand: no parser library accepts this grammar. Never prints.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The command of `-s` for a running master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalCommand {
    /// `-s stop`: fast shutdown.
    Stop,
    /// `-s quit`: graceful shutdown.
    Quit,
    /// `-s reopen`: open the logs again.
    Reopen,
    /// `-s reload`: read the configuration again.
    Reload,
}

/// The parsed options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// `-?`, `-h`: print the usage.
    pub help: bool,
    /// `-v`, `-V`, `-h`: print the version.
    pub version: bool,
    /// `-V`: print the build options.
    pub configure: bool,
    /// `-t`, `-T`: check the configuration and exit.
    pub test: bool,
    /// `-T`: also print the configuration.
    pub dump: bool,
    /// `--json`: print the findings of `-t` as JSON.
    pub json: bool,
    /// `-q`: print only errors while testing.
    pub quiet: bool,
    /// `-s`.
    pub command: Option<SignalCommand>,
    /// `-p`: the prefix of relative paths.
    pub prefix: Option<OsString>,
    /// `-e`: the error log; an empty name is standard error.
    pub error_log: Option<OsString>,
    /// `-c`: the configuration file.
    pub conf: Option<OsString>,
    /// `-g`: directives for the main context, read before the file.
    pub globals: Option<OsString>,
}

/// Parses the arguments after the program's name.
///
/// # Errors
/// The message to print after `nowait: `; the exit code is 1 then.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<CommandLine, String> {
    let mut options = CommandLine::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_bytes() {
            // nginx differs: it has no long options.
            b"--help" => (options.help, options.version) = (true, true),
            b"--version" => options.version = true,
            b"--json" => options.json = true,
            [b'-', letters @ ..] => group(&mut options, letters, &mut arguments)?,
            _ => return Err(format!("invalid option: \"{}\"", argument.display())),
        }
    }
    if options.json && (!options.test || options.dump) {
        return Err("option \"--json\" works only with \"-t\"".to_owned());
    }
    Ok(options)
}

/// One argument: letters until one takes the rest, or the next argument, as its value.
fn group(
    options: &mut CommandLine,
    letters: &[u8],
    following: &mut impl Iterator<Item = OsString>,
) -> Result<(), String> {
    for (index, letter) in letters.iter().enumerate() {
        let mut value = |wanted: &str| {
            let rest = &letters[index + 1..];
            if !rest.is_empty() {
                return Ok(OsString::from_vec(rest.to_vec()));
            }
            let letter = char::from(*letter);
            following.next().ok_or_else(|| format!("option \"-{letter}\" requires {wanted}"))
        };
        match letter {
            b'?' | b'h' => (options.help, options.version) = (true, true),
            b'v' => options.version = true,
            b'V' => (options.version, options.configure) = (true, true),
            b't' => options.test = true,
            b'T' => (options.test, options.dump) = (true, true),
            b'q' => options.quiet = true,
            b'p' => {
                options.prefix = Some(value("directory name")?);
                return Ok(());
            }
            b'e' => {
                let name = value("file name")?;
                options.error_log = Some(if name == "stderr" { OsString::new() } else { name });
                return Ok(());
            }
            b'c' => {
                options.conf = Some(value("file name")?);
                return Ok(());
            }
            b'g' => {
                options.globals = Some(value("parameter")?);
                return Ok(());
            }
            b's' => {
                options.command = Some(command(&value("parameter")?)?);
                return Ok(());
            }
            other => return Err(format!("invalid option: \"{}\"", char::from(*other))),
        }
    }
    Ok(())
}

fn command(name: &OsStr) -> Result<SignalCommand, String> {
    match name.as_bytes() {
        b"stop" => Ok(SignalCommand::Stop),
        b"quit" => Ok(SignalCommand::Quit),
        b"reopen" => Ok(SignalCommand::Reopen),
        b"reload" => Ok(SignalCommand::Reload),
        _ => Err(format!("invalid option: \"-s {}\"", name.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &[&str]) -> Result<CommandLine, String> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn letters_group_and_values_attach() {
        let options = check(&["-tq", "-p/dir", "-c", "x.conf", "-Te", "stderr", "-gdaemon off;"]);
        let expected = CommandLine {
            test: true,
            dump: true,
            quiet: true,
            prefix: Some("/dir".into()),
            conf: Some("x.conf".into()),
            error_log: Some("".into()),
            globals: Some("daemon off;".into()),
            ..CommandLine::default()
        };
        assert_eq!(options, Ok(expected));
    }

    #[test]
    fn errors_are_worded_as_nginx_does() {
        for (arguments, message) in [
            (&["start"][..], "invalid option: \"start\""),
            (&["-x"], "invalid option: \"x\""),
            (&["-c"], "option \"-c\" requires file name"),
            (&["-p"], "option \"-p\" requires directory name"),
            (&["-e"], "option \"-e\" requires file name"),
            (&["-g"], "option \"-g\" requires parameter"),
            (&["-qs"], "option \"-s\" requires parameter"),
            (&["--json"], "option \"--json\" works only with \"-t\""),
            (&["-T", "--json"], "option \"--json\" works only with \"-t\""),
            (&["-s", "restart"], "invalid option: \"-s restart\""),
        ] {
            assert_eq!(check(arguments), Err(message.to_owned()));
        }
    }

    #[test]
    fn json_belongs_to_a_test() {
        let options = check(&["--json", "-t"]).unwrap();
        assert!(options.test && options.json);
    }

    #[test]
    fn signals() {
        assert_eq!(check(&["-sreload"]).unwrap().command, Some(SignalCommand::Reload));
        assert_eq!(check(&["-s", "stop"]).unwrap().command, Some(SignalCommand::Stop));
        assert_eq!(check(&["-"]).unwrap(), CommandLine::default());
    }
}
