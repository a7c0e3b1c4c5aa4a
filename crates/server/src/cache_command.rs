//! `nowait cache purge`: removes objects from a cache of the running server.
//!
//! Called by `main` before the options are parsed, as nginx's command line has no words. Asks the
//! master of the pid file over its control socket, and prints how many objects there were.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::cli;
use crate::config;
use crate::control::{self, Answer, Wish};
use crate::pidfile;
use crate::place::Place;
use crate::wire::{PurgeKind, PurgeOrder};

/// What is printed for wrong arguments.
const USAGE: &str = "usage: nowait cache purge [-c file] [-p prefix] [--soft] ZONE \
                     KEY | --prefix TEXT | --tag TAG | --all";

/// Does what the arguments ask for; `None` if they ask for something else.
///
/// # Errors
/// The text for the operator.
pub fn asked(arguments: impl IntoIterator<Item = OsString>) -> Option<Result<String, String>> {
    let mut arguments = arguments.into_iter();
    if arguments.next()? != "cache" {
        return None;
    }
    Some(parse(arguments).and_then(|(order, options)| purge(order, &options)))
}

fn parse(
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<(PurgeOrder, cli::Options), String> {
    let usage = || USAGE.to_owned();
    if arguments.next().is_none_or(|word| word != "purge") {
        return Err(usage());
    }
    let (mut words, mut options, mut soft) = (Vec::new(), Vec::new(), false);
    let mut aim: Option<(PurgeKind, OsString)> = None;
    while let Some(argument) = arguments.next() {
        let kind = match argument.as_bytes() {
            b"--soft" => {
                soft = true;
                continue;
            }
            b"--all" => Some(PurgeKind::All),
            b"--prefix" => Some(PurgeKind::Prefix),
            b"--tag" => Some(PurgeKind::Tag),
            [b'-', _, ..] => None,
            _ => {
                words.push(argument);
                continue;
            }
        };
        match kind {
            Some(kind) => {
                let text = match kind {
                    PurgeKind::All => OsString::new(),
                    _ => arguments.next().ok_or_else(usage)?,
                };
                if aim.replace((kind, text)).is_some() {
                    return Err(usage());
                }
            }
            // Those of the program, each with its value.
            None => {
                let attached = argument.len() > 2;
                options.push(argument);
                if !attached {
                    options.push(arguments.next().ok_or_else(usage)?);
                }
            }
        }
    }
    let mut words = words.into_iter();
    let zone = words.next().and_then(|zone| zone.into_string().ok()).ok_or_else(usage)?;
    let (kind, text) = match (aim, words.next()) {
        (Some(aim), None) => aim,
        (None, Some(key)) => (PurgeKind::Key, key),
        _ => return Err(usage()),
    };
    if words.next().is_some() {
        return Err(usage());
    }
    let order = PurgeOrder { zone, kind, soft, text: text.into_vec() };
    Ok((order, cli::parse(options)?))
}

fn purge(order: PurgeOrder, options: &cli::Options) -> Result<String, String> {
    let place = Place::find(options)?;
    let loaded = config::load(&place).map_err(|refused| refused.rendered)?;
    let pid = pidfile::read(&loaded.settings.pid)?;
    match control::request(pid, &Wish::Purge(order)) {
        Answer::Done(1) => Ok("1 object purged\n".to_owned()),
        Answer::Done(objects) => Ok(format!("{objects} objects purged\n")),
        Answer::Failed(reason) => Err(reason),
        Answer::Unreachable => Err(format!("the master process {pid} can't be asked")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(PurgeKind, bool, String), String> {
        let (order, _) = parse(line.split_whitespace().map(OsString::from))?;
        assert_eq!(order.zone, "one");
        Ok((order.kind, order.soft, String::from_utf8(order.text).unwrap()))
    }

    #[test]
    fn arguments() {
        let key = |text: &str| Ok((PurgeKind::Key, false, text.to_owned()));
        assert_eq!(parsed("purge one http://a/b"), key("http://a/b"));
        assert_eq!(parsed("purge -c x.conf -p/dir one k"), key("k"));
        assert_eq!(
            parsed("purge --soft one --prefix /a"),
            Ok((PurgeKind::Prefix, true, "/a".into()))
        );
        assert_eq!(parsed("purge one --tag t"), Ok((PurgeKind::Tag, false, "t".into())));
        assert_eq!(parsed("purge one --all"), Ok((PurgeKind::All, false, String::new())));
        for wrong in [
            "",
            "purge",
            "purge one",
            "purge one a b",
            "purge one --all a",
            "list one",
            "purge one --tag",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        assert!(asked(["-t".into()]).is_none());
    }
}
