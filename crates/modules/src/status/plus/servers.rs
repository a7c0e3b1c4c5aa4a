//! `http/upstreams/NAME/servers` and `stream/upstreams/NAME/servers`: lists, adds, changes and removes servers of
//! groups with `zone`.

use std::sync::Arc;

use nowait_conf::{Errno, Seconds, Value as _};
use nowait_front::state_file::StateFile;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_message::Method;
use nowait_runtime::fs::Io;
use nowait_upstream::conf::{ROUTE_MAX, target};
use nowait_upstream::{
    ChangeError, Group, ListedServer, SERVERS_MAX, ServerChange, ServerConf, ServerLocation,
    ServerMode,
};
use serde_json::{Map, Value, json};

use super::answer::{Answer, note, object};
use super::error::ApiError;

/// The longest name in DNS, in bytes. Longer words could not be read from a state file, either.
const NAME_BYTES_MAX: usize = 255;

/// The code of most errors in a body.
const FORMAT: &str = "UpstreamConfFormatError";

/// The group of a name.
pub(super) fn group(request: &Request, protocol: &str, name: &str) -> Result<Arc<Group>, ApiError> {
    let current = request.current();
    let found = match protocol {
        "http" => current.conf.upstreams.named(name.as_bytes()).map(|found| found.group.clone()),
        _ => current.sessions.as_ref().and_then(|report| {
            let groups = report().upstreams;
            groups.into_iter().find(|group| group.name().eq_ignore_ascii_case(name.as_bytes()))
        }),
    };
    let group = found.ok_or_else(|| ApiError::missing(&[protocol, "upstreams", name]))?;
    match group.is_changeable() {
        true => Ok(group),
        false => Err(ApiError::new(400, "upstream is static", "UpstreamStatic")),
    }
}

/// GET of the list, or of a server.
pub(super) fn read(
    request: &Request,
    protocol: &str,
    name: &str,
    rest: &[&str],
) -> Result<Answer, ApiError> {
    let group = group(request, protocol, name)?;
    match rest {
        [] => Ok(Answer::ok(&list(&group, protocol))),
        [id] => {
            let id = server_id(id)?;
            let found = group.servers().into_iter().find(|server| server.id == id);
            found.map(|server| Answer::ok(&json(&server, protocol))).ok_or_else(|| not_found(id))
        }
        _ => Err(ApiError::PATH),
    }
}

/// POST, PATCH and DELETE.
pub(super) async fn change(
    request: &mut Request,
    method: Method,
    (protocol, name): (&str, &str),
    rest: &[&str],
) -> Result<Answer, ApiError> {
    let group = group(request, protocol, name)?;
    let refused = |id: u32| move |error| refusal(error, id);
    let answer = match (method, rest) {
        (Method::Post, []) => {
            let conf = added(object(request).await?, protocol)?;
            let server = group.add_server(conf).map_err(refused(0))?;
            log(request, &group, "added to", &server);
            Answer::created(&json(&server, protocol))
        }
        (Method::Patch, [id]) => {
            let id = server_id(id)?;
            let known = group.servers().into_iter().find(|server| server.id == id);
            let known = known.ok_or_else(|| not_found(id))?;
            let change = changed(object(request).await?, &known, protocol)?;
            let server = group.change_server(id, &change).map_err(refused(id))?;
            log(request, &group, "changed in", &server);
            Answer::ok(&json(&server, protocol))
        }
        (Method::Delete, [id]) => {
            let id = server_id(id)?;
            let server = group.remove_server(id).map_err(refused(id))?;
            log(request, &group, "removed from", &server);
            Answer::ok(&list(&group, protocol))
        }
        (_, [] | [_]) => return Err(ApiError::METHOD),
        _ => return Err(ApiError::PATH),
    };
    save(request, &group).await;
    Ok(answer)
}

/// Writes the state file, if there is one. The change is in use already, so an error is logged only.
async fn save(request: &Request, group: &Arc<Group>) {
    let Some(state) = &group.conf().state else { return };
    let file = StateFile::of(&state.path);
    let io = Io::new(request.current().default_pool().clone());
    let saved = group.clone();
    if let Err(error) = file.save(&io, move || saved.state_text()).await {
        let path = String::from_utf8_lossy(file.path());
        let name = group.name().escape_ascii();
        request.log(
            Level::Crit,
            format_args!(
                "api: state of upstream \"{name}\" was not saved in \"{path}\" ({})",
                Errno(&error)
            ),
        );
    }
}

fn log(request: &Request, group: &Group, how: &str, server: &ListedServer) {
    let conf = &server.conf;
    let mode = match conf.down {
        ServerMode::Up => "",
        ServerMode::Down => " down",
        ServerMode::Draining => " drain",
    };
    let name = group.name().escape_ascii();
    let text = format!(
        "server {} (id {}, weight={} max_conns={} max_fails={} fail_timeout={}s{mode}) \
         {how} upstream \"{name}\"",
        server.server.escape_default(),
        server.id,
        conf.weight,
        conf.max_conns,
        conf.max_fails,
        conf.fail_timeout.0,
    );
    note(request, &text);
}

fn list(group: &Group, protocol: &str) -> Value {
    group.servers().iter().map(|server| json(server, protocol)).collect()
}

fn json(server: &ListedServer, protocol: &str) -> Value {
    let conf = &server.conf;
    let mut value = json!({
        "id": server.id,
        "server": server.server,
        "weight": server.weight,
        "max_conns": conf.max_conns,
        "max_fails": conf.max_fails,
        "fail_timeout": format!("{}s", conf.fail_timeout.0),
        "slow_start": format!("{}s", conf.slow_start.0),
        "backup": server.backup,
        "down": conf.down == ServerMode::Down,
    });
    if protocol == "http" {
        let route = conf.route.as_deref().unwrap_or_default();
        value["route"] = String::from_utf8_lossy(route).into();
        if conf.down == ServerMode::Draining {
            value["drain"] = true.into();
        }
    }
    if let ServerLocation::Name { service: Some(service), .. } = &conf.target {
        value["service"] = service.to_string().into();
    }
    if let Some(parent) = server.parent {
        value["parent"] = parent.into();
        value["host"] = String::from_utf8_lossy(&conf.text).into();
    }
    value
}

fn server_id(text: &str) -> Result<u32, ApiError> {
    text.parse().map_err(|_| ApiError::new(400, "invalid server id", "UpstreamBadServerId"))
}

fn not_found(id: u32) -> ApiError {
    let text = format!("server with id \"{id}\" does not exist");
    ApiError::new(404, text, "UpstreamServerNotFound")
}

fn refusal(error: ChangeError, id: u32) -> ApiError {
    let new = |status, text: String, code| ApiError::new(status, text, code);
    match error {
        ChangeError::Static => new(400, "upstream is static".into(), "UpstreamStatic"),
        ChangeError::NotFound => not_found(id),
        ChangeError::Resolved { parent } => {
            let text =
                format!("server \"{id}\" is an address of server \"{parent}\"; change that one");
            new(400, text, "UpstreamServerImmutable")
        }
        ChangeError::Name => {
            new(400, format!("server \"{id}\" address is immutable"), "UpstreamServerImmutable")
        }
        ChangeError::Exists => new(409, "entry exists".into(), "EntryExists"),
        ChangeError::Full => {
            new(400, format!("upstream has {SERVERS_MAX} servers"), "UpstreamOutOfMemory")
        }
        ChangeError::NoBackup => new(
            400,
            "upstream has no backup: its balancing method does not support it".into(),
            "UpstreamNoBackup",
        ),
        ChangeError::NoSlowStart => new(
            400,
            "balancing method does not support parameter \"slow_start\"".into(),
            "UpstreamBadSlowStart",
        ),
        ChangeError::Reloaded => {
            new(503, "the configuration was reloaded: try again".into(), "UpstreamReloaded")
        }
    }
}

/// A server from the body of POST.
fn added(mut members: Map<String, Value>, protocol: &str) -> Result<ServerConf, ApiError> {
    let Some(address) = members.remove("server") else {
        return Err(ApiError::new(400, "missing \"server\" argument", FORMAT));
    };
    let backup = members.remove("backup").map(|value| flag("backup", &value)).transpose()?;
    let service = members.remove("service").map(|value| word("service", &value)).transpose()?;
    // As from the client library without one.
    let service = service.filter(|service| !service.is_empty());
    let address = word("server", &address)?;
    let location = location(&address, protocol, service.as_deref())?;
    let mut conf = ServerConf::new(address.clone(), location.clone());
    conf.backup = backup.unwrap_or(false);
    let change = parameters(members, protocol)?;
    ServerChange { target: Some((address.into(), location)), ..change }.apply(&mut conf);
    Ok(conf)
}

/// A change from the body of PATCH.
fn changed(
    mut members: Map<String, Value>,
    known: &ListedServer,
    protocol: &str,
) -> Result<ServerChange, ApiError> {
    // They can't be changed; programs send them as they are.
    if members.get("backup").is_some_and(|value| *value == known.backup) {
        members.remove("backup");
    }
    let service = match &known.conf.target {
        ServerLocation::Name { service, .. } => service.as_deref().unwrap_or_default(),
        ServerLocation::Addresses(_) => "",
    };
    if members.get("service").is_some_and(|value| *value == service) {
        members.remove("service");
    }
    let target = match members.remove("server") {
        Some(value) => {
            let text = word("server", &value)?;
            let service = Some(service).filter(|service| !service.is_empty());
            if text.as_bytes() == &known.conf.text[..] || text == known.server {
                None
            } else {
                let location = location(&text, protocol, service)?;
                Some((text.into(), location))
            }
        }
        None => None,
    };
    Ok(ServerChange { target, ..parameters(members, protocol)? })
}

/// The parameters that POST and PATCH share.
fn parameters(members: Map<String, Value>, protocol: &str) -> Result<ServerChange, ApiError> {
    let mut change = ServerChange::default();
    let is_http = protocol == "http";
    for (name, value) in members {
        match &name[..] {
            _ if value.is_object() || value.is_array() => {
                return Err(ApiError::new(400, "nested object or list", FORMAT));
            }
            "weight" => change.weight = Some(number("weight", &value, 1, "UpstreamBadWeight")?),
            "max_conns" => {
                change.max_conns = Some(number("max_conns", &value, 0, "UpstreamBadMaxConns")?);
            }
            "max_fails" => {
                change.max_fails = Some(number("max_fails", &value, 0, "UpstreamBadMaxFails")?);
            }
            "fail_timeout" => {
                let time = seconds("fail_timeout", &value, "UpstreamBadFailTimeout")?;
                change.fail_timeout = Some(time);
            }
            "slow_start" => {
                change.slow_start = Some(seconds("slow_start", &value, "UpstreamBadSlowStart")?);
            }
            "down" => change.down = Some(flag("down", &value)?),
            "drain" if is_http => change.drain = Some(flag("drain", &value)?),
            "route" if is_http => {
                let route = word("route", &value)?;
                if route.len() > ROUTE_MAX {
                    return Err(ApiError::new(400, "route is too long", "UpstreamBadRoute"));
                }
                change.route = Some(route.into());
            }
            _ => {
                let text = format!("unknown parameter \"{name}\"");
                return Err(ApiError::new(400, text, FORMAT));
            }
        }
    }
    Ok(change)
}

fn invalid(name: &str) -> ApiError {
    ApiError::new(400, format!("invalid \"{name}\" value"), FORMAT)
}

/// A text without control characters, which a state file could not hold.
fn word(name: &str, value: &Value) -> Result<String, ApiError> {
    let text = value.as_str().filter(|text| !text.chars().any(char::is_control));
    text.map(str::to_owned).ok_or_else(|| invalid(name))
}

fn flag(name: &str, value: &Value) -> Result<bool, ApiError> {
    value.as_bool().ok_or_else(|| invalid(name))
}

fn number(name: &str, value: &Value, min: u64, code: &'static str) -> Result<u32, ApiError> {
    let number = value.as_u64().filter(|number| *number >= min);
    let number = number.and_then(|number| u32::try_from(number).ok());
    // Weights are added up, and multiplied while balancing.
    let fits = number.filter(|number| name != "weight" || *number <= WEIGHT_MAX);
    fits.ok_or_else(|| ApiError::new(400, format!("invalid \"{name}\""), code))
}

/// The largest weight.
const WEIGHT_MAX: u32 = 1_000_000;

fn seconds(name: &str, value: &Value, code: &'static str) -> Result<Seconds, ApiError> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(invalid(name)),
    };
    let time = Seconds::from_word(text.as_bytes());
    time.map_err(|_| ApiError::new(400, format!("invalid \"{name}\""), code))
}

/// The location of a server.
fn location(text: &str, protocol: &str, service: Option<&str>) -> Result<ServerLocation, ApiError> {
    let bad = |text: String| ApiError::new(400, text, "UpstreamBadAddress");
    let port = if protocol == "http" { 80 } else { 0 };
    let found = target(text.as_bytes(), port);
    let mut found = found.map_err(|error| bad(format!("{error} while parsing \"{text}\"")))?;
    match &mut found {
        ServerLocation::Name { host, resolve, service: of_name, .. } => {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            if !host.chars().all(is_name) {
                return Err(bad(format!("invalid host while parsing \"{text}\"")));
            }
            let service_bytes = service.map_or(0, str::len);
            if host.len() > NAME_BYTES_MAX || service_bytes > NAME_BYTES_MAX {
                return Err(bad("host or service is too long".into()));
            }
            if service.is_some() && text.contains(':') {
                return Err(bad(format!("service upstream \"{text}\" may not have port")));
            }
            *resolve = true;
            *of_name = service.map(Into::into);
        }
        ServerLocation::Addresses(_) if service.is_some() => {
            return Err(bad(format!("service upstream \"{text}\" requires domain name")));
        }
        ServerLocation::Addresses(_) => {}
    }
    if service.is_none() && found.has_no_port() {
        return Err(bad(format!("no port while parsing \"{text}\"")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(value: Value) -> Map<String, Value> {
        let Value::Object(members) = value else { panic!("an object") };
        members
    }

    fn code(value: Value, protocol: &str) -> &'static str {
        added(members(value), protocol).unwrap_err().code
    }

    #[test]
    fn bodies_that_are_refused() {
        for (body, expected) in [
            (json!({}), FORMAT),
            (json!({ "server": 1 }), FORMAT),
            (json!({ "server": "" }), "UpstreamBadAddress"),
            (json!({ "server": "127.0.0.1:0" }), "UpstreamBadAddress"),
            (json!({ "server": "a b" }), "UpstreamBadAddress"),
            (json!({ "server": "a;" }), "UpstreamBadAddress"),
            (json!({ "server": "unix:/a\nb" }), FORMAT),
            (json!({ "server": "http://127.0.0.1" }), "UpstreamBadAddress"),
            (json!({ "server": "127.0.0.1", "service": "http" }), "UpstreamBadAddress"),
            (json!({ "server": "a:80", "service": "http" }), "UpstreamBadAddress"),
            (json!({ "server": "a".repeat(5000) }), "UpstreamBadAddress"),
            (json!({ "server": "a", "service": "a".repeat(5000) }), "UpstreamBadAddress"),
            (json!({ "server": "127.0.0.1", "weight": 0 }), "UpstreamBadWeight"),
            (json!({ "server": "127.0.0.1", "weight": 4_000_000_000_u64 }), "UpstreamBadWeight"),
            (json!({ "server": "127.0.0.1", "weight": 1.5 }), "UpstreamBadWeight"),
            (json!({ "server": "127.0.0.1", "max_conns": -1 }), "UpstreamBadMaxConns"),
            (json!({ "server": "127.0.0.1", "max_fails": "x" }), "UpstreamBadMaxFails"),
            (json!({ "server": "127.0.0.1", "fail_timeout": "x" }), "UpstreamBadFailTimeout"),
            (json!({ "server": "127.0.0.1", "slow_start": "-1" }), "UpstreamBadSlowStart"),
            (json!({ "server": "127.0.0.1", "down": 1 }), FORMAT),
            (json!({ "server": "127.0.0.1", "backup": [] }), FORMAT),
            (json!({ "server": "127.0.0.1", "route": {} }), FORMAT),
            (json!({ "server": "127.0.0.1", "route": "x".repeat(33) }), "UpstreamBadRoute"),
            (json!({ "server": "127.0.0.1", "id": 1 }), FORMAT),
        ] {
            assert_eq!(code(body.clone(), "http"), expected, "{body}");
        }
        assert_eq!(code(json!({ "server": "127.0.0.1" }), "stream"), "UpstreamBadAddress");
        assert_eq!(code(json!({ "server": "127.0.0.1:1", "route": "a" }), "stream"), FORMAT);
    }

    #[test]
    fn all_parameters_are_read() {
        let body = json!({
            "server": "[::1]:81", "weight": 3, "max_conns": 4, "max_fails": 0,
            "fail_timeout": "1m", "slow_start": 5, "route": "a", "backup": true, "drain": true,
        });
        let conf = added(members(body), "http").unwrap();
        assert_eq!((conf.weight, conf.max_conns, conf.max_fails), (3, 4, 0));
        assert_eq!((conf.fail_timeout, conf.slow_start), (Seconds(60), Seconds(5)));
        assert_eq!(conf.route.as_deref(), Some(&b"a"[..]));
        assert!(conf.backup && conf.down == ServerMode::Draining);
    }
}
