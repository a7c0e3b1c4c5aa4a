//! Parameters as they are sent, in all forms.

use std::fmt::Debug;

use nowait_gateway::scgi::ZeroByte;
use nowait_gateway::{fastcgi, scgi, uwsgi};
use nowait_message::{FieldTable, Known, Span};
use nowait_variables::Index;

use super::*;

/// A parameter; a value is a number of bytes, and a text that begins with a dollar sign is a variable.
fn param(name: &str, value: &str, if_not_empty: bool) -> Param {
    let value = match value.strip_prefix('$') {
        Some(_) => Complex::new(vec![Part::Variable(Index::from(value.len() as u32 - 1))]),
        None => Complex::from_literal(value.to_owned()),
    };
    Param { name: name.to_owned().into(), value, if_not_empty }
}

/// The list of these parameters. A variable has as many bytes as its name.
fn list<F: ParamForm>(params: &[Param]) -> Result<Vec<u8>, F::Error> {
    let (mut list, mut out) = (List::default(), b">".to_vec());
    params.iter().for_each(|param| list.add::<F>(param));
    list.write::<F>(&mut out, |value, out| match value {
        Value::Variable(index) => {
            let bytes = (0..).find(|n| Index::from(*n) == *index).unwrap_or_default();
            out.extend(std::iter::repeat_n(b'$', bytes as usize));
        }
        Value::Text(text) | Value::Method(text) => {
            out.extend_from_slice(text.literal().map_or(&b"?"[..], |text| text));
        }
        Value::Host => out.extend_from_slice(b"host"),
    })?;
    Ok(out)
}

/// The list of these names and values, written one by one.
fn one_by_one<F: ParamForm<Error: Debug>>(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut out = b">".to_vec();
    for (name, value) in pairs {
        F::push(&mut out, name.as_bytes(), value.as_bytes()).unwrap();
    }
    out
}

fn check_all<F: ParamForm<Error: Debug>>() {
    let (long_name, long) = ("N".repeat(128), "v".repeat(128));
    let variable = |bytes: usize| "$".repeat(bytes + 1);
    let (short, at_limit, huge) = (variable(127), variable(128), variable(70_000));
    let sent = [
        ("A", "1"),
        ("EMPTY", ""),
        ("B", "$x"),
        ("C", "2"),
        ("NOTHING", "$"),
        (&long_name, "3"),
        (&long_name, &short),
        ("D", &long),
        ("E", &at_limit),
        ("F", &long[1..]),
        ("REQUEST_METHOD", "GET"),
        ("G", &huge),
        ("LAST", ""),
    ];
    // Those that are not sent stand between any two.
    let skipped = [param("S", "", true), param("T", "$", true)];
    let mut params = skipped.to_vec();
    for (n, (name, value)) in sent.iter().enumerate() {
        params.push(param(name, value, n % 2 == 0 && !value.is_empty() && *value != "$"));
        params.extend_from_slice(&skipped);
    }
    let value = |value: &str| match value.strip_prefix('$') {
        Some(rest) => "$".repeat(rest.len()),
        None => value.to_owned(),
    };
    let values: Vec<_> = sent.iter().map(|(name, text)| (*name, value(text))).collect();
    let pairs: Vec<_> = values.iter().map(|(name, text)| (*name, &text[..])).collect();
    assert!(list::<F>(&params).unwrap() == one_by_one::<F>(&pairs));
    // Alone, and none.
    for (param, pair) in
        [(param("A", "1", false), ("A", "1")), (param("A", "$x", true), ("A", "$"))]
    {
        assert_eq!(list::<F>(&[param]).unwrap(), one_by_one::<F>(&[pair]));
    }
    assert_eq!(list::<F>(&skipped).unwrap(), b">");
}

#[test]
fn prepared_parameters_are_those_that_are_written_one_by_one() {
    check_all::<fastcgi::Params>();
    check_all::<uwsgi::Vars>();
    check_all::<scgi::Headers>();
    check_all::<ExplainForm>();
}

#[test]
fn constant_parameters_have_one_text() {
    let mut list = List::default();
    for name in ["A", "B", "C"] {
        list.add::<fastcgi::Params>(&param(name, "1", false));
    }
    list.add::<fastcgi::Params>(&param("D", "$x", false));
    list.add::<fastcgi::Params>(&param("E", "2", false));
    assert!(format!("{list:?}").matches("Slot").count() == 1, "{list:?}");
}

#[test]
fn a_zero_byte_is_refused_with_each_request() {
    for (name, value) in [("X", "a\0b"), ("X\0", ""), ("X\0", "$x")] {
        let params = [param("A", "1", false), param(name, value, false)];
        let wrong = ZeroByte(name.as_bytes().to_vec());
        assert_eq!(list::<scgi::Headers>(&params), Err(wrong), "{name:?}");
    }
}

#[test]
fn too_many_bytes_for_uwsgi() {
    for (bytes, is_sent) in [(65_530, true), (65_531, false), (70_000, false)] {
        for value in ["v".repeat(bytes), "$".repeat(bytes + 1)] {
            let mut out = Vec::new();
            let vars = uwsgi::Vars::begin(&mut out);
            let Ok(list) = list::<uwsgi::Vars>(&[param("A", &value, false)]);
            out.extend_from_slice(&list[1..]);
            assert_eq!(vars.end([0; 2], &mut out).is_ok(), is_sent, "{bytes}");
        }
    }
}

/// The parameters for these fields of a client.
fn fields(set: &[&str], for_cache: bool, fields: &[(&str, &str)]) -> Vec<String> {
    let set = set.iter().map(|name| Bytes::copy_from_slice(name.as_bytes()));
    let (mut table, mut bytes) = (FieldTable::default(), Vec::new());
    for (name, value) in fields {
        let start = bytes.len();
        bytes.extend_from_slice(name.as_bytes());
        let middle = bytes.len();
        bytes.extend_from_slice(value.as_bytes());
        let (name_span, value_span) = (Span::new(start, middle), Span::new(middle, bytes.len()));
        table.push(name_span, value_span, Known::from_bytes(name.as_bytes()));
    }
    let fields = table.view(&bytes);
    let (mut list, mut told) = (Vec::new(), Vec::new());
    let Ok(()) = ClientFields::without(set).append::<ExplainForm>(fields, for_cache, &mut list);
    ExplainForm::read(&list, &mut |name, value| {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        told.push(format!("{}={}", text(name), text(value)));
    });
    told
}

#[test]
fn fields_of_clients() {
    let none: &[&str] = &[];
    let sent = [
        ("Host", "a"),
        ("X-One", "1"),
        ("Cookie", "a=1"),
        ("User-Agent", "u"),
        ("x-one", "2"),
        ("Accept", "a"),
        ("Proxy", "p"),
        ("X_Two", "3"),
        ("Cookie", "b=2"),
        ("X-Two", "4"),
        ("Accept", "b"),
        ("Range", "bytes=0-"),
        ("X-ONE", ""),
    ];
    let all = [
        "HTTP_X_ONE=1, 2, ",
        "HTTP_COOKIE=a=1; b=2",
        "HTTP_USER_AGENT=u",
        "HTTP_ACCEPT=a, b",
        "HTTP_X_TWO=3",
        "HTTP_X_TWO=4",
        "HTTP_RANGE=bytes=0-",
    ];
    assert_eq!(fields(none, false, &sent), all);
    assert_eq!(fields(none, true, &sent), all[..6]);
    let set = ["X_TWO", "USER-AGENT", "cookie"];
    assert_eq!(fields(&set, true, &sent), [all[0], all[3]]);
    // The memory of hashes is used again.
    assert_eq!(fields(none, false, &[("X-New", "1")]), ["HTTP_X_NEW=1"]);
}

#[test]
fn a_variable_that_never_changes_is_constant() {
    let mut table = Table::default();
    let version = Part::Variable(table.index("nginx_version"));
    let literal = |text: &'static str| Part::Literal(Bytes::from_static(text.as_bytes()));
    let text = Complex::new(vec![literal("nginx/"), version.clone(), literal(";")]);
    let expected = format!("nginx/{};", system::NGINX_VERSION);
    assert_eq!(with_constants(&text, &table).literal(), Some(&expected.into()));
    let uri = Part::Variable(table.index("uri"));
    let text = Complex::new(vec![version, uri.clone()]);
    assert_eq!(with_constants(&text, &table).parts(), [literal(system::NGINX_VERSION), uri]);
}
