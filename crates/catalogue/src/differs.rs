//! Directives of nginx with different behaviour in Nowait: the most visible difference of each, and the
//! section of the documentation with details.
//!
//! Called by `nowait migrate`. Facts only; directives that are missing are in
//! [`unsupported`](crate::unsupported).

/// Directives with a common difference.
#[derive(Debug)]
pub struct Difference {
    /// Names separated by blanks.
    names: &'static str,
    /// The difference.
    pub note: &'static str,
    /// The page below `docs`.
    page: &'static str,
    /// The heading of the section on the page.
    section: &'static str,
}

/// The page on all differences.
const PAGE: &str = "from-nginx.md";

const TABLE: &[Difference] = &[
    Difference {
        names: "worker_rlimit_nofile",
        note: "the limit counts for each worker, and is multiplied by their number",
        page: PAGE,
        section: "Processes and signals",
    },
    Difference {
        names: "worker_priority working_directory env",
        note: "applies to the one server process, whose threads are the workers",
        page: PAGE,
        section: "Processes and signals",
    },
    Difference {
        names: "worker_shutdown_timeout",
        note: "a reload stops no worker; only old sessions of \"stream\" end after this time",
        page: PAGE,
        section: "Processes and signals",
    },
    Difference {
        names: "use",
        note: "only \"epoll\" and \"io_uring\" exist",
        page: PAGE,
        section: "Configuration",
    },
    Difference {
        names: "aio directio thread_pool",
        note: "data in memory is served by the event loop, everything else by thread pools",
        page: PAGE,
        section: "Disks",
    },
    Difference {
        names: "disable_symlinks",
        note: "a directory on the path that is a link also gives 403",
        page: PAGE,
        section: "HTTP/1.1",
    },
    Difference {
        names: "proxy_ssl_protocols proxy_ssl_ciphers grpc_ssl_protocols grpc_ssl_ciphers \
                uwsgi_ssl_protocols uwsgi_ssl_ciphers",
        note: "only TLS 1.2 and 1.3 with ECDHE suites exist; others are ignored with a warning",
        page: PAGE,
        section: "Proxying",
    },
    Difference {
        names: "ssl_protocols ssl_ciphers ssl_ecdh_curve ssl_conf_command",
        note: "TLS is rustls: versions before 1.2, DHE and CBC suites, and some commands do not exist",
        page: "tls.md",
        section: "What OpenSSL has and Nowait has not",
    },
    Difference {
        names: "proxy_cache_path fastcgi_cache_path uwsgi_cache_path scgi_cache_path",
        note: "cache files of nginx cannot be read: use an empty directory",
        page: PAGE,
        section: "Caching",
    },
    Difference {
        names: "proxy_cache_lock proxy_cache_lock_timeout proxy_cache_lock_age fastcgi_cache_lock \
                fastcgi_cache_lock_timeout fastcgi_cache_lock_age uwsgi_cache_lock \
                uwsgi_cache_lock_timeout uwsgi_cache_lock_age scgi_cache_lock \
                scgi_cache_lock_timeout scgi_cache_lock_age",
        note: "waiting clients receive an object while it is being stored",
        page: PAGE,
        section: "Caching",
    },
    Difference {
        names: "keepalive",
        note: "a worker without an idle connection borrows one of another worker",
        page: PAGE,
        section: "Upstream groups",
    },
    Difference {
        names: "limit_req_zone limit_conn_zone",
        note: "a reload that changes the key or the size starts with an empty zone",
        page: PAGE,
        section: "Limits",
    },
    Difference {
        names: "gzip_comp_level brotli_comp_level zstd_comp_level",
        note: "long compressions run in the thread pool \"compute\"",
        page: PAGE,
        section: "Compression",
    },
    Difference {
        names: "mirror",
        note: "at most 512 copies run at a time in a worker, and they delay no other request",
        page: PAGE,
        section: "Subrequests",
    },
    Difference {
        names: "http2_chunk_size",
        note: "the default is 16375, which fills a TLS record",
        page: PAGE,
        section: "HTTP/2",
    },
];

/// Every difference.
pub fn all() -> impl Iterator<Item = &'static Difference> {
    TABLE.iter()
}

/// The difference of a directive.
pub fn find(name: &[u8]) -> Option<&'static Difference> {
    let name = std::str::from_utf8(name).ok()?;
    TABLE.iter().find(|known| known.names.split_ascii_whitespace().any(|one| one == name))
}

impl Difference {
    /// The directives.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.split_ascii_whitespace()
    }

    /// The section with details: `docs/from-nginx.md#processes-and-signals`.
    pub fn link(&self) -> String {
        let mut anchor = self.section.to_lowercase().replace(' ', "-");
        anchor.retain(|letter| letter == '-' || letter.is_alphanumeric());
        format!("docs/{}#{anchor}", self.page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_once_and_each_section_exists() {
        let mut names: Vec<_> = all().flat_map(Difference::names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for known in all() {
            let page = format!("{}/../../docs/{}", env!("CARGO_MANIFEST_DIR"), known.page);
            let page = std::fs::read_to_string(page).unwrap();
            let heading = format!("\n## {}\n", known.section);
            assert!(page.contains(&heading), "{}", known.section);
        }
        assert_eq!(find(b"env").unwrap().link(), "docs/from-nginx.md#processes-and-signals");
        assert_eq!(find(b"disable_symlinks").unwrap().link(), "docs/from-nginx.md#http11");
        assert!(find(b"root").is_none());
    }
}
