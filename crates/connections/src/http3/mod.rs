//! The front end of HTTP/3.
//!
//! Called by [`quic`](crate::quic) with connections whose handshake is complete.

use std::rc::Rc;

use crate::connections::Connections;
use crate::quic::Established;

/// Serves a connection until it ends.
pub(crate) async fn serve(all: Rc<Connections>, established: Established) {
    let _ = (all, established);
    todo!()
}
