//! The generations of a group: who uses an older one finds the newest, to change its servers.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::group::Group;

/// The generations of a group that followed others, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Line(Mutex<Members>);

#[derive(Debug, Default)]
struct Members {
    last: u64,
    all: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    place: Place,
    /// Gone if its reload has failed, or if nobody uses it any more.
    group: Weak<Group>,
}

/// The place of a generation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    number: u64,
    /// The number of the generation that read the servers; later ones may have taken them over.
    servers_of: u64,
}

/// A later generation.
pub(crate) struct Newest {
    pub(crate) group: Arc<Group>,
    /// It has taken over the servers, rather than read those of the configuration.
    pub(crate) has_servers: bool,
}

impl Line {
    /// Adds a generation that follows the one at `previous`.
    pub(crate) fn add(&self, group: &Arc<Group>, previous: Place, has_servers: bool) -> Place {
        self.with(|members| {
            members.last += 1;
            let number = members.last;
            let servers_of = if has_servers { previous.servers_of } else { number };
            let place = Place { number, servers_of };
            members.all.retain(|member| member.group.strong_count() > 0);
            members.all.push(Member { place, group: Arc::downgrade(group) });
            place
        })
    }

    /// The newest generation after the one at `place`.
    pub(crate) fn newest(&self, place: Place) -> Option<Newest> {
        self.with(|members| {
            let later = members.all.iter().rev();
            let mut later = later.take_while(|member| member.place.number > place.number);
            later.find_map(|member| {
                let has_servers = member.place.servers_of == place.servers_of;
                Some(Newest { group: member.group.upgrade()?, has_servers })
            })
        })
    }

    fn with<R>(&self, run: impl FnOnce(&mut Members) -> R) -> R {
        // The list is valid after every statement.
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
