//! `resolver`, in an `upstream` block as well as in those of `http`.

use std::net::SocketAddr;
use std::sync::Arc;

use nowait_conf::arity::{self, Arity};
use nowait_conf::{Cx, Diagnostic, Node, Seconds, Setting, Value, Word};
use nowait_resolver::{NameServer, ResolverSettings};
use nowait_runtime::net::Address;

use super::{ServerLocation, target};

/// The port of name servers.
const PORT: u16 = 53;

/// A `resolver` directive. Two of the same text are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverSetting(pub Arc<ResolverSettings>);

impl Setting for ResolverSetting {
    const ARITY: Arity = arity::at_least(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let mut settings = ResolverSettings::new(Vec::new());
        for word in &node.args {
            parameter(&mut settings, word)?;
        }
        if !settings.ipv4 && !settings.ipv6 {
            return Err(node.error("\"ipv4\" and \"ipv6\" cannot both be \"off\""));
        }
        if settings.servers.is_empty() {
            return Err(node.error("no name servers defined"));
        }
        Ok(Self(Arc::new(settings)))
    }
}

fn parameter(settings: &mut ResolverSettings, word: &Word) -> Result<(), Diagnostic> {
    let value = |name: &[u8]| word.text.strip_prefix(name);
    // nginx knows these two words in lower case only.
    let switch = |value: &[u8]| match value {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(word.error(format!("invalid parameter: {word}")).expected("\"on\" or \"off\"")),
    };
    if let Some(value) = value(b"valid=") {
        let time = Seconds::from_word(value)
            .map_err(|_| word.error(format!("invalid parameter: {word}")).expected("a time"))?;
        settings.valid = Some(time.duration());
    } else if let Some(value) = value(b"ipv4=") {
        settings.ipv4 = switch(value)?;
    } else if let Some(value) = value(b"ipv6=") {
        settings.ipv6 = switch(value)?;
    } else if let Some(value) = value(b"status_zone=") {
        if value.is_empty() {
            return Err(word.error(format!("invalid parameter: {word}")));
        }
        settings.status_zone = Some(String::from_utf8_lossy(value).into());
    } else if word.text.contains(&b'=') {
        // No host has such a name.
        return Err(word.error(format!("invalid parameter: {word}")));
    } else {
        server(settings, word)?;
    }
    Ok(())
}

fn server(settings: &mut ResolverSettings, word: &Word) -> Result<(), Diagnostic> {
    let invalid = |problem: &str| word.error(format!("{problem} in resolver \"{word}\""));
    match target(&word.text, PORT).map_err(invalid)? {
        ServerLocation::Addresses(addresses) => {
            let inet = |address: &Address| address.inet().ok_or_else(|| invalid("invalid host"));
            let addresses: Vec<SocketAddr> =
                addresses.iter().map(inet).collect::<Result<_, _>>()?;
            settings.servers.extend(addresses.into_iter().map(NameServer::Address));
        }
        ServerLocation::Name { host, port, .. } => {
            settings.servers.push(NameServer::Name { host, port })
        }
    }
    Ok(())
}
