//! Several server processes that receive from the same sockets: here, each is the workers of a directory of its own.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use nowait_quic::{
    Connection, ConnectionLost, Directory, Endpoint, HostKey, Listening, Processes, Settings,
};
use nowait_sys::listen::ListenAddress;
use nowait_sys::parcels;

use crate::stage::{Behaviour, Stage, TestService, count, exchange, on_each_driver};

/// A process, as others see it.
struct Process {
    processes: Arc<Processes>,
    sender: OwnedFd,
    endpoint: Rc<Endpoint>,
    service: Rc<TestService>,
    _listening: Listening,
}

/// The parts of a process before it serves.
fn begin(number: u16, secret: &HostKey) -> (Arc<Processes>, OwnedFd, Arc<Directory>) {
    let (sender, receiver) = parcels::pair().unwrap();
    let processes = Processes::new(number, receiver);
    let directory = Directory::new(secret, processes.clone());
    (processes, sender, directory)
}

/// A process that receives from the socket of the stage as well.
fn process(stage: &Stage, number: u16, secret: &HostKey) -> Process {
    let (processes, sender, directory) = begin(number, secret);
    let service = TestService::new(Behaviour::default());
    let endpoint = Endpoint::new(directory, service.clone());
    let fd = stage.listening.try_clone_fd().unwrap();
    let listening = endpoint.listen(fd, Arc::new(ListenAddress::Udp(stage.address))).unwrap();
    Process { processes, sender, endpoint, service, _listening: listening }
}

fn introduce(processes: &[(&Arc<Processes>, &OwnedFd)]) {
    for (one, _) in processes {
        let others = processes.iter().filter(|(other, _)| other.number() != one.number());
        let others = others.map(|(other, fd)| (other.number(), fd.try_clone().unwrap()));
        one.set_others(others.collect()).unwrap();
    }
}

/// A connection that this process has to have, and not the other one.
async fn connect(
    stage: &Stage,
    service: &TestService,
    other: &TestService,
) -> (Rc<Connection>, Rc<Connection>) {
    let (address, settings) = (stage.address, Settings::default());
    let client = stage.clients.connect(address, "example.com", &stage.client, &settings).await;
    let server = poll_fn(|cx| {
        assert!(other.poll_next(cx).is_pending(), "the other process has the connection");
        service.poll_next(cx)
    });
    (client.unwrap(), server.await)
}

#[test]
fn processes_pass_on_what_belongs_to_others() {
    on_each_driver(|| async {
        let secret = HostKey::random();
        let (old, old_sender, directory) = begin(4, &secret);
        let stage = Stage::in_directory(directory, Behaviour::default());
        let mut pairs = VecDeque::new();
        for _ in 0..4 {
            pairs.push_back(stage.connect().await);
        }
        let new = process(&stage, 7, &secret);
        introduce(&[(&old, &old_sender), (&new.processes, &new.sender)]);
        // New connections are those of the newer process.
        for _ in 0..4 {
            pairs.push_back(connect(&stage, &new.service, &stage.service).await);
        }
        for _ in 0..5 {
            for (client, server) in &pairs {
                exchange(client, server, 20_000).await;
            }
        }
        let (passed, taken) = ("datagrams_passed", "datagrams_taken");
        for (one, other) in [(&stage.endpoint, &new.endpoint), (&new.endpoint, &stage.endpoint)] {
            assert!(count(one, passed) > 0);
            assert!(count(other, taken) > 0);
        }
        assert_eq!(count(&stage.endpoint, "handshakes"), 4);
        assert_eq!(count(&new.endpoint, "handshakes"), 4);

        // The older one ends gracefully: its connections continue.
        stage.endpoint.close();
        pairs.push_back(connect(&stage, &new.service, &stage.service).await);
        for (client, server) in &pairs {
            exchange(client, server, 20_000).await;
        }
    });
}

#[test]
fn without_the_newer_process_the_older_one_takes_connections() {
    on_each_driver(|| async {
        let secret = HostKey::random();
        let (old, old_sender, directory) = begin(4, &secret);
        let stage = Stage::in_directory(directory, Behaviour::default());
        let new = process(&stage, 5, &secret);
        introduce(&[(&old, &old_sender), (&new.processes, &new.sender)]);
        let (client, server) = connect(&stage, &new.service, &stage.service).await;
        exchange(&client, &server, 1_000).await;
        // It ends gracefully: first packets come back.
        new.endpoint.close();
        for _ in 0..4 {
            let (client, server) = connect(&stage, &stage.service, &new.service).await;
            exchange(&client, &server, 1_000).await;
        }
        exchange(&client, &server, 100_000).await;
    });
}

#[test]
fn connections_of_a_process_that_is_gone_are_reset() {
    on_each_driver(|| async {
        let secret = HostKey::random();
        let (old, old_sender, directory) = begin(4, &secret);
        let stage = Stage::in_directory(directory, Behaviour::default());
        let new = process(&stage, 5, &secret);
        introduce(&[(&old, &old_sender), (&new.processes, &new.sender)]);
        let (client, server) = connect(&stage, &new.service, &stage.service).await;
        exchange(&client, &server, 1_000).await;
        // As in a crash: nobody receives from its inbox any more.
        drop(server);
        let Process { processes, sender, endpoint, service, _listening } = new;
        drop((endpoint, service, _listening, processes));
        let (gone, receiver) = parcels::pair().unwrap();
        drop((receiver, sender));
        old.set_others(vec![(5, gone)]).unwrap();
        let stream = client.open(nowait_quic::Dir::Bi).unwrap();
        client.write(stream, &mut [crate::stage::pattern(100)]).unwrap();
        let lost = poll_fn(|cx| client.poll_closed(cx)).await;
        assert_eq!(lost, ConnectionLost::Reset);
        let (client, server) = stage.connect().await;
        exchange(&client, &server, 1_000).await;
    });
}
