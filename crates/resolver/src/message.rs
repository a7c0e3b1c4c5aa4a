//! Messages (RFC 1035): encoding queries, and interpreting a response to its query.
//!
//! Sans-IO, on top of the `domain` crate's reader, which checks bounds and compression pointers and
//! allocates nothing. A response is used only if it belongs to the query: same id, same name, type
//! and class, one question, and a response to a standard query.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use domain::base::iana::{Class, Opcode, Rcode, Rtype};
use domain::base::name::NameBuilder;
use domain::base::{Message, MessageBuilder, ParsedName, Ttl};
use domain::rdata::{A, Aaaa, Cname, Soa, Srv};

use crate::answer::ResolveError;
use crate::name::DomainName;

/// Maximum number of addresses or services taken from one response.
pub const RECORDS_MAX: usize = 512;

/// Maximum number of aliases followed within one response.
const ALIASES_MAX: usize = 16;

/// Upper limit for a TTL (RFC 8767, section 4, suggests seven days).
const TTL_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The type of records queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses (RFC 3596).
    Aaaa,
    /// Services (RFC 2782).
    Srv,
}

impl RecordType {
    fn rtype(self) -> Rtype {
        match self {
            RecordType::A => Rtype::A,
            RecordType::Aaaa => Rtype::AAAA,
            RecordType::Srv => Rtype::SRV,
        }
    }
}

/// One query, with an unpredictable id.
#[derive(Clone, Debug)]
pub struct Question {
    /// The queried name.
    pub name: DomainName,
    /// The queried type.
    pub kind: RecordType,
    /// The message's id.
    pub id: u16,
}

/// A service record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvRecord {
    /// The lowest is used first.
    pub priority: u16,
    /// Share within a priority.
    pub weight: u16,
    /// The port of the service.
    pub port: u16,
    /// The host that provides it.
    pub target: DomainName,
}

/// Records of the queried type; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records {
    /// Of A and AAAA.
    Addresses(Vec<IpAddr>),
    /// Of SRV, by priority.
    Services(Vec<SrvRecord>),
}

/// Result of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Records, and how long they may be used.
    Found(Records, Duration),
    /// The name is an alias of another one, for which the response contains no records.
    Alias(DomainName, Duration),
    /// The name does not exist; for a name without such records see [`Reply::Empty`].
    NoName(Option<Duration>),
    /// The name has no records of this type. With the time for which that may be cached (RFC 2308),
    /// if the response contains one.
    Empty(Option<Duration>),
    /// The server could not respond: SERVFAIL, NOTIMP, REFUSED.
    Failed(ResolveError),
    /// The server did not understand the query, or returned an unknown error code. nginx treats it
    /// as no response.
    Odd(u8),
    /// The response did not fit into a datagram: the query must be repeated by TCP.
    Truncated,
}

/// The reason why a message is not the response to a query. It is dropped, and the wait continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Not a DNS message, or one with unreadable records.
    Garbage,
    /// A query, or a response to something other than a standard query.
    NotAnAnswer,
    /// The id of another query.
    WrongId,
    /// The response to another query.
    WrongQuestion,
}

impl From<domain::base::wire::ParseError> for Rejected {
    fn from(_: domain::base::wire::ParseError) -> Rejected {
        Rejected::Garbage
    }
}

type ParsedMessage<'a> = Message<&'a [u8]>;

impl Question {
    /// A query for `name`, with a fresh id.
    pub fn new(name: DomainName, kind: RecordType) -> Question {
        Question { name, kind, id: random() as u16 }
    }

    /// The message to send, recursion desired.
    pub fn message(&self) -> Vec<u8> {
        let mut owner = NameBuilder::new_vec();
        let labels = self.name.labels().try_for_each(|label| owner.append_label(label));
        let owner = labels.and_then(|()| owner.into_name());
        let mut message = MessageBuilder::new_vec().question();
        message.header_mut().set_id(self.id);
        message.header_mut().set_rd(true);
        let owner = owner.expect("a `Name` has the lengths that the wire allows");
        message.push((owner, self.kind.rtype())).expect("a question is shorter than any limit");
        message.finish()
    }

    /// Reads a response; `tcp`: it arrived by TCP, where nothing is truncated.
    ///
    /// # Errors
    /// When the message does not belong to this question: it must be ignored.
    pub fn accept(&self, bytes: &[u8], tcp: bool) -> Result<Reply, Rejected> {
        let message = Message::from_octets(bytes).map_err(|_| Rejected::Garbage)?;
        let header = message.header();
        if header.id() != self.id {
            return Err(Rejected::WrongId);
        }
        let truncated = header.tc();
        if !header.qr() || header.opcode() != Opcode::QUERY || (truncated && tcp) {
            return Err(Rejected::NotAnAnswer);
        }
        // A server that could not parse the query may omit the question.
        if header.rcode() == Rcode::FORMERR && message.header_counts().qdcount() == 0 {
            return Ok(Reply::Odd(1));
        }
        let question = message.sole_question()?;
        if name_of(question.qname()).as_ref() != Some(&self.name)
            || question.qtype() != self.kind.rtype()
            || question.qclass() != Class::IN
        {
            return Err(Rejected::WrongQuestion);
        }
        match header.rcode() {
            _ if truncated => Ok(Reply::Truncated),
            Rcode::NOERROR => self.records(&message),
            Rcode::NXDOMAIN => Ok(Reply::NoName(negative_ttl(&message)?)),
            Rcode::SERVFAIL => Ok(Reply::Failed(ResolveError::ServerFailure)),
            Rcode::NOTIMP => Ok(Reply::Failed(ResolveError::NotImplemented)),
            Rcode::REFUSED => Ok(Reply::Failed(ResolveError::Refused)),
            other => Ok(Reply::Odd(other.to_int())),
        }
    }

    /// Follows aliases within the answer to the records.
    fn records(&self, message: &ParsedMessage<'_>) -> Result<Reply, Rejected> {
        let mut owner = self.name.clone();
        let mut ttl = TTL_MAX;
        for _ in 0..ALIASES_MAX {
            let (found, least) = match self.kind {
                RecordType::A => addresses(message, &owner, |data: &A| data.addr().into())?,
                RecordType::Aaaa => addresses(message, &owner, |data: &Aaaa| data.addr().into())?,
                RecordType::Srv => services(message, &owner)?,
            };
            if let Some(found) = found {
                return Ok(Reply::Found(found, ttl.min(least)));
            }
            let Some((target, least)) = alias(message, &owner)? else { break };
            ttl = ttl.min(least);
            owner = target;
        }
        // RFC 2308, section 2.2: an SOA record means that the end of the chain has no such data.
        let negative = negative_ttl(message)?;
        if owner != self.name && negative.is_none() {
            return Ok(Reply::Alias(owner, ttl));
        }
        Ok(Reply::Empty(negative))
    }
}

/// Addresses of `owner`, and the lowest of their TTLs.
fn addresses<'a, D>(
    message: &'a ParsedMessage<'a>,
    owner: &DomainName,
    address: impl Fn(&D) -> IpAddr,
) -> Result<(Option<Records>, Duration), Rejected>
where
    D: domain::base::rdata::ParseRecordData<'a, &'a [u8]>,
{
    let (mut list, mut ttl) = (Vec::new(), TTL_MAX);
    for record in message.answer()?.limit_to_in::<D>() {
        let record = record?;
        if name_of(record.owner()).as_ref() == Some(owner) && list.len() < RECORDS_MAX {
            list.push(address(record.data()));
            ttl = ttl.min(duration(record.ttl()));
        }
    }
    Ok(((!list.is_empty()).then_some(Records::Addresses(list)), ttl))
}

/// Services of `owner`, by priority, and the lowest of their TTLs.
fn services(
    message: &ParsedMessage<'_>,
    owner: &DomainName,
) -> Result<(Option<Records>, Duration), Rejected> {
    let (mut list, mut ttl) = (Vec::new(), TTL_MAX);
    for record in message.answer()?.limit_to_in::<Srv<ParsedName<&[u8]>>>() {
        let record = record?;
        if name_of(record.owner()).as_ref() != Some(owner) || list.len() == RECORDS_MAX {
            continue;
        }
        let data = record.data();
        // RFC 2782: a target of "." means that the service is not available.
        let Some(target) = name_of(data.target()) else { continue };
        let (priority, weight, port) = (data.priority(), data.weight(), data.port());
        list.push(SrvRecord { priority, weight, port, target });
        ttl = ttl.min(duration(record.ttl()));
    }
    list.sort_by_key(|service| service.priority);
    Ok(((!list.is_empty()).then_some(Records::Services(list)), ttl))
}

/// The name that `owner` is an alias of.
fn alias(
    message: &ParsedMessage<'_>,
    owner: &DomainName,
) -> Result<Option<(DomainName, Duration)>, Rejected> {
    for record in message.answer()?.limit_to_in::<Cname<ParsedName<&[u8]>>>() {
        let record = record?;
        if name_of(record.owner()).as_ref() == Some(owner) {
            let target = name_of(record.data().cname()).ok_or(Rejected::Garbage)?;
            return Ok(Some((target, duration(record.ttl()))));
        }
    }
    Ok(None)
}

/// How long a negative response may be cached: the lower of the SOA record's TTL and its MINIMUM
/// field (RFC 2308, section 5). Without such a record it must not be cached.
fn negative_ttl(message: &ParsedMessage<'_>) -> Result<Option<Duration>, Rejected> {
    let first = message.authority()?.limit_to_in::<Soa<ParsedName<&[u8]>>>().next();
    let Some(record) = first.transpose()? else { return Ok(None) };
    Ok(Some(duration(record.ttl()).min(duration(record.data().minimum()))))
}

/// RFC 2181, section 8: "values with the most significant bit set should be treated as zero".
fn duration(ttl: Ttl) -> Duration {
    match i32::try_from(ttl.as_secs()) {
        Ok(seconds) => Duration::from_secs(seconds.unsigned_abs().into()).min(TTL_MAX),
        Err(_) => Duration::ZERO,
    }
}

/// Converts a name of a message; `None` for the root and for names that cannot be written as text.
fn name_of<Octets: AsRef<[u8]>>(name: &ParsedName<Octets>) -> Option<DomainName>
where
    ParsedName<Octets>: domain::base::ToName,
{
    use domain::base::name::ToLabelIter;
    let labels = name.iter_labels().filter(|label| !label.is_root());
    DomainName::from_labels(labels.map(|label| label.as_slice()))
}

/// An unpredictable number: from the system; if that fails, from a counter.
pub fn random() -> u64 {
    static SPARE: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(SPARE.fetch_add(1, Ordering::Relaxed))
        }
    }
}
