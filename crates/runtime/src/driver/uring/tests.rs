//! The driver on its own, with a real ring.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::*;
use crate::driver::DriverKind;

fn driver() -> Option<Uring> {
    let inbox = Arc::new(Inbox::new(0).unwrap());
    Uring::new(&inbox, &WorkerConfig::new(0, DriverKind::IoUring))
        .map_err(|error| eprintln!("io_uring is not tested here: {error}"))
        .ok()
}

/// A socket with a receive in flight, its peer, and the user data of the receive.
fn receiving(driver: &mut Uring) -> (Key, UnixStream, UnixStream, u64) {
    let (socket, peer) = UnixStream::pair().unwrap();
    let key = driver.attach(socket.as_fd(), Role::Stream).unwrap();
    assert!(driver.poll_recv(key, &mut Context::from_waker(Waker::noop())).is_pending());
    let name = Op::Recv.user_data(key.0 as usize, driver.slots[key.0 as usize].serial);
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
    driver.ring.push(cancel.user_data(Op::Cancel.user_data(0, 0)));
    turn(&mut driver);
    // A late completion.
    driver.complete(stale, -libc::ECONNRESET, 0, &mut Vec::new());
    assert!(driver.slots[second.0 as usize].has(Op::Recv));

    std::io::Write::write_all(&mut peer, b"for the second").unwrap();
    turn(&mut driver);
    let cx = &mut Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(received)) = driver.poll_recv(second, cx) else { panic!("not received") };
    assert_eq!(&received[..], b"for the second");
}
