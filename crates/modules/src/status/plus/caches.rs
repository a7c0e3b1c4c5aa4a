//! `POST nowait/1/caches/NAME/purge`: purges a cache by key, prefix or tag.

use nowait_backend::cache::purge::{Aim, by_name};
use nowait_http::request::Request;
use serde_json::{Map, Value, json};

use super::answer::{Answer, note, object};
use super::error::ApiError;

const CODE: &str = "CachePurgeFormatError";

/// Purges, and responds with the number of objects.
pub(super) async fn purge(request: &mut Request, name: &str) -> Result<Answer, ApiError> {
    let caches = &request.current().caches;
    if !caches.iter().any(|store| store.statistics().zone == name) {
        return Err(ApiError::missing(&["nowait", "caches", name]));
    }
    let order = Order::of(object(request).await?)?;
    let current = request.current().clone();
    let purged = by_name(&current.conf, &current.caches, name, &order.aim, order.soft).await;
    let purged = purged.map_err(|error| ApiError::new(503, error, "CachePurgeFailed"))?;
    let how = if order.soft { "marked stale" } else { "purged" };
    let shown = order.shown.escape_default();
    note(request, &format!("{purged} objects of cache \"{name}\" {how}: {shown}"));
    Ok(Answer::ok(&json!({ "purged": purged })))
}

/// What to purge.
struct Order {
    aim: Aim,
    soft: bool,
    /// For the log.
    shown: String,
}

impl Order {
    fn of(members: Map<String, Value>) -> Result<Self, ApiError> {
        let refuse = |text: String| Err(ApiError::new(400, text, CODE));
        let (mut aims, mut soft) = (Vec::new(), false);
        for (name, value) in members {
            match (&name[..], value) {
                ("key" | "prefix" | "tag", Value::String(text)) if !text.is_empty() => {
                    aims.push((name, text));
                }
                ("all", Value::Bool(true)) => aims.push((name, String::new())),
                ("soft", Value::Bool(value)) => soft = value,
                ("key" | "prefix" | "tag" | "all" | "soft", _) => {
                    return refuse(format!("invalid \"{name}\" value"));
                }
                _ => return refuse(format!("unknown parameter \"{name}\"")),
            }
        }
        let Some((name, text)) = aims.pop().filter(|_| aims.is_empty()) else {
            return refuse(
                "exactly one of \"key\", \"prefix\", \"tag\" and \"all\" is required".into(),
            );
        };
        let shown = if name == "all" { name.clone() } else { format!("{name} {text}") };
        let bytes = text.into_bytes();
        let aim = match &name[..] {
            "key" => Aim::Key(bytes),
            "prefix" => Aim::Prefix(bytes),
            "tag" => Aim::Tag(bytes),
            _ => Aim::All,
        };
        Ok(Self { aim, soft, shown })
    }
}
