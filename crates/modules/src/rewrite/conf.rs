//! The directives of the rewrite module. nginx: `ngx_http_rewrite_module`.
//!
//! While a block is read, its directives are collected in order ([`Code`]); an `if` keeps its own
//! code and the scope with its settings. When the location is built, [`Code::compile`] makes one
//! [`Program`] of it, in which every `if` in a location knows the location that its settings make.

use std::rc::Rc;

use nowait_conf::{Context, Cx, Diagnostic, Node, Scope, Span, Word};
use nowait_http::conf::{LocationId, compile_regex, complex};
use nowait_http::variables::complex::{Mentions, Table};
use nowait_variables::{Index, assigned_urls, variable_name};

use super::{FileTest, Flag, IfCondition, Op, Program, Replacement, Return, Rewrite};

nowait_conf::directives! {
    /// Settings of the rewrite module.
    #[derive(Debug)]
    module "rewrite";
    pub struct RewriteConf with RewriteConfLayer;

    /// Controls whether the module logs its actions to the error log at level `notice`.
    rewrite_log: bool = "off", in HTTP | SERVER | SERVER_IF | LOCATION | LOCATION_IF, args "on | off";
    /// Controls whether the use of a variable that was never set is logged to the error log.
    uninitialized_variable_warn: bool = "on", in HTTP | SERVER | SERVER_IF | LOCATION | LOCATION_IF, args "on | off";
}

nowait_conf::rows! {
    pub static REWRITE_ROWS, module "rewrite";

    /// Changes the URI if its path matches the expression. `last` selects the location again at
    /// once, `break` stays in this one; `redirect` (302) and `permanent` (301) redirect the client,
    /// as does a replacement that begins with `http://`, `https://` or `$scheme`. The query string
    /// is kept unless the replacement ends with a question mark.
    "rewrite" => rewrite, in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(2, 3), args "regex replacement [last | break | redirect | permanent]";
    /// Ends the request: with a status, a status and a text, or a redirect. 444 closes the
    /// connection without a response.
    "return" => return_, in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take between(1, 2), args "code [text] | code URL | URL";
    /// Ends the processing of this module's directives; the request stays in its location.
    "break" => break_, in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take none(), args "";
    /// Runs directives of this module, and applies settings, if a condition holds: a variable that
    /// is neither empty nor `0`, a comparison (`=`, `!=`), a regular expression (`~`, `~*`, `!~`,
    /// `!~*`) or a file test (`-f`, `-d`, `-e`, `-x`, negated with `!`).
    block "if" => if_, in SERVER | LOCATION, take at_least(1), args "(condition) { ... }";
    /// Sets a variable. Of the built-in variables, `$args` and `$limit_rate` can be set.
    "set" => set, in SERVER | LOCATION | SERVER_IF | LOCATION_IF, take exactly(2), args "$variable value";
}

/// The directives of a block, in order.
#[derive(Default)]
pub struct Code(Vec<Statement>);

enum Statement {
    Op(Op, Span),
    If {
        span: Span,
        condition: IfCondition,
        /// The settings in the block of an `if` in a location.
        scope: Option<Rc<Scope>>,
        inner: Code,
    },
}

impl Code {
    /// Compiles the directives to a program. `locate` makes a location of the settings of an `if`.
    /// `None`: there are none. `log`: `rewrite_log`.
    pub fn compile(
        &self,
        log: bool,
        locate: &mut dyn FnMut(Rc<Scope>) -> LocationId,
    ) -> Option<Program> {
        let (mut ops, mut spans) = (Vec::new(), Vec::new());
        self.append(&mut ops, &mut spans, locate);
        Program::new(ops, spans, log)
    }

    fn append(
        &self,
        ops: &mut Vec<Op>,
        spans: &mut Vec<Span>,
        locate: &mut dyn FnMut(Rc<Scope>) -> LocationId,
    ) {
        for pending in &self.0 {
            match pending {
                Statement::Op(op, span) => {
                    ops.push(op.clone());
                    spans.push(*span);
                }
                Statement::If { span, condition, scope, inner } => {
                    let location = scope.clone().map(&mut *locate);
                    let condition = condition.clone();
                    let at = ops.len();
                    ops.push(Op::Break); // its place is taken below
                    spans.push(*span);
                    inner.append(ops, spans, locate);
                    ops[at] = Op::If { condition, location, otherwise: ops.len() };
                }
            }
        }
    }
}

pub(super) fn push(cx: &mut Cx<'_>, node: &Node, op: Op) {
    cx.layer::<Code>().0.push(Statement::Op(op, node.span));
}

fn rewrite(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [pattern, to, ..] = &node.args[..] else { return Err(node.arity_error()) };
    if to.text.is_empty() {
        return Err(to.error("empty replacement").expected("a URI"));
    }
    let regex = compile_regex(cx, pattern, &pattern.text, false)?;
    let mut to = to.clone();
    let keep_args = to.text.last() != Some(&b'?');
    if !keep_args {
        to.text.pop();
    }
    let mut status = is_url(&to.text).then_some(302);
    let mut flag = Flag::Continue;
    if let Some(word) = node.args.get(2) {
        match &word.text[..] {
            b"last" => flag = Flag::Last,
            b"break" => flag = Flag::Break,
            b"redirect" => status = Some(302),
            b"permanent" => status = Some(301),
            _ => {
                let expected = "\"last\", \"break\", \"redirect\" or \"permanent\"";
                return Err(node.parameter_error(word).expected(expected));
            }
        }
    }
    let question = to.text.iter().position(|&b| b == b'?');
    let replacement = match status {
        Some(status) => {
            Replacement::Redirect { to: complex(&to, cx)?, has_args: question.is_some(), status }
        }
        None => {
            let args = question.map(|at| {
                let args = Word { text: to.text[at + 1..].to_vec(), ..to.clone() };
                to.text.truncate(at);
                args
            });
            Replacement::Uri {
                path: complex(&to, cx)?,
                args: args.map(|args| complex(&args, cx)).transpose()?,
                flag,
            }
        }
    };
    push(cx, node, Op::Rewrite(Rewrite { regex, replacement, keep_args }));
    Ok(())
}

/// Whether a replacement redirects, or may redirect, to another server.
fn is_url(text: &[u8]) -> bool {
    [&b"http://"[..], b"https://", b"$scheme"].iter().any(|start| text.starts_with(start))
}

fn return_(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let first = node.args.first().ok_or_else(|| node.arity_error())?;
    let invalid = || first.error(format!("invalid return code \"{first}\""));
    let status = std::str::from_utf8(&first.text)
        .ok()
        .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|text| text.parse().ok());
    let answer = match (status, node.args.get(1)) {
        (Some(status), _) if status > 999 => return Err(invalid()),
        (Some(status), text) => {
            let text = text.filter(|word| !word.text.is_empty());
            Return { status, text: text.map(|word| complex(word, cx)).transpose()? }
        }
        (None, Some(_)) => return Err(invalid().expected("a status such as 301")),
        (None, None) if is_url(&first.text) => {
            Return { status: 302, text: Some(complex(first, cx)?) }
        }
        (None, None) => {
            return Err(invalid().expected("a status, or a URL with http:// or https://"));
        }
    };
    push(cx, node, Op::Return(answer));
    Ok(())
}

fn break_(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    push(cx, node, Op::Break);
    Ok(())
}

fn set(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [name, value] = &node.args[..] else { return Err(node.arity_error()) };
    let variable = variable_name(name)?;
    let place =
        cx.global::<Table>().define_set(variable).map_err(|error| name.error(error.to_string()))?;
    assigned_urls::note(cx, variable, value);
    let value = complex(value, cx)?;
    cx.global::<Table>().note_assigned(variable, &value);
    push(cx, node, Op::Set { place, value });
    Ok(())
}

fn if_(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let in_server = cx.context() == Context::SERVER;
    let condition = condition(cx, node);
    let condition = cx.accept(condition);
    let context = if in_server { Context::SERVER_IF } else { Context::LOCATION_IF };
    let mut scope = cx.block(context, node.children());
    if let Some(condition) = condition {
        let inner = scope.take::<Code>();
        let scope = (!in_server).then(|| Rc::new(scope));
        cx.layer::<Code>().0.push(Statement::If { span: node.span, condition, scope, inner });
    }
    Ok(())
}

/// nginx: `ngx_http_rewrite_if_condition`.
fn condition(cx: &mut Cx<'_>, node: &Node) -> Result<IfCondition, Diagnostic> {
    let words = without_parentheses(node)?;
    let [first, rest @ ..] = &words[..] else { return Err(node.arity_error()) };
    let invalid = || first.error(format!("invalid condition \"{first}\""));
    if first.text.len() > 1 && first.text.starts_with(b"$") {
        return match rest {
            [] => Ok(IfCondition::True(variable(cx, first))),
            [operator, operand] => compare(cx, first, operator, operand),
            _ => Err(invalid()
                .expected("one comparison: a variable, an operator and a value")
                .hint("conditions can't be combined; \"map\" tests several variables at once")),
        };
    }
    let (negated, test) = match &first.text[..] {
        [b'-', test] => (false, test),
        [b'!', b'-', test] => (true, test),
        [b'!', b'$', ..] => {
            let shown = String::from_utf8_lossy(&first.text[1..]).into_owned();
            return Err(invalid().hint(format!("if ({shown} = \"\") tests for an empty value")));
        }
        _ => return Err(invalid().expected("a variable, or a test of a file such as -f")),
    };
    let test = match test {
        b'f' => FileTest::Plain,
        b'd' => FileTest::Directory,
        b'e' => FileTest::Exists,
        b'x' => FileTest::Executable,
        _ => return Err(invalid().expected("one of -f, -d, -e, -x")),
    };
    match rest {
        [path] => Ok(IfCondition::File { path: complex(path, cx)?, test, negated }),
        _ => Err(invalid().expected("one path behind it")),
    }
}

/// The words between the parentheses, which may be separate words or attached to others.
fn without_parentheses(node: &Node) -> Result<Vec<Word>, Diagnostic> {
    let mut words = node.args.clone();
    let invalid = |word: &Word| word.error(format!("invalid condition \"{word}\""));
    let first = words.first_mut().ok_or_else(|| node.arity_error())?;
    if first.text.first() != Some(&b'(') {
        return Err(invalid(first).expected("a condition in parentheses"));
    }
    first.text.remove(0);
    if first.text.is_empty() {
        words.remove(0);
    }
    let Some(last) = words.last_mut() else {
        return Err(node.error("invalid condition \"(\"").expected("a condition in parentheses"));
    };
    if last.text.last() != Some(&b')') {
        return Err(invalid(last).expected("a closing parenthesis"));
    }
    last.text.pop();
    if last.text.is_empty() {
        words.pop();
    }
    match words.is_empty() {
        true => Err(node.error("invalid condition \")\"").expected("a condition")),
        false => Ok(words),
    }
}

fn compare(
    cx: &mut Cx<'_>,
    first: &Word,
    operator: &Word,
    operand: &Word,
) -> Result<IfCondition, Diagnostic> {
    let variable = variable(cx, first);
    let matches = |cx: &mut Cx<'_>, caseless, negated| {
        let regex = compile_regex(cx, operand, &operand.text, caseless)?;
        Ok(IfCondition::Matches { variable, regex, negated })
    };
    let equal = |cx: &mut Cx<'_>, negated| {
        let value = complex(operand, cx)?;
        Ok(IfCondition::Equal { variable, value, negated })
    };
    match &operator.text[..] {
        b"=" => equal(cx, false),
        b"!=" => equal(cx, true),
        b"~" => matches(cx, false, false),
        b"~*" => matches(cx, true, false),
        b"!~" => matches(cx, false, true),
        b"!~*" => matches(cx, true, true),
        _ => Err(operator
            .error(format!("unexpected \"{operator}\" in condition"))
            .expected("one of =, !=, ~, ~*, !~, !~*")),
    }
}

/// The variable at the beginning of a condition. Its whole word is the name, as in nginx.
fn variable(cx: &mut Cx<'_>, word: &Word) -> Index {
    let name = String::from_utf8_lossy(&word.text[1..]).into_owned();
    cx.global::<Mentions>().note(name.as_bytes(), word.span);
    cx.global::<Table>().index(&name)
}
