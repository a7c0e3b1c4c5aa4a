//! Files of the state that are damaged.

use std::fs;

use super::issuer::Issuer;
use super::pebble::{AcmeStage, presented, wait_for_other};

#[test]
fn damaged_files_are_kept_aside_and_replaced() {
    let Some(stage) = AcmeStage::new() else { return };
    let _issuer = stage.start();
    let site = || stage.site("", "", &stage.challenges()).start();
    let server = site();
    let mut own = wait_for_other(&server, None);
    server.stop();
    let file = stage.file();
    let good = fs::read(&file).unwrap();
    // Truncated in the key, in the certificate, and no PEM at all.
    let halves =
        [good[..40].to_vec(), good[..good.len() / 3].to_vec(), b"\0\xffx".to_vec(), Vec::new()];
    for bad in halves {
        fs::write(&file, &bad).unwrap();
        let server = site();
        own = wait_for_other(&server, Some(&own));
        let log = server.log();
        let (name, aside) = (file.display(), format!("{}.broken", file.display()));
        let line = log.lines().find(|line| line.contains("is unusable")).unwrap();
        assert!(line.contains(&format!("\"{name}\" is unusable (")), "{line}");
        let rest = format!("it is kept as \"{aside}\", and a new certificate is ordered");
        assert!(line.contains(&rest), "{line}");
        assert_eq!(fs::read(&aside).unwrap(), bad);
        server.stop();
    }
    let key = stage.state().join("account.key");
    fs::write(&key, "-----BEGIN PRIVATE KEY-----\nAAAA\n").unwrap();
    fs::remove_file(&file).unwrap();
    let server = site();
    wait_for_other(&server, Some(&own));
    let rest = "account.key.broken\", and a new account is registered";
    assert!(server.log().contains(rest), "{}", server.log());
    assert!(fs::read_to_string(&key).unwrap().contains("-----END PRIVATE KEY-----"));
    server.stop();
}

/// Without its state, a server must not order again and again.
#[test]
fn without_a_readable_state_nothing_is_ordered() {
    let Some(stage) = AcmeStage::new() else { return };
    let _issuer = stage.start();
    let site = || stage.site("", "", &stage.challenges()).start();
    let server = site();
    wait_for_other(&server, None);
    server.stop();
    let file = stage.file();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let server = site();
    server.wait_log("next attempt in");
    let expected = format!("no certificate for localhost: \"{}\" can't be read", file.display());
    assert!(server.log().contains(&expected), "{}", server.log());
    server.stop();
}

#[test]
fn a_certificate_that_could_not_be_stored_is_stored_later() {
    let Some(issuer) = Issuer::start(&["honest"]) else { return };
    let site = || issuer.site("", "").start();
    let server = site();
    let first = wait_for_other(&server, None);
    server.stop();
    let mut files = fs::read_dir(issuer.state()).unwrap().map(|file| file.unwrap().path());
    let file = files.find(|file| file.extension().is_some_and(|kind| kind == "pem")).unwrap();
    fs::remove_file(&file).unwrap();
    // Where it is written first, something is in the way.
    let obstacle = file.with_extension("pem.tmp");
    fs::create_dir_all(obstacle.join("full")).unwrap();
    let server = site();
    let own = wait_for_other(&server, Some(&first));
    server.wait_log("a restart would lose the certificate; next attempt in 60 s");
    assert!(!file.exists());
    fs::remove_dir_all(&obstacle).unwrap();
    server.reload();
    server.wait_log("the certificate for localhost is stored now");
    assert_eq!(presented(&server).as_ref(), Some(&own));
    server.stop();
    let server = site();
    assert_eq!(wait_for_other(&server, None), own);
    assert_eq!(server.log().matches("new certificate for localhost").count(), 0);
    server.stop();
}
