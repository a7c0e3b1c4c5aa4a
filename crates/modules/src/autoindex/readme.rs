//! The README of a directory as a part of its page: Markdown or plain text.
//!
//! Called by the handler, which reads the file; [`render`] belongs into a pool. What the file contains is a matter of
//! whoever may write into the directory: HTML in it is shown as text, links lead to the web or to names of this
//! server, and the page's policy forbids scripts besides its own.

use std::borrow::Cow;

use nowait_message::escape;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// Larger files are not shown, in bytes.
pub const BYTES_MAX: usize = 64 << 10;

/// How a file is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadmeKind {
    /// CommonMark with tables.
    Markdown,
    /// As it is.
    Text,
}

/// Names in lower case, the best first.
const NAMES: [(&[u8], ReadmeKind); 4] = [
    (b"readme.md", ReadmeKind::Markdown),
    (b"readme.markdown", ReadmeKind::Markdown),
    (b"readme.txt", ReadmeKind::Text),
    (b"readme", ReadmeKind::Text),
];

/// The place of a name among those of READMEs, if it is one, and its kind.
pub fn rank(name: &[u8]) -> Option<(usize, ReadmeKind)> {
    let found = NAMES.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some((found, NAMES[found].1))
}

/// The file as HTML.
pub fn render(bytes: &[u8], kind: ReadmeKind) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    match kind {
        ReadmeKind::Markdown => markdown(&text).into_bytes(),
        ReadmeKind::Text => {
            let mut out = b"<pre>".to_vec();
            escape::push_html(&mut out, text.as_bytes());
            out.extend_from_slice(b"</pre>\n");
            out
        }
    }
}

fn markdown(text: &str) -> String {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let events = Parser::new_ext(text, options).map(|event| match event {
        Event::Html(html) | Event::InlineHtml(html) => Event::Text(html),
        Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
        Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url: safe(dest_url), title, id })
        }
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Image { link_type, dest_url: safe(dest_url), title, id })
        }
        // The page has a heading of its own.
        Event::Start(Tag::Heading { level, .. }) => Event::Start(Tag::Heading {
            level: below(level),
            id: None,
            classes: Vec::new(),
            attrs: Vec::new(),
        }),
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(below(level))),
        other => other,
    });
    let mut out = String::with_capacity(text.len() * 3 / 2);
    html::push_html(&mut out, events);
    out
}

fn below(level: HeadingLevel) -> HeadingLevel {
    HeadingLevel::try_from(level as usize + 1).unwrap_or(HeadingLevel::H6)
}

/// The target of a link, if it is an address in the web, of mail, or relative; otherwise nothing.
fn safe(target: CowStr<'_>) -> CowStr<'_> {
    // Browsers ignore some control characters within schemes.
    let cleaned: Cow<'_, str> = match target.contains(|c: char| c.is_control() || c == ' ') {
        true => target.replace(|c: char| c.is_control() || c == ' ', "").into(),
        false => Cow::Borrowed(&*target),
    };
    let scheme = cleaned.split(['/', '?', '#']).next().and_then(|start| start.split_once(':'));
    let is_known = |name: &str| {
        ["http", "https", "mailto"].iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    match scheme {
        Some((name, _)) if !is_known(name) => "#".into(),
        _ => target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, kind: ReadmeKind) -> String {
        String::from_utf8(render(text.as_bytes(), kind)).unwrap()
    }

    #[test]
    fn names_have_an_order() {
        let ranks =
            ["README.md", "Readme.TXT", "readme"].map(|name| rank(name.as_bytes()).unwrap().0);
        assert!(ranks.is_sorted(), "{ranks:?}");
        for other in ["README.html", "readme.md.gz", ""] {
            assert_eq!(rank(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn markdown_is_rendered_below_the_heading_of_the_page() {
        let html = shown(
            "# One\n\nA *word*, [a link](docs/a.md).\n\n| a |\n|---|\n| b |\n",
            ReadmeKind::Markdown,
        );
        assert!(
            html.starts_with("<h2>One</h2>\n<p>A <em>word</em>, <a href=\"docs/a.md\">"),
            "{html}"
        );
        assert!(html.contains("<table>"));
        assert_eq!(shown("###### Six", ReadmeKind::Markdown), "<h6>Six</h6>\n");
    }

    #[test]
    fn contents_cannot_do_anything() {
        for text in [
            "<script>alert(1)</script>",
            "a <b onclick=x>c</b>",
            "<img src=x onerror=alert(1)>",
            "<!-- a -->",
            "<style>*{}</style>",
            "# a {onclick=x}",
        ] {
            let html = shown(text, ReadmeKind::Markdown);
            let tags = html
                .replace("<p>", "")
                .replace("</p>", "")
                .replace("<h2>", "")
                .replace("</h2>", "");
            assert!(!tags.contains('<'), "{text}: {html}");
        }
        for target in [
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            "java&#10;script:alert(1)",
            "&#1;javascript:alert(1)",
            "data:text/html,x",
            "vbscript:x",
            "file:///etc/passwd",
        ] {
            for text in [format!("[a]({target})"), format!("![a]({target})"), format!("<{target}>")]
            {
                let html = shown(&text, ReadmeKind::Markdown).to_ascii_lowercase();
                let is_link = html.contains("href=") || html.contains("src=");
                assert!(
                    !is_link || html.contains("href=\"#\"") || html.contains("src=\"#\""),
                    "{text}: {html}"
                );
            }
        }
        for target in ["https://example.org/a:b", "a/b:c", "?a:b", "#a:b", "mailto:a@b.example"] {
            let html = shown(&format!("[a]({target})"), ReadmeKind::Markdown);
            assert!(html.contains(&format!("href=\"{target}\"")), "{html}");
        }
        assert_eq!(shown("a <b>\n&", ReadmeKind::Text), "<pre>a &lt;b&gt;\n&amp;</pre>\n");
    }

    #[test]
    fn hostile_texts_take_no_time() {
        for piece in ["[", "![", "*a_", "> ", "`", "<", "[a](", "|", "- ", "&#"] {
            let text = piece.repeat(BYTES_MAX / piece.len());
            render(text.as_bytes(), ReadmeKind::Markdown);
        }
    }
}
