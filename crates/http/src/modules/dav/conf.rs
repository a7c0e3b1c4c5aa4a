//! Directives of `ngx_http_dav_module`.

use nowait_message::Method;

use crate::backend::conf::StoreAccess;

nowait_conf::directives! {
    /// Which methods change files, and how.
    #[derive(Debug)]
    module "dav";
    pub struct DavConf with DavConfLayer;

    /// Allows these methods of WebDAV. A file that is PUT is first written to a temporary file, which is
    /// then renamed; if `client_body_temp_path` is on another file system, it is copied there first. The
    /// field `Date` of a PUT sets the time of the file. See [WebDAV](../webdav.md).
    dav_methods: DavMethods = "off", in HTTP | SERVER | LOCATION, args "off | method ...";
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
