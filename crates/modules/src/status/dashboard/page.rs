//! The page: one file, put together once per process, and the policy that allows exactly its style and its script.

use std::sync::LazyLock;

use bytes::Bytes;
use nowait_http::page_style;

/// The structure, with places for style and script.
const STRUCTURE: &str = include_str!("page.html");

/// The style, after the common one of all pages.
const STYLE: &str = include_str!("page.css");

/// The script.
const SCRIPT: &str = include_str!("page.js");

/// The page and its policy.
pub struct DashboardPage {
    pub text: Bytes,
    /// The value of `Content-Security-Policy`.
    pub policy: Bytes,
}

/// The page.
pub fn page() -> &'static DashboardPage {
    static PAGE: LazyLock<DashboardPage> = LazyLock::new(build);
    &PAGE
}

fn build() -> DashboardPage {
    let style = format!("{}{STYLE}", page_style::STYLE);
    let text = STRUCTURE.replace("%STYLE%", &style).replace("%SCRIPT%", SCRIPT);
    // The icon is in the page, too.
    let policy =
        page_style::policy(&style, Some(SCRIPT)).replace("img-src 'self'", "img-src data:");
    let policy = format!(
        "{policy}; connect-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
    );
    DashboardPage { text: text.into(), policy: policy.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_no_external_resources() {
        let text = std::str::from_utf8(&page().text).unwrap();
        for wrong in ["src=", "http://", "https://", "@import", "url(", "%STYLE%", "%SCRIPT%"] {
            // Names of XML namespaces are no addresses.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains(wrong), "{wrong}");
        }
        assert_eq!(text.matches("</script>").count(), 1);
        assert_eq!(text.matches("</style>").count(), 1);
    }

    #[test]
    fn text_of_others_never_becomes_markup() {
        for wrong in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!SCRIPT.contains(wrong), "{wrong}");
        }
    }
}
