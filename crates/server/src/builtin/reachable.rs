//! Where a browser finds a site: the URLs of listening addresses, on this machine and on others, and a QR code
//! for telephones.
//!
//! Used by [`super::site`] for the text on the terminal. Sends nothing to the network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nowait_sys::interfaces;
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

use super::request_lines::RequestLines;

/// Maximum number of URLs shown for other devices. Machines with containers have dozens of addresses.
const OTHERS_MAX: usize = 4;

/// URLs that lead to a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Urls {
    /// URLs for this machine, and addresses that were named.
    pub here: Vec<String>,
    /// URLs for other devices, the most likely one first.
    pub others: Vec<String>,
}

impl Urls {
    /// The URLs of listening addresses.
    pub fn of(addresses: &[SocketAddr]) -> Urls {
        // Addresses that cannot be found are not shown; the server has them nevertheless.
        let mut own: Vec<IpAddr> = interfaces::addresses()
            .map(|all| all.into_iter().map(|found| found.ip).collect())
            .unwrap_or_default();
        own.sort_by_key(|ip| Some(*ip) != outgoing(*ip));
        Urls::with(addresses, &own)
    }

    /// `own`: the addresses of this machine, the most likely one first.
    fn with(addresses: &[SocketAddr], own: &[IpAddr]) -> Urls {
        let mut urls = Urls::default();
        let add = |list: &mut Vec<String>, url: String| {
            if !list.contains(&url) {
                list.push(url);
            }
        };
        for address in addresses {
            let (ip, port) = (address.ip(), address.port());
            let is_here = ip.is_loopback() || ip.is_unspecified();
            match is_here {
                true if ip.is_loopback() && !is_localhost(ip) => {
                    add(&mut urls.here, url(&host(ip), port));
                }
                true => add(&mut urls.here, url("localhost", port)),
                false => add(&mut urls.here, url(&host(ip), port)),
            }
            if ip.is_unspecified() {
                let same = own.iter().filter(|own| own.is_ipv4() == ip.is_ipv4());
                for own in same.filter(|own| is_usable(**own)) {
                    add(&mut urls.others, url(&host(*own), port));
                }
            } else if !ip.is_loopback() {
                add(&mut urls.others, url(&host(ip), port));
            }
        }
        urls.others.truncate(OTHERS_MAX);
        urls
    }

    /// The text for a terminal, behind "at ".
    pub fn text(&self, lines: RequestLines) -> String {
        let mut text = self.here.join(", ");
        let news: Vec<&str> =
            self.others.iter().filter(|url| !self.here.contains(url)).map(String::as_str).collect();
        if !news.is_empty() {
            text.push_str(&format!("\nOther devices: {}", news.join(", ")));
        }
        if let Some(code) = self.others.first().and_then(|url| qr_code(url, lines)) {
            text.push('\n');
            text.push_str(&code);
        }
        text
    }
}

fn is_localhost(ip: IpAddr) -> bool {
    ip == IpAddr::V4(Ipv4Addr::LOCALHOST) || ip == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

/// Whether a browser on another device can use the address. Link-local IPv6 addresses need a zone, which URLs
/// in browsers do not have.
fn is_usable(ip: IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast() && !is_local
}

/// The address from which this machine reaches others of the same family. A UDP socket that is connected, to
/// an address for documentation, sends nothing.
fn outgoing(family: IpAddr) -> Option<IpAddr> {
    let (any, other): (IpAddr, IpAddr) = match family {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        IpAddr::V6(_) => {
            (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into())
        }
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((other, 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

fn host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn url(host: &str, port: u16) -> String {
    format!("http://{host}:{port}/")
}

/// The code of a URL, two of its rows per line; `None` if standard output is no terminal.
fn qr_code(url: &str, lines: RequestLines) -> Option<String> {
    if lines == RequestLines::Off {
        return None;
    }
    let code = QrCode::with_error_correction_level(url, EcLevel::L).ok()?;
    let mut image = code.render::<Dense1x2>();
    if lines == RequestLines::Plain {
        // The ground of most terminals is dark, and the code's has to be light.
        image.dark_color(Dense1x2::Light).light_color(Dense1x2::Dark);
    }
    let image = image.build();
    let line = |line: &str| match lines {
        RequestLines::Coloured => format!("\u{1b}[30;107m{line}\u{1b}[0m"),
        RequestLines::Off | RequestLines::Plain => line.to_owned(),
    };
    Some(image.lines().map(line).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(addresses: &[&str], own: &[&str]) -> (String, String) {
        let addresses: Vec<SocketAddr> =
            addresses.iter().map(|text| text.parse().unwrap()).collect();
        let own: Vec<IpAddr> = own.iter().map(|text| text.parse().unwrap()).collect();
        let urls = Urls::with(&addresses, &own);
        (urls.here.join(" "), urls.others.join(" "))
    }

    #[test]
    fn other_devices_get_addresses_that_they_can_open() {
        let own = ["127.0.0.1", "192.168.1.7", "::1", "fe80::1", "fd00::7", "10.0.0.1"];
        assert_eq!(
            urls(&["127.0.0.1:8080", "[::1]:8080"], &own),
            ("http://localhost:8080/".into(), String::new())
        );
        assert_eq!(
            urls(&["0.0.0.0:8080"], &own),
            (
                "http://localhost:8080/".into(),
                "http://192.168.1.7:8080/ http://10.0.0.1:8080/".into()
            )
        );
        assert_eq!(
            urls(&["[::]:81", "192.0.2.1:80", "127.0.0.2:82"], &own),
            (
                "http://localhost:81/ http://192.0.2.1:80/ http://127.0.0.2:82/".into(),
                "http://[fd00::7]:81/ http://192.0.2.1:80/".into()
            )
        );
        let many = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
        assert_eq!(urls(&["0.0.0.0:80"], &many).1.split(' ').count(), OTHERS_MAX);
    }

    #[test]
    fn terminals_show_a_code() {
        let urls = Urls { here: vec!["h".into()], others: vec!["http://192.168.1.7:8080/".into()] };
        let text = urls.text(RequestLines::Off);
        assert_eq!(text, "h\nOther devices: http://192.168.1.7:8080/");
        // 25 rows and a margin of four on each side, in pairs.
        let plain = urls.text(RequestLines::Plain);
        assert_eq!(plain.lines().count(), 2 + 17);
        assert!(plain.ends_with(&"\u{2588}".repeat(33)) || plain.ends_with('\u{2580}'), "{plain}");
        assert!(urls.text(RequestLines::Coloured).contains("\u{1b}[30;107m "));
    }
}
