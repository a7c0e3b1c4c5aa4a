//! Directives of `ngx_http_dav_module`, and those of the third-party module nginx-dav-ext-module.

use std::sync::Arc;

use nowait_backend::conf::StoreAccess;
use nowait_conf::{Cx, Diagnostic, Msec, Node, Setting, Size, Span, Value, arity};
use nowait_message::Method;

use super::lock_table::Locks;

nowait_conf::directives! {
    /// Methods that change files, and their settings.
    #[derive(Debug)]
    module "dav";
    pub struct DavConf with DavConfLayer;

    /// Allows these methods of WebDAV. A file that is PUT is first written to a temporary file, which is
    /// then renamed; if `client_body_temp_path` is on another file system, it is copied there first. The
    /// field `Date` of a PUT sets the time of the file. See [WebDAV](../webdav.md).
    dav_methods: DavMethods = "off", in HTTP | SERVER | LOCATION, args "off | method ...";
    /// Controls whether PUT may replace files. With `off`, it creates new ones only, and gets 412 for others, as with
    /// `If-None-Match: *`; of two uploads at the same time, the first one is kept.
    put_overwrite: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Creates the missing directories of a file that is PUT.
    create_full_put_path: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// The least number of elements in the path of a URI that DELETE may remove.
    min_delete_depth: usize = "0", in HTTP | SERVER | LOCATION, args "number";
    /// Permissions of new files and directories. A directory may be searched by those who may read.
    /// `group` or `all` without `user` implies `user:rw`.
    dav_access: StoreAccess = "user:rw", in HTTP | SERVER | LOCATION, args "users:permissions ...";
}

nowait_conf::setting_flags! {
    /// `dav_methods`
    pub struct DavMethods {
        /// None.
        OFF = "off",
        /// PUT
        PUT = "put",
        /// DELETE
        DELETE = "delete",
        /// MKCOL
        MKCOL = "mkcol",
        /// COPY
        COPY = "copy",
        /// MOVE
        MOVE = "move",
    }
}

impl DavMethods {
    /// The methods, in the order in which `Allow` lists them.
    pub const METHODS: [(Method, DavMethods); 5] = [
        (Method::Put, Self::PUT),
        (Method::Delete, Self::DELETE),
        (Method::Mkcol, Self::MKCOL),
        (Method::Copy, Self::COPY),
        (Method::Move, Self::MOVE),
    ];

    /// Whether a method is allowed.
    pub fn allow(self, method: Method) -> bool {
        Self::METHODS.iter().any(|(of, flag)| *of == method && self.contains(*flag))
    }

    /// Whether any method is allowed.
    pub fn any(self) -> bool {
        Self::METHODS.iter().any(|(_, flag)| self.contains(*flag))
    }
}

nowait_conf::directives! {
    /// More methods of WebDAV.
    #[derive(Debug)]
    module "dav_ext";
    pub struct DavExtConf with DavExtConfLayer;

    /// Allows these methods of WebDAV: `PROPFIND`, `PROPPATCH`, `OPTIONS`, `LOCK`, `UNLOCK`. What clients
    /// set by PROPPATCH is kept in the extended attribute `user.dav.properties` of a file. `LOCK` and
    /// `UNLOCK` need `dav_ext_lock`. See [WebDAV](../webdav.md).
    dav_ext_methods: DavExtMethods = "off", in HTTP | SERVER | LOCATION, args "off | method ...";
    /// The zone that keeps the locks. All methods that change files respect them.
    dav_ext_lock: Option<ZoneName>, in HTTP | SERVER | LOCATION, args "zone=name";
}

nowait_conf::rows! {
    pub static DAV_EXT_ROWS, module "dav_ext";

    /// A zone for locks; a lock takes 256 bytes, twice the length of the file's path, and the description
    /// of its owner. A lock is kept for `timeout` (default: 1 minute) unless the client asks for less, or
    /// extends it. When the zone is full, LOCK gets 507. Reloads keep the locks while name and size of
    /// the zone stay the same.
    "dav_ext_lock_zone" => dav_ext_lock_zone, in HTTP, take between(1, 2), args "zone=name:size [timeout=time]";
}

nowait_conf::setting_flags! {
    /// `dav_ext_methods`
    pub struct DavExtMethods {
        /// None.
        OFF = "off",
        /// PROPFIND
        PROPFIND = "propfind",
        /// PROPPATCH
        PROPPATCH = "proppatch",
        /// OPTIONS
        OPTIONS = "options",
        /// LOCK
        LOCK = "lock",
        /// UNLOCK
        UNLOCK = "unlock",
    }
}

impl DavExtMethods {
    /// The methods, in the order in which `Allow` lists them.
    pub const METHODS: [(Method, DavExtMethods); 5] = [
        (Method::Options, Self::OPTIONS),
        (Method::Propfind, Self::PROPFIND),
        (Method::Proppatch, Self::PROPPATCH),
        (Method::Lock, Self::LOCK),
        (Method::Unlock, Self::UNLOCK),
    ];

    /// Whether a method is allowed.
    pub fn allow(self, method: Method) -> bool {
        Self::METHODS.iter().any(|(of, flag)| *of == method && self.contains(*flag))
    }

    /// Whether any method is allowed.
    pub fn any(self) -> bool {
        Self::METHODS.iter().any(|(_, flag)| self.contains(*flag))
    }
}

/// The smallest zone, in bytes.
const ZONE_BYTES_MIN: u64 = 8 * 4096;

/// Default time to keep a lock, in seconds.
const TIMEOUT: u64 = 60;

/// A zone of locks.
#[derive(Debug)]
pub struct LockZone {
    /// The name.
    pub name: Vec<u8>,
    /// Time to keep a lock, in seconds.
    pub timeout: u64,
    /// The locks.
    pub locks: Arc<Locks>,
}

/// The zones of a configuration.
#[derive(Debug, Default)]
pub struct LockZones(pub Box<[LockZone]>);

impl LockZones {
    /// Takes over the locks of the previous configuration's zones of the same name and size.
    pub fn adopt(&mut self, previous: &LockZones) {
        for zone in &mut self.0 {
            let same = previous
                .0
                .iter()
                .find(|old| old.name == zone.name && old.locks.size() == zone.locks.size());
            if let Some(old) = same {
                zone.locks = old.locks.clone();
            }
        }
    }
}

/// The zones named so far. The directives may stand in any order.
#[derive(Default)]
pub struct UnresolvedLockZones(Vec<(Vec<u8>, Span, Option<LockZone>)>);

impl UnresolvedLockZones {
    fn position(&mut self, name: &[u8], span: Span) -> usize {
        self.0.iter().position(|(other, ..)| other == name).unwrap_or_else(|| {
            self.0.push((name.to_vec(), span, None));
            self.0.len() - 1
        })
    }

    /// The zones; all of them must be defined.
    pub fn resolve(self, cx: &mut Cx<'_>) -> LockZones {
        let mut zones = Vec::new();
        for (name, span, zone) in self.0 {
            match zone {
                Some(zone) => zones.push(zone),
                None => {
                    let name = String::from_utf8_lossy(&name);
                    let text = format!("zero size shared memory zone \"{name}\"");
                    let hint = "define it with dav_ext_lock_zone";
                    cx.report(Diagnostic::emerg(text).at(span).hint(hint));
                }
            }
        }
        LockZones(zones.into())
    }
}

/// The number of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneName(pub usize);

impl Setting for ZoneName {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        match word.text.strip_prefix(b"zone=") {
            Some(name) if !name.is_empty() => {
                Ok(Self(cx.global::<UnresolvedLockZones>().position(name, word.span)))
            }
            _ => Err(node.parameter_error(word)),
        }
    }
}

fn dav_ext_lock_zone(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let (mut zone, mut timeout) = (None, TIMEOUT);
    for word in &node.args {
        if let Some(text) = word.text.strip_prefix(b"zone=") {
            let at = text.iter().position(|byte| *byte == b':').filter(|at| *at > 0);
            let size = at.and_then(|at| Size::from_word(&text[at + 1..]).ok());
            let (Some(at), Some(Size(size))) = (at, size) else {
                let invalid = word.error(format!("invalid zone size \"{word}\""));
                return Err(invalid.expected("a zone such as zone=name:10m"));
            };
            if size < ZONE_BYTES_MIN {
                let small = word.error(format!("zone \"{word}\" is too small"));
                return Err(small.expected(format!("{}k or more", ZONE_BYTES_MIN / 1024)));
            }
            zone = Some((&text[..at], size, word));
        } else if let Some(text) = word.text.strip_prefix(b"timeout=") {
            let time = Msec::from_word(text).ok().filter(|time| time.0 >= 1000);
            let Some(Msec(time)) = time else {
                let invalid = word.error(format!("invalid timeout value \"{word}\""));
                return Err(invalid.expected("a time of at least 1s, such as timeout=1h"));
            };
            timeout = time / 1000;
        } else {
            return Err(node.parameter_error(word));
        }
    }
    let Some((name, size, word)) = zone else {
        return Err(node.error("\"dav_ext_lock_zone\" must have \"zone\" parameter"));
    };
    let named = cx.global::<UnresolvedLockZones>();
    let at = named.position(name, word.span);
    let slot = &mut named.0[at].2;
    if slot.is_some() {
        return Err(word.error(format!("duplicate zone \"{}\"", String::from_utf8_lossy(name))));
    }
    let locks = Arc::new(Locks::new(size));
    *slot = Some(LockZone { name: name.to_vec(), timeout, locks });
    Ok(())
}
