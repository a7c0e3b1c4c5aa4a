//! Connections that the kernel seals live through reloads and move between workers.

use nowait_testkit::server::Signal;

use crate::stage::{
    ALWAYS, Authority, LARGE, TlsClient, assert_same, content, counters, has_ktls, on_each, site,
};

#[test]
fn idle_connections_move_to_other_workers() {
    if !has_ktls() {
        return;
    }
    let authority = Authority::new("CA");
    for more in ["", ALWAYS] {
        let builder = site(&authority, &[LARGE, 70_000], more).workers(3);
        on_each(&builder, |server| {
            let config = authority.client(None);
            let mut clients: Vec<TlsClient> =
                (0..4).map(|_| TlsClient::new(server, &config, "localhost")).collect();
            for client in &mut clients {
                assert_same(&client.get(&format!("/files/{LARGE}")).1, &content(LARGE), "before");
            }
            for (n, workers) in [1, 3, 1].into_iter().enumerate() {
                server.set_workers(workers);
                server.reload();
                for client in &mut clients {
                    assert_eq!(client.text("/small"), (2 * n + 2).to_string());
                    assert_same(&client.get("/files/70000").1, &content(70_000), "after");
                }
            }
            assert_eq!(counters(server), [4, 0, 0]);
            // A shutdown ends them in an orderly way.
            server.signal(Signal::QUIT);
            for client in &mut clients {
                client.expect_end();
            }
        });
    }
}
