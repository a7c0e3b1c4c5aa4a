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

    // The peer reads nothing, and its kernel takes no more.
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
    // What there is room for is sent at once, and the rest stays with its owner.
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
