//! The choice of a location, compared with a naive search.

use super::*;

type Level = Builder<String, String>;

/// Adds `location ARGS` with its arguments as value; the "regex" of these tests is a substring.
fn add(level: &mut Level, args: &str, nested: Option<Level>) {
    add_with(level, args, nested, false);
}

fn add_with(level: &mut Level, args: &str, nested: Option<Level>, auto_redirect: bool) {
    let words: Vec<&[u8]> = args.split(' ').map(str::as_bytes).collect();
    let pattern = Pattern::parse(&words).unwrap();
    let test = matches!(pattern.kind, Kind::Regex { .. } | Kind::Variable)
        .then(|| String::from_utf8(pattern.text.to_vec()).unwrap());
    let nested = nested.map(|level| level.build().unwrap());
    level.add(pattern, LocationNode { value: args.to_owned(), test, auto_redirect, nested });
}

fn find(level: &Locations<String, String>, uri: &str) -> String {
    // A variable holds if a dash and its name are in the URI.
    let found = level.find::<()>(uri.as_bytes(), |test| Ok(uri.contains(&test.replace('$', "-"))));
    let found = found.unwrap();
    match found {
        None => "none".to_owned(),
        Some(found) => {
            let redirect = if found.auto_redirect { " -> /" } else { "" };
            format!("{}{redirect}", found.value)
        }
    }
}

fn level(list: &[&str]) -> Level {
    let mut level = Level::new();
    list.iter().for_each(|args| add(&mut level, args, None));
    level
}

#[test]
fn variables_come_after_prefixes_and_regexes() {
    let mut level = level(&["$v", "= /exact-v", "/", "^~ /final", "~ regex", "$w"]);
    add(&mut level, "/outer", Some(self::level(&["$v", "/outer/in"])));
    let mut inside = self::level(&["= /x-z", "~ deep", "$v"]);
    add_with(&mut inside, "/dir-z/", None, true);
    add(&mut level, "$z", Some(inside));
    let level = level.build().unwrap();
    for (uri, expected) in [
        ("/a", "/"),
        ("/a-v", "$v"),
        ("/a-w-v", "$v"),
        ("/a-w", "$w"),
        ("/exact-v", "= /exact-v"),
        ("/final-v", "^~ /final"),
        ("/regex-v", "~ regex"),
        ("/outer-v", "$v"),
        ("/outer-w", "$w"),
        ("/outer", "/outer"),
        ("/x-z", "= /x-z"),
        ("/other-z", "$z"),
        ("/deep-z", "~ deep"),
        ("/dir-z", "/dir-z/ -> /"),
        ("/dir-z/a", "/dir-z/"),
    ] {
        assert_eq!(find(&level, uri), expected, "{uri}");
    }
}

#[test]
fn the_manual_example() {
    // nginx.org, "location": configurations A to E.
    let table = level(&["= /", "/", "/documents/", "^~ /images/", "~* .jpg"]).build().unwrap();
    assert_eq!(find(&table, "/"), "= /");
    assert_eq!(find(&table, "/index.html"), "/");
    assert_eq!(find(&table, "/documents/document.html"), "/documents/");
    assert_eq!(find(&table, "/images/1.gif"), "^~ /images/");
    assert_eq!(find(&table, "/images/1.jpg"), "^~ /images/");
    assert_eq!(find(&table, "/documents/1.jpg"), "~* .jpg");
}

#[test]
fn nested_levels() {
    let mut top = level(&["/other"]);
    let inner = level(&["/a/b", "= /a/c", "~ .php", "^~ /a/d"]);
    add(&mut top, "/a", Some(inner));
    add(&mut top, "~ x", Some(level(&["~ xy"])));
    let table = top.build().unwrap();
    assert_eq!(find(&table, "/a"), "/a");
    assert_eq!(find(&table, "/a/b/c"), "/a/b");
    assert_eq!(find(&table, "/a/c"), "= /a/c");
    assert_eq!(find(&table, "/a/cx"), "~ x");
    assert_eq!(find(&table, "/a/b.php.x"), "~ .php");
    // `^~` of a nested location does not shield from the outer level's regexes.
    assert_eq!(find(&table, "/a/d.php"), "^~ /a/d");
    assert_eq!(find(&table, "/a/d.x"), "~ x");
    assert_eq!(find(&table, "/a/d.xy"), "~ xy");
    assert_eq!(find(&table, "/q"), "none");
}

#[test]
fn auto_redirect_needs_the_missing_slash_and_no_equal_location() {
    let mut top = level(&["/", "/plain/", "/p!x", "= /both"]);
    for args in ["/p/", "/both/", "= /e/"] {
        add_with(&mut top, args, None, true);
    }
    let mut inner = Level::new();
    add_with(&mut inner, "/n/m/", None, true);
    add(&mut top, "/n", Some(inner));
    let table = top.build().unwrap();
    assert_eq!(find(&table, "/p"), "/p/ -> /");
    assert_eq!(find(&table, "/p/"), "/p/");
    assert_eq!(find(&table, "/plain"), "/");
    assert_eq!(find(&table, "/both"), "= /both");
    assert_eq!(find(&table, "/e"), "= /e/ -> /");
    assert_eq!(find(&table, "/n/m"), "/n/m/ -> /");
}

#[test]
fn long_texts_redirect() {
    let text = |length: usize| format!("/{}/", "a".repeat(length - 2));
    let lengths = [61, 63, 64, 65, 100];
    let mut top = Level::new();
    for length in lengths {
        add_with(&mut top, &text(length), None, true);
    }
    let table = top.build().unwrap();
    for length in 50..120 {
        let text = text(length);
        let expected = match lengths.contains(&length) {
            true => format!("{text} -> /"),
            false => "none".to_owned(),
        };
        assert_eq!(find(&table, text.strip_suffix('/').unwrap()), expected);
    }
}

#[test]
fn named() {
    let table = level(&["@a", "@b", "/"]).build().unwrap();
    assert_eq!(table.named(b"@b").unwrap(), "@b");
    assert!(table.named(b"@c").is_none());
    assert_eq!(find(&table, "@a"), "none");
}

#[test]
fn refusals_have_nginx_wording() {
    let parse = |args: &str| {
        let words: Vec<&[u8]> = args.split(' ').map(str::as_bytes).collect();
        Pattern::parse(&words)
    };
    let inside = |child: &str, parent: &str| {
        parse(child).unwrap().check_inside(&parse(parent).unwrap()).map_err(|e| e.to_string())
    };
    assert_eq!(parse("! /").unwrap_err().to_string(), "invalid location modifier \"!\"");
    assert_eq!(
        inside("/a/b", "= /a"),
        Err("location \"/a/b\" cannot be inside the exact location \"/a\"".into())
    );
    assert_eq!(
        inside("/a", "@x"),
        Err("location \"/a\" cannot be inside the named location \"@x\"".into())
    );
    assert_eq!(
        inside("@x", "/"),
        Err("named location \"@x\" can be on the server level only".into())
    );
    assert_eq!(inside("/b", "/a"), Err("location \"/b\" is outside location \"/a\"".into()));
    assert_eq!(inside("/ab", "^~/a"), Ok(()));
    assert_eq!(inside("~ x", "/a"), Ok(()));
    assert_eq!(inside("~ x", "~* /a"), Ok(()));
    assert!(inside("/b", "~ a").is_err());
    let errors = level(&["/a", "= /a", "/b", "^~ /a", "=/a"]).build().unwrap_err();
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["duplicate location \"/a\"", "duplicate location \"/a\""]);
    assert!(matches!(errors[0], LocationError::Duplicate { index: 3, .. }));
    assert!(matches!(errors[1], LocationError::Duplicate { index: 4, .. }));
}

#[test]
fn modifiers_may_touch_the_text() {
    for (args, kind) in [
        ("=/a", Kind::Exact),
        ("^~/a", Kind::PrefixNoRegex),
        ("~/a", Kind::Regex { caseless: false }),
        ("~*/a", Kind::Regex { caseless: true }),
        ("/a", Kind::Prefix),
    ] {
        let pattern = Pattern::parse(&[args.as_bytes()]).unwrap();
        assert_eq!((pattern.kind, &*pattern.text), (kind, &b"/a"[..]));
    }
}

#[test]
fn agrees_with_a_naive_oracle() {
    let mut seed = 11u64;
    let mut next = move |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    let alphabet = [b'/', b'a', b'!', b'/'];
    for _ in 0..2000 {
        let text = |next: &mut dyn FnMut(usize) -> usize| {
            let tail: Vec<u8> = (0..next(6)).map(|_| alphabet[next(4)]).collect();
            format!("/{}", String::from_utf8(tail).unwrap())
        };
        // (text, exact, ^~, auto_redirect)
        let mut list: Vec<(String, bool, bool, bool)> = Vec::new();
        let mut builder = Level::new();
        for _ in 0..next(10) {
            let (text, exact, shield) = (text(&mut next), next(3) == 0, next(3) == 0);
            if list.iter().any(|other| other.0 == text && other.1 == exact) {
                continue;
            }
            let auto = text.ends_with('/') && next(2) == 0;
            let args = if exact {
                "= "
            } else if shield {
                "^~ "
            } else {
                ""
            };
            add_with(&mut builder, &format!("{args}{text}"), None, auto);
            list.push((text, exact, shield && !exact, auto));
        }
        add(&mut builder, "~ a", None);
        let table = builder.build().unwrap();
        for _ in 0..20 {
            let uri = text(&mut next);
            let name = |l: &(String, bool, bool, bool)| {
                format!(
                    "{}{}",
                    if l.1 {
                        "= "
                    } else if l.2 {
                        "^~ "
                    } else {
                        ""
                    },
                    l.0
                )
            };
            let equal = |exact| list.iter().find(|l| l.0 == uri && l.1 == exact);
            let slashed = format!("{uri}/");
            let redirect = list
                .iter()
                .any(|l| l.0 == slashed && l.3)
                .then(|| list.iter().filter(|l| l.0 == slashed).max_by_key(|l| l.1))
                .flatten();
            let longest =
                list.iter().filter(|l| !l.1 && uri.starts_with(&l.0)).max_by_key(|l| l.0.len());
            let expected = if let Some(l) = equal(true) {
                name(l)
            } else if let (None, Some(l)) = (equal(false), redirect) {
                format!("{} -> /", name(l))
            } else {
                match longest {
                    Some(l) if l.2 || !uri.contains('a') => name(l),
                    _ if uri.contains('a') => "~ a".to_owned(),
                    _ => "none".to_owned(),
                }
            };
            assert_eq!(find(&table, &uri), expected, "{list:?} {uri}");
        }
    }
}
