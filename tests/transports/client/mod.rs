//! Clients: one connection of one transport carries out a plan.

mod one;
mod three;
mod two;

use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::plan::{ClientTransport, ConnectionPlan, Duplex, PlannedRequest, Task};
use crate::site::Site;
use crate::wire::Wire;

/// A response, from whichever version.
#[derive(Debug, Default)]
pub struct ClientResponse {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl ClientResponse {
    fn field(&self, name: &str) -> Option<&str> {
        let all = self.fields.iter().chain(&self.trailers);
        all.into_iter().find(|field| field.0.eq_ignore_ascii_case(name)).map(|field| &*field.1)
    }

    /// Compares it with what must come.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self, ask: &PlannedRequest) -> Result<(), String> {
        let of = |why: String| format!("{why}\n  of {ask:?}");
        if self.status != ask.status {
            let text = self.body[..self.body.len().min(200)].escape_ascii();
            return Err(of(format!("status {} with {:?}: {text}", self.status, self.fields)));
        }
        let verdict = self.field("x-upload");
        if ask.judged && verdict != Some("good") {
            return Err(of(format!("the origin says of the upload: {verdict:?}")));
        }
        match ask.download {
            Some(download) => download.check(&self.body).map_err(of),
            None => Ok(()),
        }
    }
}

/// Carries out a plan on a connection of its own.
///
/// # Errors
/// What went wrong, with the request.
pub fn run(plan: &ConnectionPlan, site: &Site) -> Result<Score, String> {
    let mut score = Score::default();
    match plan.transport {
        ClientTransport::Http1 | ClientTransport::Http1Tls => one::run(plan, site, &mut score)?,
        ClientTransport::Http2 | ClientTransport::Http2Tls => two::run(plan, site, &mut score)?,
        ClientTransport::Http3 => three::run(plan, site, &mut score)?,
    }
    Ok(score)
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    pub exchanges: u64,
    pub uploaded: u64,
    pub downloaded: u64,
    pub hits: u64,
}

impl Score {
    pub fn add(&mut self, other: Score) {
        self.exchanges += other.exchanges;
        self.uploaded += other.uploaded;
        self.downloaded += other.downloaded;
        self.hits += other.hits;
    }

    fn count(&mut self, ask: &PlannedRequest, response: &ClientResponse) {
        self.exchanges += 1;
        self.uploaded += ask.upload.map_or(0, |content| content.len as u64);
        self.downloaded += response.body.len() as u64;
        if let Some(Duplex { up, down, .. }) = ask.duplex {
            self.uploaded += up.len as u64;
            self.downloaded += down.len as u64;
        }
        self.hits += u64::from(response.field("x-cache") == Some("HIT"));
    }
}

/// Connects as the plan says.
fn connect(plan: &ConnectionPlan, site: &Site) -> io::Result<Wire> {
    let secure = plan.transport.is_secure();
    let task = plan.rounds[0][0].task;
    let port = match task {
        Task::Stream { secured } => site.stream_port(secure, secured),
        _ => site.port(secure),
    };
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let tls = secure.then(|| {
        let mut config = ClientConfig::clone(if plan.old_tls { &site.tls12 } else { &site.tls13 });
        config.alpn_protocols = match plan.rounds[0][0].task {
            Task::Stream { .. } => Vec::new(),
            _ if plan.transport.has_streams() => vec![b"h2".to_vec()],
            _ => vec![b"http/1.1".to_vec()],
        };
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a configuration");
        rustls::Connection::from(connection)
    });
    Wire::new(socket, tls, plan.seed)
}
