//! Groups of servers: those of `upstream` blocks, and those that an address or a name in
//! `proxy_pass` and its like stands for. nginx: `ngx_http_upstream_add`.
//!
//! While the configuration is read, directives refer to groups by number ([`Groups`]); a block may
//! follow the directives that name it. Request code sees [`Upstreams`]. What a block says, and how
//! a peer is chosen, is the `upstream` crate's; here are the texts with variables.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use nowait_conf::{Context, Cx, Diagnostic, Node, Span, Template};
use nowait_upstream::conf::{Expires, GroupConf, ServerConf, Sticky, StickyCookie};
use nowait_upstream::{Ask, Attempt, Group, Learning, Peer};

use super::resolver::{Named, ResolverId};
use crate::request::Request;
use crate::variables::complex::Complex;

nowait_conf::rows! {
    pub static UPSTREAM_ROWS, module "upstream";

    /// A group of servers, to which `proxy_pass` and its like refer by name.
    block "upstream" => upstream, in HTTP, take exactly(1), args "name { ... }";
}

/// Number of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// The groups that were named so far.
#[derive(Debug, Default)]
pub struct Groups {
    entries: Vec<Entry>,
    blocks: Vec<Block>,
}

/// A group that a directive refers to.
#[derive(Debug, Clone)]
struct Entry {
    /// Host and port, or `unix:` and a path, as written.
    server: Bytes,
    /// The host without its port; the name of a block.
    host: Bytes,
    /// The port, if one was written.
    port: Option<u16>,
    /// The port of the protocol.
    default_port: u16,
    /// The block of that name.
    block: Option<usize>,
}

#[derive(Debug)]
struct Block {
    conf: GroupConf,
    span: Span,
}

impl Groups {
    /// The group of a server: an `upstream` of that name, else one of its own.
    ///
    /// # Errors
    /// A port for an `upstream`, in nginx's words.
    pub fn implicit(
        &mut self,
        server: &Bytes,
        host: &Bytes,
        port: Option<u16>,
        default_port: u16,
    ) -> Result<GroupId, String> {
        let block = self.block(host);
        if let (Some(_), Some(port)) = (block, port) {
            let host = String::from_utf8_lossy(host);
            return Err(format!("upstream \"{host}\" may not have port {port}"));
        }
        let same = |entry: &Entry| {
            entry.host.eq_ignore_ascii_case(host)
                && (block.is_some()
                    || entry.port.unwrap_or(entry.default_port) == port.unwrap_or(default_port))
        };
        if let Some(known) = self.entries.iter().position(same) {
            return Ok(id(known));
        }
        let (server, host) = (server.clone(), host.clone());
        self.entries.push(Entry { server, host, port, default_port, block });
        Ok(id(self.entries.len() - 1))
    }

    fn block(&self, name: &[u8]) -> Option<usize> {
        self.blocks.iter().position(|block| block.conf.name.eq_ignore_ascii_case(name))
    }

    /// Adds a block, to which earlier directives may have referred.
    fn add(&mut self, conf: GroupConf, span: Span) -> Result<(), String> {
        let name = conf.name.clone();
        let shown = String::from_utf8_lossy(&name);
        if self.block(&name).is_some() {
            return Err(format!("duplicate upstream \"{shown}\""));
        }
        let at = self.blocks.len();
        let mut referred = false;
        for entry in &mut self.entries {
            if !entry.host.eq_ignore_ascii_case(&name) {
                continue;
            }
            if let Some(port) = entry.port {
                return Err(format!("upstream \"{shown}\" may not have port {port}"));
            }
            entry.block = Some(at);
            referred = true;
        }
        self.blocks.push(Block { conf, span });
        if !referred {
            let (server, host) = (name.clone(), name);
            self.entries.push(Entry { server, host, port: None, default_port: 0, block: Some(at) });
        }
        Ok(())
    }

    /// All groups, once everything is read.
    pub fn resolve(self, cx: &mut Cx<'_>) -> Upstreams {
        let mut names = HashMap::new();
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for Block { conf, span } in self.blocks {
            let made = Upstream::compile(conf, cx).map_err(|error| error.or_at(span));
            blocks.push(cx.accept(made));
        }
        let mut all = Vec::with_capacity(self.entries.len());
        for (n, entry) in self.entries.into_iter().enumerate() {
            let upstream = match entry.block {
                Some(block) => {
                    names.entry(entry.host.to_ascii_lowercase()).or_insert(id(n));
                    blocks[block].clone()
                }
                None => None,
            };
            all.push(upstream.unwrap_or_else(|| entry.implicit()));
        }
        Upstreams { all: all.into(), names }
    }
}

fn id(n: usize) -> GroupId {
    GroupId(u32::try_from(n).unwrap_or(u32::MAX))
}

impl Entry {
    /// The group that an address or a name stands for.
    fn implicit(self) -> Upstream {
        let port = self.port.unwrap_or(self.default_port);
        // Whoever refers to it has checked it; else there is no server, and no answer.
        let target = nowait_upstream::conf::target(&self.server, port);
        let servers = target.map(|target| ServerConf::new(self.server.clone(), target));
        let conf = GroupConf::of_servers(self.host, servers.into_iter().collect());
        Upstream::of_group(Group::new(conf))
    }
}

fn upstream(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let conf = nowait_upstream::conf::read(cx, node, Context::UPSTREAM)?;
    let name = node.args.first().ok_or_else(|| node.arity_error())?;
    let added = cx.global::<Groups>().add(conf, node.name.span);
    added.map_err(|error| name.error(error))
}

/// A group, and its texts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The servers.
    pub group: Arc<Group>,
    /// An `upstream` block describes it.
    pub explicit: bool,
    /// Its own resolver.
    pub resolver: Option<ResolverId>,
    /// `None` where no request is asked for anything.
    texts: Option<Arc<Texts>>,
}

/// What is evaluated for a request.
#[derive(Debug, Default)]
struct Texts {
    /// What `hash` hashes.
    hash_key: Option<Complex>,
    /// `sticky`: who the request belongs to.
    lookup: Vec<Complex>,
    /// `sticky learn`: the session that a response creates.
    create: Vec<Complex>,
    /// Attributes of the cookie.
    domain: Option<Complex>,
    samesite: Option<Complex>,
}

impl Upstream {
    /// A group that no block describes: of addresses that a variable had.
    pub fn of_group(group: Arc<Group>) -> Self {
        Self { group, explicit: false, resolver: None, texts: None }
    }

    fn compile(conf: GroupConf, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let texts = Texts::compile(&conf, cx)?.map(Arc::new);
        let named = cx.global::<Named>();
        let resolver = conf.resolver.as_ref().map(|setting| named.number(setting));
        Ok(Self { group: Group::new(conf), explicit: true, resolver, texts })
    }

    /// Begins the search for a peer that answers the request.
    pub fn begin(&self, request: &Request) -> Attempt {
        let client = request.peer().inet().map(|inet| inet.ip());
        let Some(texts) = self.texts.as_deref() else {
            return self.group.begin(Ask { client, ..Ask::default() });
        };
        let hash_key = texts.hash_key.as_ref().map(|key| request.evaluate(key));
        let sticky = first(&texts.lookup, request);
        self.group.begin(Ask {
            client,
            hash_key: hash_key.as_deref().unwrap_or_default(),
            sticky: sticky.as_deref(),
        })
    }

    /// `sticky cookie`: the value of the `Set-Cookie` that binds the client to a peer. It goes into
    /// whatever is answered to the request.
    pub fn set_cookie(&self, request: &Request, peer: &Peer) -> Option<Bytes> {
        let texts = self.texts.as_deref()?;
        let Some(Sticky::Cookie(cookie)) = &self.group.conf().sticky else { return None };
        let evaluate = |text: &Option<Complex>| text.as_ref().map(|text| request.evaluate(text));
        let domain = evaluate(&texts.domain).filter(|domain| !domain.is_empty());
        let mut samesite = evaluate(&texts.samesite).filter(|text| !text.is_empty());
        if samesite.as_ref().is_some_and(|text| !nowait_upstream::conf::is_samesite(text)) {
            samesite = Some(Bytes::from_static(b"strict"));
        }
        let now = nowait_runtime::clock().unix_seconds();
        Some(cookie_text(cookie, peer.sid(), domain.as_deref(), samesite.as_deref(), now).into())
    }

    /// `sticky learn`: what there is to learn of a response of `peer`, whose variables the request
    /// has by now. True: its header is enough.
    pub fn learning(
        &self,
        request: &Request,
        attempt: &Attempt,
        peer: &Arc<Peer>,
    ) -> Option<(Learning, bool)> {
        let texts = self.texts.as_deref()?;
        let header = attempt.learns()?.header;
        let created = first(&texts.create, request);
        Some((attempt.learning(peer, created.as_deref())?, header))
    }
}

impl Texts {
    /// `None` if there are none.
    fn compile(conf: &GroupConf, cx: &mut Cx<'_>) -> Result<Option<Self>, Diagnostic> {
        if conf.hash_key().is_none() && conf.sticky.is_none() {
            return Ok(None);
        }
        let mut list = |texts: &[Template]| {
            texts.iter().map(|text| super::compile(text, cx)).collect::<Result<Vec<_>, _>>()
        };
        let mut texts =
            Self { hash_key: list(conf.hash_key().cloned().as_slice())?.pop(), ..Self::default() };
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
fn first(texts: &[Complex], request: &Request) -> Option<Bytes> {
    texts.iter().map(|text| request.evaluate(text)).find(|value| !value.is_empty())
}

/// nginx: `ngx_http_upstream_sticky_cookie_insert`. `now`: seconds since 1970.
fn cookie_text(
    cookie: &StickyCookie,
    sid: &[u8],
    domain: Option<&[u8]>,
    samesite: Option<&[u8]>,
    now: u64,
) -> Vec<u8> {
    let mut out = [&cookie.name[..], b"=", sid].concat();
    match cookie.expires {
        Some(Expires::Max) => {
            out.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000");
        }
        Some(Expires::After(seconds)) => {
            out.extend_from_slice(b"; expires=");
            out.extend_from_slice(&cookie_date(now.saturating_add(seconds.0)));
            out.extend_from_slice(format!("; max-age={}", seconds.0).as_bytes());
        }
        None => {}
    }
    if let Some(domain) = domain {
        out.extend_from_slice(b"; domain=");
        out.extend_from_slice(domain);
    }
    if cookie.httponly {
        out.extend_from_slice(b"; httponly");
    }
    if cookie.secure {
        out.extend_from_slice(b"; secure");
    }
    if let Some(samesite) = samesite {
        out.extend_from_slice(b"; samesite=");
        out.extend_from_slice(samesite);
    }
    if let Some(path) = &cookie.path {
        out.extend_from_slice(b"; path=");
        out.extend_from_slice(path);
    }
    out
}

/// `Thu, 31-Dec-37 23:55:55 GMT`: old browsers know no other years than those until 2037, and of
/// them two digits. nginx: `ngx_http_cookie_time`.
fn cookie_date(unix: u64) -> Vec<u8> {
    let mut text = crate::http_date::format(i64::try_from(unix).unwrap_or(i64::MAX)).to_vec();
    (text[7], text[11]) = (b'-', b'-');
    if &text[12..16] <= b"2037".as_slice() {
        text.drain(12..14);
    }
    text
}

/// The groups of a configuration.
#[derive(Debug, Default)]
pub struct Upstreams {
    all: Box<[Upstream]>,
    /// Those of blocks, by name in lower case.
    names: HashMap<Vec<u8>, GroupId>,
}

impl Upstreams {
    /// A group.
    pub fn get(&self, id: GroupId) -> &Upstream {
        &self.all[id.0 as usize]
    }

    /// The group of the `upstream` block of this name.
    pub fn named(&self, name: &[u8]) -> Option<&Upstream> {
        let id = match name.iter().any(u8::is_ascii_uppercase) {
            true => self.names.get(&name.to_ascii_lowercase()),
            false => self.names.get(name),
        };
        id.map(|id| self.get(*id))
    }

    /// All groups; one that several numbers stand for comes several times.
    pub fn iter(&self) -> impl Iterator<Item = &Upstream> {
        self.all.iter()
    }

    /// The groups of blocks, in the order of their names.
    pub fn of_blocks(&self) -> impl Iterator<Item = &Arc<Group>> {
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort();
        names.into_iter().map(|(_, id)| &self.get(*id).group)
    }

    /// Takes over what the previous configuration's groups of the same names know of their peers.
    // nginx differs: it begins anew with every reload, but for addresses of names.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn implicit(groups: &mut Groups, host: &str, port: Option<u16>) -> Result<GroupId, String> {
        let text = port.map_or(host.to_owned(), |port| format!("{host}:{port}"));
        groups.implicit(&text.into(), &Bytes::from(host.to_owned()), port, 80)
    }

    fn block(name: &'static str) -> GroupConf {
        GroupConf::of_addresses(name, vec![])
    }

    #[test]
    fn the_same_server_is_one_group() {
        let mut groups = Groups::default();
        let first = implicit(&mut groups, "a", None).unwrap();
        assert_eq!(implicit(&mut groups, "A", Some(80)).unwrap(), first);
        assert_ne!(implicit(&mut groups, "a", Some(81)).unwrap(), first);
        assert_ne!(implicit(&mut groups, "b", None).unwrap(), first);
    }

    #[test]
    fn blocks_have_names_without_ports() {
        let mut groups = Groups::default();
        let before = implicit(&mut groups, "u", None).unwrap();
        groups.add(block("U"), Span::BUILT_IN).unwrap();
        assert_eq!(implicit(&mut groups, "u", None).unwrap(), before);
        let refused = "upstream \"u\" may not have port 80";
        assert_eq!(implicit(&mut groups, "u", Some(80)).unwrap_err(), refused);
        let duplicate = groups.add(block("u"), Span::BUILT_IN).unwrap_err();
        assert_eq!(duplicate, "duplicate upstream \"u\"");
        implicit(&mut groups, "v", Some(8080)).unwrap();
        let refused = groups.add(block("v"), Span::BUILT_IN).unwrap_err();
        assert_eq!(refused, "upstream \"v\" may not have port 8080");
    }

    #[test]
    fn cookies() {
        let cookie = StickyCookie {
            name: Bytes::from_static(b"srv"),
            lookup: Template::literal(""),
            domain: None,
            path: Some(Bytes::from_static(b"/")),
            expires: Some(Expires::After(nowait_conf::Seconds(3600))),
            samesite: None,
            httponly: true,
            secure: true,
        };
        let text = cookie_text(&cookie, b"id", Some(b".example.com"), Some(b"lax"), 0);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "srv=id; expires=Thu, 01-Jan-70 01:00:00 GMT; max-age=3600; domain=.example.com; \
             httponly; secure; samesite=lax; path=/"
        );
    }
}
