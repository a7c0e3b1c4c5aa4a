//! `set`: variables that are set when a session begins, in the preaccess phase before limits. nginx:
//! `ngx_stream_set_module`.

use nowait_conf::{Cx, Diagnostic, Node, Scope};
use nowait_variables::{SetTarget, Slot, Subject, variable_name};

use crate::conf::Complex;
use crate::module::{Handler, Module, Phase, Step};
use crate::session::Session;
use crate::status::Status;
use crate::variables::complex::Table;

/// This module.
pub static MODULE: Module =
    Module { rows: &[SET_ROWS], handler: Some((Phase::PreAccess, handler)), variables: &[] };

nowait_conf::rows! {
    pub static SET_ROWS, module "stream_set";

    /// Sets a variable when a session of the server begins, before limits and access rules are
    /// evaluated.
    "set" => set, in STREAM_SERVER, take exactly(2), args "$variable value";
}

/// One `set`.
#[derive(Clone, Debug)]
struct Set {
    /// The variable.
    slot: Slot,
    /// The value.
    value: Complex,
}

/// The `set` directives of a server, in order.
#[derive(Clone, Default)]
struct SetDirectives(Vec<Set>);

fn set(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let [name, value] = &node.args[..] else { return Err(node.arity_error()) };
    let variable = variable_name(name)?;
    let place = cx.global::<Table>().define_set(variable);
    let slot = match place.map_err(|error| name.error(error.to_string()))? {
        SetTarget::Slot(slot) => slot,
        SetTarget::Builtin(_) => unreachable!("no built-in variable of sessions can be changed"),
    };
    let value = nowait_variables::text(value, cx)?;
    cx.layer::<SetDirectives>().0.push(Set { slot, value });
    Ok(())
}

fn handler(_cx: &mut Cx<'_>, chain: &[&Scope]) -> Option<Box<dyn Handler>> {
    let sets = chain.last()?.get::<SetDirectives>()?;
    Some(Box::new(sets.clone()))
}

impl Handler for SetDirectives {
    fn handle<'s>(&'s self, session: &'s Session) -> Step<'s, Result<(), Status>> {
        for set in &self.0 {
            session.set_slot(set.slot, Some(session.evaluate(&set.value)));
        }
        Step::Done(Ok(()))
    }
}
