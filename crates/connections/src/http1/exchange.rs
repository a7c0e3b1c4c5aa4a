//! A connection's interface for requests: the core's [`Exchange`] over HTTP/1.1. A connection has one
//! request at a time, so it needs no object per request. Only interim responses differ from what every
//! [`Connection`](crate::connection::Connection) does.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use nowait_front::servers::ServerId;
use nowait_front::tls::Tls;
use nowait_h1::encode::HeadWriter;
use nowait_http::client::Client;
use nowait_http::exchange::{Exchange, Interim, OnHangup};
use nowait_http::generation::Current;
use nowait_http::response::LocalFuture;
use nowait_http::services::Services;
use nowait_runtime::buf::OutBuf;
use nowait_runtime::net::{Address, SendOptions};
use nowait_sys::tcp_info::TcpInfo;

use super::connection::Http1Connection;

impl Exchange for Http1Connection {
    fn client(&self) -> &Client {
        &self.client
    }

    fn services(&self) -> &Services {
        &self.all().services
    }

    fn local(&self) -> &Address {
        self.local_address()
    }

    fn tcp_info(&self) -> io::Result<TcpInfo> {
        Exchange::tcp_info(&***self)
    }

    fn with_tls(&self, look: &mut dyn FnMut(&Tls)) {
        Exchange::with_tls(&***self, look);
    }

    fn default_server(&self, current: &Current) -> Option<ServerId> {
        Exchange::default_server(&***self, current)
    }

    fn on_hangup(&self) -> &Cell<OnHangup> {
        &self.on_hangup
    }

    fn hangup(&self) -> LocalFuture<'_, ()> {
        Exchange::hangup(&***self)
    }

    fn send_interim(&self, head: Interim, timeout: Duration) -> LocalFuture<'_, ()> {
        let out = encode(&head);
        Box::pin(async move {
            // A disconnect is detected by the final response.
            let _ = self.stream.send(out, SendOptions::new(timeout)).await;
        })
    }
}

fn encode(head: &Interim) -> OutBuf {
    let mut out = OutBuf::new();
    let reason: &[u8] = match head.status {
        102 => b"Processing",
        103 => b"Early Hints",
        _ => b"",
    };
    let mut writer = HeadWriter::response_with_reason(&mut *out, head.status, reason);
    for field in &head.headers {
        writer.field(&field.name, &field.value);
    }
    writer.finish();
    out
}
