//! HTTP/1.1 and static files as a client and an operator see them.
//!
//! Every test starts the program with a configuration, has exchanges with it and compares; all run
//! on both drivers under the strict event-loop guard (`stage`). Nothing here is specific to Nowait
//! unless it says so: with `NOWAIT_TESTS_BINARY=/usr/sbin/nginx` the same tests ask nginx, which is
//! how their expectations were checked. Nothing sleeps to let something happen; limits only end
//! what would hang.

mod access;
mod access_log;
mod addition;
mod attacks;
mod auth;
mod auth_request;
mod bodies;
mod browser;
mod cache;
mod charset;
mod codings;
mod conditional;
mod conditions;
mod dashboard;
mod dav;
mod error_log;
mod error_pages;
mod fastcgi;
mod files;
mod flv;
mod full_disk;
mod garbage;
mod gateways;
mod geo;
mod geoip2;
mod grpc;
mod gzip;
mod heads;
mod health;
mod hostile;
mod http2;
mod http2_limits;
mod image_filter;
mod keep_alive;
mod keyval;
mod late;
mod lifecycle;
mod limit;
mod listings;
mod locations;
mod map;
mod mirror;
mod more_headers;
mod mp4;
mod open_file_cache;
mod order;
#[cfg(feature = "otel")]
mod otel;
mod passing;
mod paths;
mod post_action;
mod proxy;
mod proxy_protocol;
mod ranges;
mod realip;
mod redirects;
mod referer;
mod requests;
mod resident;
mod resident_changes;
mod resolver;
mod rewrite;
mod rewrite_errors;
mod secure_link;
mod sending;
mod set_misc;
mod side_by_side;
mod special_files;
mod ssi;
mod stage;
mod status;
mod status_events;
mod steering;
mod stub_status;
mod sub_filter;
mod subrequests;
mod substitution;
mod symlinks;
mod timeouts;
mod tls;
mod transport;
mod try_files;
mod tunnel;
mod turns;
mod upstream;
mod userid;
mod variables;
mod virtual_servers;
mod wrong;
mod zones;
