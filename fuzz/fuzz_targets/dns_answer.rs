//! Answers of name servers: nothing of them is believed that does not belong to the question, and
//! what is believed keeps to its bounds. The system's files are read from the same input.
//!
//! Input: what was asked, then an answer's bytes.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use nowait_resolver::DomainName;
use nowait_resolver::message::{Question, RECORDS_MAX, RecordType, Records, Reply};
use nowait_resolver::system::{Hosts, ResolvConf};

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

fuzz_target!(|data: &[u8]| {
    let [choice, rest @ ..] = data else { return };
    files(rest);
    let kind = [RecordType::A, RecordType::Aaaa, RecordType::Srv][usize::from(choice % 3)];
    let tcp = choice & 4 != 0;
    let name = DomainName::new(b"a.example").expect("a name");
    let mut question = Question::new(name.clone(), kind);
    // The id as the answer has it: guessing it is no news.
    let Some([high, low]) = rest.first_chunk() else { return };
    question.id = u16::from_be_bytes([*high, *low]);
    let Ok(reply) = question.accept(rest, tcp) else { return };
    // As much of the question as a server repeats.
    let own = &question.message()[12..];
    let same = rest.get(12..12 + own.len()).is_some_and(|sent| sent.eq_ignore_ascii_case(own));
    match &reply {
        Reply::Odd(_) => {}
        _ => assert!(same, "the answer to another question"),
    }
    match reply {
        Reply::Found(Records::Addresses(list), ttl) => {
            assert!(
                kind != RecordType::Srv && (1..=RECORDS_MAX).contains(&list.len()) && ttl <= WEEK
            );
            assert!(list.iter().all(|ip| ip.is_ipv4() == (kind == RecordType::A)));
        }
        Reply::Found(Records::Services(list), ttl) => {
            assert!(
                kind == RecordType::Srv && (1..=RECORDS_MAX).contains(&list.len()) && ttl <= WEEK
            );
            assert!(list.is_sorted_by_key(|service| service.priority));
        }
        Reply::Alias(target, ttl) => {
            assert!(target != name && ttl <= WEEK);
            assert_eq!(DomainName::new(target.as_bytes()).as_ref(), Some(&target));
            // It can be asked for.
            Question::new(target, kind).message();
        }
        Reply::Truncated => assert!(!tcp),
        Reply::NoName(_) | Reply::Empty(_) | Reply::Failed(_) | Reply::Odd(_) => {}
    }
});

fn files(text: &[u8]) {
    let hosts = Hosts::parse(text);
    let conf = ResolvConf::parse(text);
    assert!((1..=8).contains(&conf.servers.len()) && conf.search.len() <= 8 && conf.attempts > 0);
    if let Some(name) = DomainName::new(text.get(..16).unwrap_or(text)) {
        hosts.find(&name);
        assert!(conf.candidates(&name, false).contains(&name));
    }
}
