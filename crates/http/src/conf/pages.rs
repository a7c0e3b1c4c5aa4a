//! Settings of error pages and redirects. nginx: `ngx_http_core_module`.

use nowait_conf::{Cx, Diagnostic, Node, Setting, arity};

use crate::special_pages::ServerTokens;
use crate::special_pages::internal::CLIENT_CLOSED;
use crate::variables::complex::Complex;

nowait_conf::directives! {
    /// Error pages and redirects.
    #[derive(Debug)]
    module "core";
    pub struct PagesConf with PagesConfLayer;

    /// The URI that responds for these statuses. `=CODE` replaces the status; `=` alone keeps the
    /// status of the page.
    error_page: Vec<ErrorPage>, in HTTP | SERVER | LOCATION | LOCATION_IF, args "code ... [=[response]] uri";
    /// The format of built-in error pages. `html` is nginx's. `page` (Nowait's own) gives browsers, which
    /// are recognised by `text/html` in `Accept`, a page that says in one sentence what happened; other
    /// clients get `html`. If the server is at fault (5xx), the page shows `$request_id` as a reference: log the
    /// variable to find the request that a visitor reports. Pages that `error_page` names are not affected.
    error_page_format: PageFormat = "html", in HTTP | SERVER | LOCATION, args "html | page";
    /// Controls whether an error page may lead to another error page.
    recursive_error_pages: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether a location whose name ends in a slash redirects requests for its name without the slash (301).
    /// With `default`, it does so if it passes requests to another server (`proxy_pass` and its kin). Angie has this
    /// directive.
    auto_redirect: AutoRedirect = "default", in HTTP | SERVER | LOCATION, args "on | off | default";
    /// Controls whether redirects made by the server contain scheme, host and port, or only the
    /// path.
    absolute_redirect: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether absolute redirects use the first server name instead of the request's host.
    server_name_in_redirect: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether absolute redirects contain the port of the server if it is not the scheme's
    /// default.
    port_in_redirect: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether error pages for old versions of MSIE are padded to 512 bytes.
    msie_padding: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether old versions of MSIE get self-refreshing pages instead of redirects.
    msie_refresh: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether missing files are logged to the error log.
    log_not_found: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
    /// Controls whether subrequests are logged to the access log, with the settings of their own
    /// location.
    log_subrequest: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    /// Selects the content of the `Server` field and of error pages: the version, the build, or
    /// only the name.
    server_tokens: ServerTokens = "on", in HTTP | SERVER | LOCATION, args "on | off | build";
}

nowait_conf::setting_enum! {
    /// `auto_redirect`
    pub enum AutoRedirect {
        /// As the handler of the content has it.
        Default = "default",
        /// Redirects.
        On = "on",
        /// Does not.
        Off = "off",
    }
}

nowait_conf::setting_enum! {
    /// `error_page_format`
    pub enum PageFormat {
        /// nginx's pages.
        Html = "html",
        /// Pages for people.
        Page = "page",
    }
}

impl nowait_conf::Value for ServerTokens {
    fn from_word(text: &[u8]) -> Result<Self, nowait_conf::ValueError> {
        match text {
            b"off" => Ok(Self::Off),
            b"on" => Ok(Self::On),
            b"build" => Ok(Self::Build),
            _ => Err(nowait_conf::ValueError::value().expected("on, off or build")),
        }
    }
}

/// One `error_page` directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPage {
    /// Statuses that it replaces.
    pub statuses: Vec<u16>,
    /// The status for the client.
    pub overwrite: Overwrite,
    /// A URI of this server, `@name`, or a URL to redirect to.
    pub target: Complex,
}

/// The status of an error page's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// The original status.
    Keep,
    /// This status: `=200`.
    Status(u16),
    /// The page's own: `=`.
    Page,
}

impl Setting for ErrorPage {
    const ARITY: arity::Arity = arity::at_least(2);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let (target, mut codes) = node.args.split_last().ok_or_else(|| node.arity_error())?;
        let mut overwrite = Overwrite::Keep;
        if let Some((last, rest)) = codes.split_last()
            && let Some(code) = last.text.strip_prefix(b"=")
        {
            overwrite = if code.is_empty() {
                Overwrite::Page
            } else {
                let status = parse_number(code)
                    .ok_or_else(|| last.error(format!("invalid value \"{last}\"")))?;
                Overwrite::Status(status)
            };
            codes = rest;
            if codes.is_empty() {
                return Err(node.arity_error().expected("at least one status before \"=\""));
            }
        }
        let mut statuses = Vec::with_capacity(codes.len());
        for word in codes {
            let status = parse_number(&word.text)
                .ok_or_else(|| word.error(format!("invalid value \"{word}\"")))?;
            if status == CLIENT_CLOSED {
                return Err(word
                    .error(format!("invalid value \"{word}\""))
                    .hint("499 is only logged: the client is gone, so nothing can be sent"));
            }
            if !(300..=599).contains(&status) {
                return Err(word.error(format!("value \"{word}\" must be between 300 and 599")));
            }
            // nginx: a page for 497 is sent as 400 unless it states another status.
            if matches!(status, 494..=497) && overwrite == Overwrite::Keep {
                overwrite = Overwrite::Status(400);
            }
            statuses.push(status);
        }
        Ok(Self { statuses, overwrite, target: super::complex(target, cx)? })
    }
}

fn parse_number(text: &[u8]) -> Option<u16> {
    if text.is_empty() || text.len() > 4 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |n, digit| n * 10 + u16::from(digit - b'0')))
}
