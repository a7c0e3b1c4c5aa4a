//! Keeps the addresses of names current: resolves, updates the group, and resolves again when the
//! result expires. nginx: the second half of `ngx_http_upstream_zone_module.c`.
//!
//! One task per name, on one of the workers. Requests wait for it only until the first result
//! ([`Group::resolved`]).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait_resolver::{ResolveError, Resolver, Service, Services};
use nowait_runtime::{now, sleep};

use crate::conf::ServerLocation;
use crate::group::{Group, Resolved};

/// Minimum time between two queries for a name, regardless of its TTL.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Time until a name that does not exist is queried again. nginx: 10 seconds, or `valid=`.
const ABSENT_PAUSE: Duration = Duration::from_secs(10);

/// Keeps the addresses of the server at this position current, for as long as it is polled.
/// `timeout` is `resolver_timeout`; failures are reported to `log`, whose level is "error".
pub async fn watch(
    group: Arc<Group>,
    server: usize,
    resolver: Resolver,
    timeout: Duration,
    log: impl Fn(fmt::Arguments<'_>),
) {
    let Some(conf) = group.server_conf(server) else { return };
    let ServerLocation::Name { host, port, service, resolve } = &conf.target else { return };
    let fixed = resolver.settings().and_then(|settings| settings.valid);
    let mut known: Option<Vec<Resolved>> = None;
    let mut failures = 0;
    // Until it is removed.
    while group.server_conf(server).is_some() {
        let found = match service {
            None => addresses(&resolver, host, *port, timeout).await,
            Some(service) => {
                let found = resolver.services(service.as_bytes(), host.as_bytes(), timeout).await;
                found.map(|found| {
                    report_targets(&found, service, host, &log);
                    (of_services(&found.list), found.valid)
                })
            }
        };
        let pause = match found {
            Ok((list, valid)) => {
                failures = 0;
                if known.as_ref() != Some(&list) {
                    group.set_addresses(server, &list);
                    known = Some(list);
                }
                valid.saturating_duration_since(now()).max(PAUSE_MIN)
            }
            Err(error) => {
                report(error, *resolve, service.as_deref(), host, &log);
                // The name no longer exists. Without `resolve` the last addresses are kept, as the
                // system's resolver might have failed.
                if error == ResolveError::NotFound && *resolve {
                    group.set_addresses(server, &[]);
                    known = Some(Vec::new());
                    fixed.unwrap_or(ABSENT_PAUSE).max(PAUSE_MIN)
                } else {
                    group.resolve_failed(server);
                    failures += 1;
                    backoff(failures, timeout)
                }
            }
        };
        sleep(pause).await;
    }
}

/// One second, then twice as long each time, but no longer than nginx: `resolver_timeout`.
fn backoff(failures: u32, timeout: Duration) -> Duration {
    let pause = PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(10));
    pause.min(timeout.max(PAUSE_MIN))
}

async fn addresses(
    resolver: &Resolver,
    host: &str,
    port: u16,
    timeout: Duration,
) -> Result<(Vec<Resolved>, Instant), ResolveError> {
    let found = resolver.resolve(host.as_bytes(), timeout).await?;
    Ok((found.sockets(port).map(Resolved::address).collect(), found.valid))
}

/// The targets that have addresses. Those of the best priority are used first.
fn of_services(list: &[Service]) -> Vec<Resolved> {
    let has_addresses = |service: &&Service| service.addresses.is_ok();
    let best = list.iter().filter(has_addresses).map(|service| service.priority).min();
    let mut found = Vec::new();
    for service in list {
        let Ok(addresses) = &service.addresses else { continue };
        for ip in addresses.iter() {
            found.push(Resolved {
                address: SocketAddr::new(*ip, service.port),
                target: Some(service.target.to_string().into()),
                weight: u32::from(service.weight.max(1)),
                backup: Some(service.priority) != best,
            });
        }
    }
    found
}

fn report_targets(found: &Services, service: &str, host: &str, log: &impl Fn(fmt::Arguments<'_>)) {
    for target in found.list.iter() {
        if let Err(error) = &target.addresses {
            log(format_args!(
                "{} could not be resolved ({error}) while resolving service {service} of {host}",
                target.target
            ));
        }
    }
}

fn report(
    error: ResolveError,
    resolve: bool,
    service: Option<&str>,
    host: &str,
    log: &impl Fn(fmt::Arguments<'_>),
) {
    match service {
        Some(service) => {
            log(format_args!("service {service} of {host} could not be resolved ({error})"));
        }
        None if resolve => log(format_args!("{host} could not be resolved ({error})")),
        // nginx reports this when it reads the configuration, and does not start.
        None => log(format_args!("host not found in upstream \"{host}\" ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_resolver::DomainName;

    #[test]
    fn failures_are_repeated_ever_more_rarely() {
        let seconds = |failures, timeout| backoff(failures, Duration::from_secs(timeout)).as_secs();
        assert_eq!([1, 2, 3, 6, 99].map(|n| seconds(n, 30)), [1, 2, 4, 30, 30]);
        assert_eq!([1, 5].map(|n| seconds(n, 0)), [1, 1]);
    }

    #[test]
    fn the_best_priority_that_has_addresses_is_used_first() {
        let service = |priority, weight, port, address: Result<&str, ResolveError>| Service {
            priority,
            weight,
            port,
            target: DomainName::new(b"a.example").unwrap(),
            addresses: address.map(|address| vec![address.parse().unwrap()].into()),
        };
        let list = [
            service(1, 5, 80, Err(ResolveError::ServerFailure)),
            service(2, 0, 81, Ok("192.0.2.1")),
            service(2, 7, 82, Ok("192.0.2.2")),
            service(3, 7, 83, Ok("2001:db8::1")),
        ];
        let found: Vec<String> = of_services(&list)
            .iter()
            .map(|one| format!("{} {} {}", one.address, one.weight, one.backup))
            .collect();
        assert_eq!(
            found,
            ["192.0.2.1:81 1 false", "192.0.2.2:82 7 false", "[2001:db8::1]:83 7 true"]
        );
    }
}
