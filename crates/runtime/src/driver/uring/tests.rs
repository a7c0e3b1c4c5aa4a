//! The driver on its own, with a real ring.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::buf::Chain;
use crate::driver::{AfterSend, DriverKind};

fn driver() -> Option<Uring> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let options = DriverOptions {
        kind: DriverKind::IoUring,
        multi_accept: false,
        events_max: 1,
        guard: false,
    };
    Uring::new(options, Arc::new(event))
        .map_err(|error| eprintln!("io_uring is not tested here: {error}"))
        .ok()
}

/// A socket with a receive in flight, its peer, and the user data of the receive.
fn receiving(driver: &mut Uring) -> (SocketKey, UnixStream, UnixStream, u64) {
    let (socket, peer) = UnixStream::pair().unwrap();
    let key = driver.attach(socket.as_fd(), Role::Stream).unwrap();
    assert!(driver.poll_recv(key, &mut Context::from_waker(Waker::noop())).is_pending());
    let name = UringOp::Recv.user_data(key.0 as usize, driver.slots[key.0 as usize].serial);
    (key, socket, peer, name)
}

fn turn(driver: &mut Uring) {
    let mut woken = Vec::new();
    driver.turn(Some(Duration::ZERO), &mut woken).unwrap();
    driver.turn(Some(Duration::from_millis(1)), &mut woken).unwrap();
}

#[test]
fn what_concerns_an_earlier_socket_in_the_slot_does_not_concern_the_next_one() {
    let Some(mut driver) = driver() else { return };
    let (first, socket, peer, stale) = receiving(&mut driver);
    driver.detach(first, socket.into(), &mut Vec::new());
    turn(&mut driver);
    drop(peer);
    let (second, _socket, mut peer, _) = receiving(&mut driver);
    assert_eq!(second, first, "the slot is used again");

    // A late cancellation.
    let cancel = opcode::AsyncCancel::new(stale).build();
    driver.ring.push(cancel.user_data(UringOp::Cancel.user_data(0, 0)));
    turn(&mut driver);
    // A late completion.
    driver.complete(stale, -libc::ECONNRESET, 0, &mut Vec::new());
    assert!(driver.slots[second.0 as usize].has(UringOp::Recv));

    std::io::Write::write_all(&mut peer, b"for the second").unwrap();
    turn(&mut driver);
    let cx = &mut Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(received)) = driver.poll_recv(second, cx) else { panic!("not received") };
    assert_eq!(&received[..], b"for the second");
}

/// Whether a small send with nothing to follow is reported as done before it was submitted.
fn is_reported_early(driver: &mut Uring, key: SocketKey, socket: &UnixStream) -> bool {
    let mut chain = Chain::from(&b"small"[..]);
    let cx = &mut Context::from_waker(Waker::noop());
    let sent = driver.poll_send(key, socket.as_fd(), &mut chain, AfterSend::Nothing, cx);
    assert!(matches!(sent, Poll::Ready(Ok(5))), "{sent:?}");
    driver.slots[key.0 as usize].is(SlotFlag::SendBehind)
}

#[test]
fn sends_to_a_slow_peer_are_not_reported_early_until_one_completes_at_once() {
    let Some(mut driver) = driver() else { return };
    let (socket, mut peer) = UnixStream::pair().unwrap();
    let key = driver.attach(socket.as_fd(), Role::Stream).unwrap();
    assert!(is_reported_early(&mut driver, key, &socket));
    turn(&mut driver);
    assert!(is_reported_early(&mut driver, key, &socket), "the first one completed at once");
    turn(&mut driver);

    // The peer reads no data, and its kernel's buffer is full.
    socket.set_nonblocking(true).unwrap();
    let mut filled = 10;
    while let Ok(sent) = std::io::Write::write(&mut &socket, &[0; 4096]) {
        filled += sent;
    }
    socket.set_nonblocking(false).unwrap();
    assert!(is_reported_early(&mut driver, key, &socket), "it is not known yet");
    turn(&mut driver);
    assert!(driver.slots[key.0 as usize].is(SlotFlag::SendBehind), "it was not sent at once");
    std::io::Read::read_exact(&mut peer, &mut vec![0; filled]).unwrap();
    while driver.slots[key.0 as usize].is(SlotFlag::SendBehind) {
        turn(&mut driver);
    }
    assert!(!is_reported_early(&mut driver, key, &socket), "the peer was slow");
    assert!(is_reported_early(&mut driver, key, &socket), "it is not any more");
    turn(&mut driver);
}

#[test]
fn a_send_for_which_there_is_room_has_no_completion() {
    let Some(mut driver) = driver() else { return };
    let (key, socket, mut peer, _) = receiving(&mut driver);
    assert!(is_reported_early(&mut driver, key, &socket));
    assert_eq!(driver.bound_wait(None), None, "nothing depends on it");
    // Nothing but the limit of time ends this turn.
    driver.turn(Some(Duration::from_millis(1)), &mut Vec::new()).unwrap();
    assert!(!driver.slots[key.0 as usize].is(SlotFlag::SendBehind));
    let mut received = [0; 5];
    std::io::Read::read_exact(&mut peer, &mut received).unwrap();
    assert_eq!(&received, b"small");
}

#[test]
fn a_turn_does_not_wait_if_something_depends_on_a_send() {
    let Some(mut driver) = driver() else { return };
    let cx = &mut Context::from_waker(Waker::noop());
    for what in ["flush", "shutdown", "appended", "closed", "memory"] {
        let (key, socket, mut peer, _) = receiving(&mut driver);
        let mut others = Vec::new();
        assert!(is_reported_early(&mut driver, key, &socket));
        match what {
            "flush" => assert!(driver.poll_flush(key, cx).is_pending()),
            "shutdown" => {
                driver.shutdown(key, socket.as_fd(), std::net::Shutdown::Write).unwrap();
            }
            "appended" => driver.append_behind(key, &mut Chain::from(&b" and more"[..])),
            "closed" => {
                assert!(driver.detach(key, socket.try_clone().unwrap().into(), &mut Vec::new()));
            }
            _ => {
                for _ in 0..9 {
                    let (key, socket, peer, _) = receiving(&mut driver);
                    let body = bytes::Bytes::from(vec![b'x'; 16_000]);
                    driver.send_behind(key, crate::buf::OutBuf::default(), body);
                    others.push((socket, peer));
                }
            }
        }
        assert_eq!(driver.bound_wait(None), Some(Duration::ZERO), "{what}");
        turn(&mut driver);
        assert_eq!(driver.bound_wait(None), None, "{what}");
        if what == "flush" {
            assert!(driver.poll_flush(key, cx).is_ready());
        }
        drop(socket);
        let mut received = Vec::new();
        peer.set_nonblocking(true).unwrap();
        let _ = std::io::Read::read_to_end(&mut peer, &mut received);
        let expected: &[u8] = if what == "appended" { b"small and more" } else { b"small" };
        assert_eq!(received, expected, "{what}");
    }
}

#[test]
fn what_a_socket_has_no_room_for_is_sent_later() {
    let Some(mut driver) = driver() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, 20_000).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&peer, 20_000).unwrap();
    peer.set_nonblocking(true).unwrap();
    let key = driver.attach(socket.as_fd(), Role::Stream).unwrap();
    let index = key.0 as usize;
    let (mut sent, mut received, mut rests) = (Vec::new(), Vec::new(), 0);
    for round in 0..40_usize {
        let body: Vec<u8> = (0..round * 400).map(|at| (at * 31 + round) as u8).collect();
        while !driver.sends_behind(key, body.len()) {
            let mut piece = [0; 3001];
            if let Ok(count) = std::io::Read::read(&mut peer, &mut piece) {
                received.extend_from_slice(&piece[..count]);
            }
            turn(&mut driver);
            let sending = driver.slots[index].sending.as_ref();
            rests += usize::from(sending.is_some_and(|sending| sending.offered < body.len()));
            // A peer that was slow is sent to directly until it keeps up again.
            driver.slots[index].set(SlotFlag::Full, false);
        }
        sent.extend_from_slice(&body);
        driver.send_behind(key, crate::buf::OutBuf::default(), body.into());
    }
    while received.len() < sent.len() {
        let mut piece = [0; 3001];
        if let Ok(count) = std::io::Read::read(&mut peer, &mut piece) {
            received.extend_from_slice(&piece[..count]);
        }
        turn(&mut driver);
    }
    assert!(received == sent);
    assert!(rests > 0, "no send was cut");
}

#[test]
fn a_piece_of_something_larger_is_not_reported_early() {
    let Some(mut driver) = driver() else { return };
    let (socket, _peer) = UnixStream::pair().unwrap();
    let key = driver.attach(socket.as_fd(), Role::Stream).unwrap();
    let mut chain = Chain::from(&b"small"[..]);
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(driver.poll_send(key, socket.as_fd(), &mut chain, AfterSend::Later, cx).is_pending());
    turn(&mut driver);
    let sent = driver.poll_send(key, socket.as_fd(), &mut chain, AfterSend::Later, cx);
    assert!(matches!(sent, Poll::Ready(Ok(5))), "{sent:?}");
}

#[test]
fn a_large_send_takes_no_memory_along() {
    let Some(mut driver) = driver() else { return };
    let (socket, mut peer) = UnixStream::pair().unwrap();
    let key = driver.attach(socket.as_fd(), Role::Stream).unwrap();
    let cx = &mut Context::from_waker(Waker::noop());
    let len = 2_000_000;
    let mut chain = Chain::from(bytes::Bytes::from(vec![b'x'; len]));
    let mut sent = 0;
    // Data that fits into the socket's buffer is sent at once, and the rest stays with its owner.
    while let Poll::Ready(taken) =
        driver.poll_send(key, socket.as_fd(), &mut chain, AfterSend::Nothing, cx)
    {
        sent += taken.unwrap();
    }
    assert!(sent > 0 && sent < len, "{sent}");
    assert_eq!(chain.len(), (len - sent) as u64);
    turn(&mut driver);
    assert!(driver.slots[key.0 as usize].has(UringOp::Writable), "it waits");

    std::io::Read::read_exact(&mut peer, &mut vec![0; sent]).unwrap();
    while driver.slots[key.0 as usize].has(UringOp::Writable) {
        turn(&mut driver);
    }
    let more = driver.poll_send(key, socket.as_fd(), &mut chain, AfterSend::Nothing, cx);
    assert!(matches!(more, Poll::Ready(Ok(1..))), "{more:?}");
}
