//! Named zones that count: the frame of `status_zone` in `http` and `stream`, and of the responses of caches.
//!
//! A list of zones belongs to the process, so their counters survive reloads. Zones that no configuration in use has
//! are not reported, and make room for others when the list is full. Each worker writes only its own memory; a report
//! adds up all workers. What is counted is up to the type of the counters ([`zone_counters`](crate::zone_counters)).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use nowait_conf::{Arity, Cx, Diagnostic, Node, Setting, arity};

/// Zones of a list at most. One of requests takes 6 KB per worker that has counted in it, others less.
pub const ZONES_MAX: usize = 4096;

/// The counters of one worker in a zone; implemented by [`zone_counters`](crate::zone_counters). The type should have
/// its cache lines to itself: `#[repr(align(128))]`.
pub trait ZoneCounters: Default + Send + Sync + 'static {
    /// What tells zones of one name apart.
    type Kind: Copy + Ord + std::fmt::Debug + Send + Sync + 'static;

    /// The zones of this process.
    fn list() -> &'static ZoneList<Self>;

    /// Looks at the counters of this worker.
    fn with_own<T>(look: impl FnOnce(&OwnPlaces<Self>) -> T) -> T;
}

/// Makes a type the counters of a list of zones of its own.
#[macro_export]
macro_rules! zone_counters {
    ($counters:ty, $kind:ty) => {
        impl $crate::zones::ZoneCounters for $counters {
            type Kind = $kind;

            fn list() -> &'static $crate::zones::ZoneList<Self> {
                static LIST: $crate::zones::ZoneList<$counters> = $crate::zones::ZoneList::new();
                &LIST
            }

            fn with_own<T>(look: impl FnOnce(&$crate::zones::OwnPlaces<Self>) -> T) -> T {
                thread_local! {
                    static OWN: $crate::zones::OwnPlaces<$counters> =
                        const { $crate::zones::OwnPlaces::new() };
                }
                OWN.with(look)
            }
        }
    };
}

/// A zone.
#[derive(Debug)]
pub struct StatusZone<C> {
    /// The name that the configuration gives it.
    pub name: Arc<str>,
    /// Unlike that of any other zone.
    id: u64,
    /// Its place in each worker's list, which it may inherit from a zone that is gone.
    place: usize,
    /// Shared, so that a report can read them without having the zone, which would count as its use.
    workers: WorkerCounters<C>,
}

/// The counters of all workers that have counted in a zone.
type WorkerCounters<C> = Arc<RwLock<Vec<Arc<C>>>>;

/// The zones of this process.
#[derive(Debug)]
pub struct ZoneList<C: ZoneCounters>(Mutex<Zones<C>>);

/// The kind of a zone, and its name.
type ZoneKey<C> = (<C as ZoneCounters>::Kind, Arc<str>);

#[derive(Debug)]
struct Zones<C: ZoneCounters> {
    /// By kind and name.
    zones: BTreeMap<ZoneKey<C>, Arc<StatusZone<C>>>,
    /// Places of zones that are gone.
    free: Vec<usize>,
    last_id: u64,
}

/// The counters of a worker, by the zones' places, with the identifier of the last zone in each.
#[derive(Debug)]
pub struct OwnPlaces<C>(RefCell<Vec<OwnPlace<C>>>);

type OwnPlace<C> = Option<(u64, Rc<OwnCounters<C>>)>;

/// A worker's handle to its counters.
#[derive(Debug)]
pub struct OwnCounters<C>(Arc<C>);

impl<C> Deref for OwnCounters<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.0
    }
}

impl<C> OwnPlaces<C> {
    /// Without counters.
    pub const fn new() -> OwnPlaces<C> {
        OwnPlaces(RefCell::new(Vec::new()))
    }
}

impl<C> Default for OwnPlaces<C> {
    fn default() -> OwnPlaces<C> {
        OwnPlaces::new()
    }
}

impl<C: ZoneCounters> StatusZone<C> {
    /// The zone with this name, made if it is new. `None`: there are too many.
    pub fn of(kind: C::Kind, name: &str) -> Option<Arc<StatusZone<C>>> {
        let mut list = C::list().0.lock().unwrap_or_else(PoisonError::into_inner);
        list.find(kind, name)
    }

    /// The counters of this worker.
    pub fn own(&self) -> Rc<OwnCounters<C>> {
        C::with_own(|own| {
            let mut own = own.0.borrow_mut();
            if own.len() <= self.place {
                own.resize_with(self.place + 1, || None);
            }
            match &own[self.place] {
                Some((id, counters)) if *id == self.id => counters.clone(),
                _ => own[self.place].insert((self.id, self.join())).1.clone(),
            }
        })
    }

    #[cold]
    fn join(&self) -> Rc<OwnCounters<C>> {
        let counters = Arc::<C>::default();
        self.workers.write().unwrap_or_else(PoisonError::into_inner).push(counters.clone());
        Rc::new(OwnCounters(counters))
    }
}

impl<C: ZoneCounters> ZoneList<C> {
    /// Without zones.
    pub const fn new() -> ZoneList<C> {
        ZoneList(Mutex::new(Zones { zones: BTreeMap::new(), free: Vec::new(), last_id: 0 }))
    }
}

impl<C: ZoneCounters> Default for ZoneList<C> {
    fn default() -> ZoneList<C> {
        ZoneList::new()
    }
}

impl<C: ZoneCounters> Zones<C> {
    fn find(&mut self, kind: C::Kind, name: &str) -> Option<Arc<StatusZone<C>>> {
        let key = (kind, Arc::<str>::from(name));
        if let Some(zone) = self.zones.get(&key) {
            return Some(zone.clone());
        }
        if self.zones.len() >= ZONES_MAX {
            let Self { zones, free, .. } = self;
            zones.retain(|_, zone| {
                let keeps = is_used(zone);
                free.extend((!keeps).then_some(zone.place));
                keeps
            });
        }
        if self.zones.len() >= ZONES_MAX {
            return None;
        }
        // Without free places, all below this one are taken.
        let place = self.free.pop().unwrap_or(self.zones.len());
        self.last_id += 1;
        let zone =
            StatusZone { name: key.1.clone(), id: self.last_id, place, workers: Arc::default() };
        let zone = Arc::new(zone);
        self.zones.insert(key, zone.clone());
        Some(zone)
    }
}

/// Whether a configuration has a zone of the list.
fn is_used<C>(zone: &Arc<StatusZone<C>>) -> bool {
    Arc::strong_count(zone) > 1
}

/// The zones of a kind that are in use, sorted by name, each read by this function.
pub fn snapshot<C: ZoneCounters, T>(kind: C::Kind, read: impl Fn(&str, &[Arc<C>]) -> T) -> Vec<T> {
    let zones: Vec<(Arc<str>, WorkerCounters<C>)> = {
        let list = C::list().0.lock().unwrap_or_else(PoisonError::into_inner);
        let zones = list.zones.iter().filter(|((of, _), zone)| *of == kind && is_used(zone));
        zones.map(|(_, zone)| (zone.name.clone(), zone.workers.clone())).collect()
    };
    let read = |(name, workers): &(Arc<str>, WorkerCounters<C>)| {
        read(name, &workers.read().unwrap_or_else(PoisonError::into_inner))
    };
    zones.iter().map(read).collect()
}

/// The zone that `status_zone` names.
#[derive(Debug)]
pub struct StatusZoneSetting<C>(pub Arc<StatusZone<C>>);

impl<C> Clone for StatusZoneSetting<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Counters of zones that a directive names.
pub trait NamedZones: ZoneCounters {
    /// The kind of a zone that is named here.
    fn kind(cx: &Cx<'_>) -> Self::Kind;
}

impl<C: NamedZones> Setting for StatusZoneSetting<C> {
    const ARITY: Arity = arity::exactly(1);

    fn parse(node: &Node, cx: &mut Cx<'_>) -> Result<Self, Diagnostic> {
        let word = node.args.first().ok_or_else(|| node.arity_error())?;
        let name = word.to_str()?;
        if name.is_empty() {
            return Err(word.error("invalid zone name \"\""));
        }
        if name.contains('$') {
            return Err(word.error(format!("variables in zone name \"{name}\" are not supported")));
        }
        let zone = StatusZone::of(C::kind(cx), name);
        zone.map(Self).ok_or_else(|| word.error(format!("more than {ZONES_MAX} zones")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::tally::add;

    #[derive(Debug, Default)]
    struct Tested(AtomicU64);

    zone_counters!(Tested, ());

    #[test]
    fn zones_of_past_configurations_make_room() {
        let of = |name: &str| StatusZone::<Tested>::of((), name).unwrap();
        let count = |workers: &[Arc<Tested>]| {
            workers.iter().map(|one| one.0.load(Ordering::Relaxed)).sum::<u64>()
        };
        let sums = || snapshot::<Tested, _>((), |name, all| (name.to_owned(), count(all)));
        let kept = of("kept");
        for number in 0..2 * ZONES_MAX {
            let zone = of(&format!("past {number}"));
            assert!(zone.place < ZONES_MAX);
            // It never sees the counters of the one whose place it has.
            let own = zone.own();
            assert_eq!(own.0.0.load(Ordering::Relaxed), 0);
            add(&own.0.0);
        }
        let last = of("past 8191");
        assert_eq!(sums(), [("kept".to_owned(), 0), ("past 8191".to_owned(), 1)]);
        drop(last);
        assert!(Arc::ptr_eq(&of("kept"), &kept));
        // All places are taken.
        let all: Vec<_> = (1..ZONES_MAX).map(|number| of(&format!("other {number}"))).collect();
        assert!(StatusZone::<Tested>::of((), "one too many").is_none());
        drop(all);
        assert!(StatusZone::<Tested>::of((), "one too many").is_some());
    }
}
