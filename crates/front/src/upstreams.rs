//! Groups of servers: those of `upstream` blocks, and those of an address or a name in
//! `proxy_pass` and similar directives. nginx: `ngx_http_upstream_add`,
//! `ngx_stream_upstream_add`.
//!
//! While the configuration is read, directives refer to groups by number ([`Groups`]); a block may
//! follow the directives that name it. At run time there are [`Upstreams`]. The `upstream` crate
//! reads blocks and chooses peers; this module evaluates the texts with variables. Protocols have
//! the row of `upstream`, and call [`Groups::read`] for it. Each protocol has its own groups.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Context, Cx, Diagnostic, Node, Span, Template, Word, nearest};
use nowait_upstream::conf::{Balancer, GroupConf, ServerConf, Sticky, StickyCookie};
use nowait_upstream::{Attempt, BalanceInput, Group, Peer, SessionLearner};

use nowait_variables::{Complex, Namespace, Subject};
use rustix::io::Errno;

use crate::log::Level;
use crate::resolver_directives::{NamedResolvers, ResolverId};

/// Number of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// The groups named so far.
pub struct Groups<N> {
    entries: Vec<GroupReference>,
    blocks: Vec<UpstreamBlock>,
    of: PhantomData<fn(N)>,
}

// A derive would require the same of the subject.
impl<N> Default for Groups<N> {
    fn default() -> Self {
        Self { entries: Vec::new(), blocks: Vec::new(), of: PhantomData }
    }
}

/// A server that a directive refers to: an `upstream` of that name, or one of its own.
#[derive(Debug, Clone)]
pub struct UpstreamServer {
    /// Host and port, or `unix:` and a path, as written.
    pub text: Bytes,
    /// The host without its port; the name of a block.
    pub host: Bytes,
    /// The port, if one was written.
    pub port: Option<u16>,
    /// The port of the protocol; `None`: one has to be written, but for a block.
    pub default_port: Option<u16>,
    /// Position in the configuration.
    pub span: Span,
}

/// A group that a directive refers to.
#[derive(Debug, Clone)]
struct GroupReference {
    server: UpstreamServer,
    /// The block of that name.
    block: Option<usize>,
}

#[derive(Debug)]
struct UpstreamBlock {
    conf: GroupConf,
    span: Span,
}

impl<N> Groups<N> {
    /// The group of a server: an `upstream` of that name, else one of its own.
    ///
    /// # Errors
    /// A port for an `upstream`, in nginx's words.
    pub fn implicit(&mut self, server: UpstreamServer) -> Result<GroupId, String> {
        let block = self.block(&server.host);
        if let (Some(_), Some(port)) = (block, server.port) {
            let host = String::from_utf8_lossy(&server.host);
            return Err(format!("upstream \"{host}\" may not have port {port}"));
        }
        let same = |entry: &GroupReference| {
            entry.server.host.eq_ignore_ascii_case(&server.host)
                && (block.is_some() || entry.server.final_port() == server.final_port())
        };
        if let Some(known) = self.entries.iter().position(same) {
            return Ok(id(known));
        }
        self.entries.push(GroupReference { server, block });
        Ok(id(self.entries.len() - 1))
    }

    fn block(&self, name: &[u8]) -> Option<usize> {
        self.blocks.iter().position(|block| block.conf.name.eq_ignore_ascii_case(name))
    }

    /// Adds a block, to which earlier directives may have referred.
    fn add(&mut self, conf: GroupConf, word: &Word) -> Result<(), Diagnostic> {
        let name = conf.name.clone();
        let span = word.span;
        let shown = String::from_utf8_lossy(&name);
        if let Some(first) = self.block(&name) {
            let error = word.error(format!("duplicate upstream \"{shown}\""));
            return Err(error.note(self.blocks[first].span, "first defined here"));
        }
        let at = self.blocks.len();
        let mut referred = false;
        for entry in &mut self.entries {
            if !entry.server.host.eq_ignore_ascii_case(&name) {
                continue;
            }
            if let Some(port) = entry.server.port {
                let message = format!("upstream \"{shown}\" may not have port {port}");
                return Err(word.error(message).note(entry.server.span, "the port stands here"));
            }
            entry.block = Some(at);
            referred = true;
        }
        self.blocks.push(UpstreamBlock { conf, span });
        if !referred {
            let (text, host) = (name.clone(), name);
            let server = UpstreamServer { text, host, port: None, default_port: None, span };
            self.entries.push(GroupReference { server, block: Some(at) });
        }
        Ok(())
    }
}

impl<N: Namespace> Groups<N> {
    /// Reads an `upstream` block.
    ///
    /// # Errors
    /// The reason why the block is invalid; errors of its lines are reported to `cx`.
    pub fn read(cx: &mut Cx<'_>, node: &Node, inside: Context) -> Result<(), Diagnostic> {
        let conf = nowait_upstream::conf::read(cx, node, inside)?;
        let name = node.args.first().ok_or_else(|| node.arity_error())?;
        cx.global::<Self>().add(conf, name)
    }

    /// All groups, once everything is read.
    pub fn resolve(self, cx: &mut Cx<'_>) -> Upstreams<N> {
        let (mut names, mut repeated) = (HashMap::new(), Vec::new());
        let lower = |name: &[u8]| String::from_utf8_lossy(name).to_ascii_lowercase();
        let block_names: Vec<_> = self.blocks.iter().map(|block| lower(&block.conf.name)).collect();
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for UpstreamBlock { conf, span } in self.blocks {
            let made = Upstream::compile(conf, cx).map_err(|error| error.or_at(span));
            blocks.push(cx.accept(made));
        }
        let mut all = Vec::with_capacity(self.entries.len());
        for (n, entry) in self.entries.into_iter().enumerate() {
            let upstream = match entry.block {
                Some(block) => {
                    let name = entry.server.host.to_ascii_lowercase();
                    if *names.entry(name).or_insert(id(n)) != id(n) {
                        repeated.push(n);
                    }
                    blocks[block].clone()
                }
                None => {
                    if let Some(finding) = entry.server.doubt(&block_names) {
                        cx.report(finding);
                    }
                    None
                }
            };
            all.push(upstream.unwrap_or_else(|| entry.server.implicit()));
        }
        Upstreams { all: all.into(), names, repeated }
    }
}

fn id(n: usize) -> GroupId {
    GroupId(u32::try_from(n).unwrap_or(u32::MAX))
}

impl UpstreamServer {
    fn final_port(&self) -> Option<u16> {
        self.port.or(self.default_port)
    }

    /// Problems of a server that is no `upstream`: it needs a port, or its name is almost that of
    /// an `upstream`.
    fn doubt(&self, upstreams: &[String]) -> Option<Diagnostic> {
        if is_unix(&self.text) {
            return None;
        }
        let text = String::from_utf8_lossy(&self.text);
        let host = String::from_utf8_lossy(&self.host);
        // A port, or a dot, shows that a host is meant.
        let near = match self.port.is_none() && !self.host.contains(&b'.') {
            true => nearest(&host, upstreams.iter().map(String::as_str)),
            false => None,
        };
        let finding = match (self.final_port(), near) {
            (None, _) => Diagnostic::emerg(format!("no port in upstream \"{text}\""))
                .expected("HOST:PORT, unix:PATH or the name of an \"upstream\""),
            (Some(_), Some(_)) => {
                Diagnostic::warn(format!("\"{host}\" is not an upstream, but a host name"))
            }
            (Some(_), None) => return None,
        };
        let finding = finding.at(self.span);
        Some(match near {
            Some(near) => finding.hint(format!("did you mean \"{near}\"?")),
            None => finding,
        })
    }

    /// The group of an address or a name.
    fn implicit<N>(self) -> Upstream<N> {
        // The code that refers to it has checked it; else there is no server, and no answer.
        let target = nowait_upstream::conf::target(&self.text, self.final_port().unwrap_or(0));
        let servers = target.map(|target| ServerConf::new(self.text.clone(), target));
        let conf = GroupConf::of_servers(self.host, servers.into_iter().collect());
        Upstream::of_group(Group::new(conf))
    }
}

/// Whether a server is a Unix-domain socket.
pub(crate) fn is_unix(text: &[u8]) -> bool {
    text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"unix:"))
}

/// A group, and its texts. Cheap to clone.
pub struct Upstream<N> {
    /// The servers.
    pub group: Arc<Group>,
    /// An `upstream` block describes it.
    pub explicit: bool,
    /// Its own resolver.
    pub resolver: Option<ResolverId>,
    /// `None` if no property of the subject is needed.
    texts: Option<Arc<Texts<N>>>,
}

impl<N> Clone for Upstream<N> {
    fn clone(&self) -> Self {
        let Self { group, explicit, resolver, texts } = self;
        Self {
            group: group.clone(),
            explicit: *explicit,
            resolver: *resolver,
            texts: texts.clone(),
        }
    }
}

impl<N> fmt::Debug for Upstream<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("group", &self.group).finish_non_exhaustive()
    }
}

/// The texts evaluated for a subject.
struct Texts<N> {
    /// The key of `hash`.
    hash_key: Option<Complex<N>>,
    /// `sticky`: identifies the server or session of the request.
    lookup: Vec<Complex<N>>,
    /// `sticky learn`: the session that a response creates.
    create: Vec<Complex<N>>,
    /// Attributes of the cookie.
    domain: Option<Complex<N>>,
    samesite: Option<Complex<N>>,
}

/// `sticky cookie`, with its attributes for a request.
pub struct CookieTexts<'a> {
    /// The directive.
    pub conf: &'a StickyCookie,
    /// `domain`, if it is not empty.
    pub domain: Option<Bytes>,
    /// `samesite`, if it is not empty.
    pub samesite: Option<Bytes>,
}

impl<N> Upstream<N> {
    /// A group that no block describes: of addresses that a variable had.
    pub fn of_group(group: Arc<Group>) -> Self {
        Self { group, explicit: false, resolver: None, texts: None }
    }
}

impl<N: Namespace> Upstream<N> {
    fn compile(conf: GroupConf, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let texts = Texts::compile(&conf, cx)?.map(Arc::new);
        let named = cx.global::<NamedResolvers>();
        let resolver = conf.resolver.as_ref().map(|setting| named.number(setting));
        Ok(Self { group: Group::new(conf), explicit: true, resolver, texts })
    }

    /// The texts that [`begin`](Self::begin) evaluates: the key of `hash`, and what `sticky` looks up.
    pub fn chosen_by(&self) -> impl Iterator<Item = &Complex<N>> {
        let texts = self.texts.as_deref().into_iter();
        texts.flat_map(|texts| texts.hash_key.iter().chain(&texts.lookup))
    }

    /// Begins the search for a peer that serves the subject.
    pub fn begin(&self, subject: &N::Subject) -> Attempt {
        let client = match self.group.conf().balancer {
            Balancer::IpHash => subject.peer_ip(),
            _ => None,
        };
        let Some(texts) = self.texts.as_deref() else {
            return self.group.begin(BalanceInput { client, ..BalanceInput::default() });
        };
        let hash_key = texts.hash_key.as_ref().map(|key| subject.evaluate(key));
        let sticky = first(&texts.lookup, subject);
        self.group.begin(BalanceInput {
            client,
            hash_key: hash_key.as_deref().unwrap_or_default(),
            sticky: sticky.as_deref(),
        })
    }

    /// `sticky cookie`: the attributes of the cookie.
    pub fn cookie(&self, subject: &N::Subject) -> Option<CookieTexts<'_>> {
        let texts = self.texts.as_deref()?;
        let Some(Sticky::Cookie(conf)) = &self.group.conf().sticky else { return None };
        let evaluate = |text: &Option<Complex<N>>| {
            text.as_ref().map(|text| subject.evaluate(text)).filter(|text| !text.is_empty())
        };
        let (domain, samesite) = (evaluate(&texts.domain), evaluate(&texts.samesite));
        Some(CookieTexts { conf, domain, samesite })
    }

    /// `sticky learn`: records the session of a response of `peer`, whose variables the subject has by now.
    /// True: its header is enough.
    pub fn learning(
        &self,
        subject: &N::Subject,
        attempt: &Attempt,
        peer: &Arc<Peer>,
    ) -> Option<(SessionLearner, bool)> {
        let texts = self.texts.as_deref()?;
        let header = attempt.learns()?.header;
        let created = first(&texts.create, subject);
        Some((attempt.learning(peer, created.as_deref())?, header))
    }
}

impl<N: Namespace> Texts<N> {
    /// `None` if there are none.
    fn compile(conf: &GroupConf, cx: &mut Cx<'_>) -> Result<Option<Self>, Diagnostic> {
        if conf.hash_key().is_none() && conf.sticky.is_none() {
            return Ok(None);
        }
        let mut list = |texts: &[Template]| {
            let texts = texts.iter().map(|text| nowait_variables::compile(text, cx));
            texts.collect::<Result<Vec<_>, _>>()
        };
        let mut texts = Self {
            hash_key: list(conf.hash_key().cloned().as_slice())?.pop(),
            lookup: Vec::new(),
            create: Vec::new(),
            domain: None,
            samesite: None,
        };
        let Some(sticky) = &conf.sticky else { return Ok(Some(texts)) };
        texts.lookup = list(sticky.lookup())?;
        match sticky {
            Sticky::Cookie(cookie) => {
                texts.domain = list(cookie.domain.as_slice())?.pop();
                texts.samesite = list(cookie.samesite.as_slice())?.pop();
            }
            Sticky::Route { .. } => {}
            Sticky::Learn(learn) => texts.create = list(&learn.create)?,
        }
        Ok(Some(texts))
    }
}

/// The first value that is not empty.
fn first<N: Namespace>(texts: &[Complex<N>], subject: &N::Subject) -> Option<Bytes> {
    texts.iter().map(|text| subject.evaluate(text)).find(|value| !value.is_empty())
}

/// The groups of a configuration.
#[derive(Debug)]
pub struct Upstreams<N> {
    all: Box<[Upstream<N>]>,
    /// The groups of blocks, by name in lower case.
    names: HashMap<Vec<u8>, GroupId>,
    /// Further numbers of groups that were named before their blocks by URLs with different default ports.
    repeated: Vec<usize>,
}

impl<N> Default for Upstreams<N> {
    fn default() -> Self {
        Self { all: Box::default(), names: HashMap::new(), repeated: Vec::new() }
    }
}

impl<N> Upstreams<N> {
    /// A group.
    pub fn get(&self, id: GroupId) -> &Upstream<N> {
        &self.all[id.0 as usize]
    }

    /// The group of the `upstream` block of this name.
    pub fn named(&self, name: &[u8]) -> Option<&Upstream<N>> {
        let id = match name.iter().any(u8::is_ascii_uppercase) {
            true => self.names.get(&name.to_ascii_lowercase()),
            false => self.names.get(name),
        };
        id.map(|id| self.get(*id))
    }

    /// All groups, each once.
    pub fn iter(&self) -> impl Iterator<Item = &Upstream<N>> {
        let all = self.all.iter().enumerate();
        all.filter(|(n, _)| !self.repeated.contains(n)).map(|(_, upstream)| upstream)
    }

    /// The groups of blocks, in the order of their names.
    pub fn of_blocks(&self) -> impl Iterator<Item = &Arc<Group>> {
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort();
        names.into_iter().map(|(_, id)| &self.get(*id).group)
    }

    /// Takes over the state of peers from the previous configuration's groups of the same names.
    // nginx differs: every reload resets the state, except for addresses of names.
    pub fn adopt(&self, previous: &Self) {
        for new in &self.all {
            let conf = new.group.conf();
            let same = previous.all.iter().find(|old| {
                let old_conf = old.group.conf();
                old.explicit == new.explicit
                    && old_conf.name.eq_ignore_ascii_case(&conf.name)
                    && (new.explicit || old_conf.servers == conf.servers)
            });
            if let Some(old) = same {
                new.group.adopt(&old.group);
            }
        }
    }
}

/// The log level for a failed connection to a server. nginx: `ngx_event_connect_peer`.
pub fn connect_level(error: &io::Error) -> Level {
    let usual = [
        Errno::CONNREFUSED,
        Errno::AGAIN,
        Errno::CONNRESET,
        Errno::NETDOWN,
        Errno::NETUNREACH,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::TIMEDOUT,
    ];
    match Errno::from_io_error(error) {
        Some(errno) if usual.contains(&errno) => Level::Error,
        _ => Level::Crit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(host: &str, port: Option<u16>, default_port: Option<u16>) -> UpstreamServer {
        let text = port.map_or(host.to_owned(), |port| format!("{host}:{port}")).into();
        UpstreamServer {
            text,
            host: host.to_owned().into(),
            port,
            default_port,
            span: Span::BUILT_IN,
        }
    }

    fn implicit(groups: &mut Groups<()>, host: &str, port: Option<u16>) -> Result<GroupId, String> {
        groups.implicit(server(host, port, Some(80)))
    }

    fn word(text: &str) -> Word {
        Word { text: text.into(), span: Span::BUILT_IN, quoted: false }
    }

    fn block(name: &'static str) -> GroupConf {
        GroupConf::of_addresses(name, vec![])
    }

    #[test]
    fn the_same_server_is_one_group() {
        let mut groups = Groups::<()>::default();
        let first = implicit(&mut groups, "a", None).unwrap();
        assert_eq!(implicit(&mut groups, "A", Some(80)).unwrap(), first);
        assert_ne!(implicit(&mut groups, "a", Some(81)).unwrap(), first);
        assert_ne!(implicit(&mut groups, "b", None).unwrap(), first);
    }

    #[test]
    fn blocks_have_names_without_ports() {
        let mut groups = Groups::<()>::default();
        let before = implicit(&mut groups, "u", None).unwrap();
        groups.add(block("U"), &word("U")).unwrap();
        assert_eq!(implicit(&mut groups, "u", None).unwrap(), before);
        let refused = "upstream \"u\" may not have port 80";
        assert_eq!(implicit(&mut groups, "u", Some(80)).unwrap_err(), refused);
        let duplicate = groups.add(block("u"), &word("u")).unwrap_err();
        assert_eq!(duplicate.message(), "duplicate upstream \"u\"");
        implicit(&mut groups, "v", Some(8080)).unwrap();
        let refused = groups.add(block("v"), &word("v")).unwrap_err();
        assert_eq!(refused.message(), "upstream \"v\" may not have port 8080");
    }

    #[test]
    fn a_port_has_to_come_from_somewhere() {
        let refused =
            |server: UpstreamServer| server.doubt(&[]).map(|error| error.message().to_owned());
        assert_eq!(refused(server("a", None, None)).unwrap(), "no port in upstream \"a\"");
        assert_eq!(refused(server("a", Some(80), None)), None);
        assert_eq!(refused(server("a", None, Some(80))), None);
        assert_eq!(refused(server("unix:/a", None, None)), None);
    }

    #[test]
    fn a_name_that_is_almost_an_upstream_is_doubted() {
        let upstreams = ["app".to_owned(), "backend".to_owned()];
        for (host, port, hint) in [
            ("ap", None, Some("did you mean \"app\"?")),
            ("bakcend", None, Some("did you mean \"backend\"?")),
            ("ap", Some(8080), None),
            ("ap.example", None, None),
            ("localhost", None, None),
            ("unix:/ap", None, None),
        ] {
            let doubt = server(host, port, Some(80)).doubt(&upstreams);
            assert_eq!(doubt.as_ref().map(|found| &found.hints()[0][..]), hint, "{host}");
            assert!(doubt.is_none_or(|found| found.level() == nowait_conf::Level::Warn));
        }
    }
}
