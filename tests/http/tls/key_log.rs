//! `ssl_key_log`

use std::sync::{Arc, Mutex};

use nowait_testkit::wait;
use rustls::{ClientConfig, KeyLog};

use super::{Authority, TlsClient, secured};
use crate::stage::on_each_driver;

/// The secrets as the client knows them.
#[derive(Debug, Default)]
struct ClientSecrets(Mutex<Vec<String>>);

impl KeyLog for ClientSecrets {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        self.0.lock().unwrap().push(line);
    }
}

#[test]
fn secrets_are_written_for_those_who_analyse_traffic() {
    let authority = Authority::new("CA");
    let site = secured(&authority, "ssl_key_log %%DIR%%/html/secrets;").file("html/a", "");
    on_each_driver(&site, |server| {
        use std::os::unix::fs::PermissionsExt;
        // The server process writes it.
        let everybody = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(server.dir().join("html"), everybody).unwrap();
        for _ in 0..3 {
            let own = Arc::new(ClientSecrets::default());
            let mut config = ClientConfig::clone(&authority.client(None));
            config.key_log = own.clone();
            let mut client = TlsClient::new(server, &Arc::new(config), "localhost");
            client.get("/");
            let lines = own.0.lock().unwrap().clone();
            assert!(lines.iter().any(|line| line.starts_with("CLIENT_TRAFFIC_SECRET_0 ")));
            for line in lines {
                let written = || server.read("html/secrets").contains(&line).then_some(());
                assert!(wait::try_until(wait::PATIENCE, written).is_some(), "{line}");
            }
        }
        let file = std::fs::metadata(server.dir().join("html/secrets")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    });
}
