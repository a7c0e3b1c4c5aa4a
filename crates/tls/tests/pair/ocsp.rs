//! OCSP responses: which ones count.

use std::time::SystemTime;

use nowait_tls::CertificateDer;
use nowait_tls::ocsp::{Question, Signer, Status, is_issuer, responder};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};

use crate::certificates::Authority;
use crate::responder::{OcspSpec, Says};

/// An authority, and another handle to its key.
fn authority(name: &str) -> (Authority, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let pem = key.serialize_pem();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let authority = Authority { issuer: Issuer::new(params, key), certificate };
    (authority, KeyPair::from_pem(&pem).unwrap())
}

/// A certificate of this authority.
fn issue(
    by: &Authority,
    change: impl FnOnce(&mut CertificateParams),
) -> (CertificateDer<'static>, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    change(&mut params);
    (params.signed_by(&key, &by.issuer).unwrap().der().clone(), key)
}

#[test]
fn responses_count_if_the_issuer_or_its_delegate_has_signed_them() {
    let (by, key) = authority("CA");
    let (own, _) = issue(&by, |_| {});
    let question = Question::new(&own, &by.certificate, Vec::new()).unwrap();
    let now = SystemTime::now();
    let check = |wanted: &OcspSpec<'_>, key: &KeyPair, signer| {
        let response = wanted.respond(&question.request(), key);
        let verdict = question.check(&response, signer, now);
        // If anything is missing at its end or changed, it does not count, and nothing panics.
        for end in 0..response.len() {
            assert!(question.check(&response[..end], Signer::Any, now).is_err(), "{end}");
        }
        for at in 0..response.len() {
            let mut changed = response.clone();
            changed[at] ^= 1;
            let _ = question.check(&changed, Signer::Any, now);
        }
        verdict.map(|verdict| verdict.status)
    };
    let authorized = |wanted: &OcspSpec<'_>, key| check(wanted, key, Signer::Authorized);
    assert_eq!(authorized(&OcspSpec::new(Says::Good), &key), Ok(Status::Good));
    assert_eq!(authorized(&OcspSpec::new(Says::Revoked), &key), Ok(Status::Revoked));
    assert_eq!(authorized(&OcspSpec::new(Says::Unknown), &key), Ok(Status::Unknown));

    let unknown = "OCSP_basic_verify() failed (SSL: signer certificate not found)";
    let distrusted = "OCSP_basic_verify() failed (SSL: root ca not trusted)";
    let (other, other_key) = authority("CA");
    let good = || OcspSpec::new(Says::Good);
    assert_eq!(authorized(&good(), &other_key), Err(unknown.to_owned()));
    let signs = |by: &Authority, change: fn(&mut CertificateParams), signer| {
        let (certificate, key) = issue(by, change);
        let certificates: &[&[u8]] = &[&certificate];
        check(&OcspSpec { certificates, ..good() }, &key, signer)
    };
    let delegate: fn(&mut CertificateParams) =
        |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
    assert_eq!(signs(&by, delegate, Signer::Authorized), Ok(Status::Good));
    let expired: fn(&mut CertificateParams) = |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    };
    for (by, change) in [(&other, delegate), (&by, |_| {}), (&by, expired)] {
        assert_eq!(signs(by, change, Signer::Authorized), Err(distrusted.to_owned()));
        assert_eq!(signs(by, change, Signer::Any), Ok(Status::Good));
    }
}

#[test]
fn responses_have_dates() {
    let (by, key) = authority("CA");
    let (own, _) = issue(&by, |_| {});
    let question = Question::new(&own, &by.certificate, Vec::new()).unwrap();
    let check = |this_update, next_update| {
        let wanted = OcspSpec { this_update, next_update, ..OcspSpec::new(Says::Good) };
        let response = wanted.respond(&question.request(), &key);
        question.check(&response, Signer::Authorized, SystemTime::now())
    };
    let failed = |why| Err(format!("OCSP_check_validity() failed (SSL: {why})"));
    assert_eq!(check("20200101000000Z", None).unwrap().until, None);
    assert!(check("20200101000000Z", Some("20900101000000Z")).unwrap().until.is_some());
    let expired = check("20200101000000Z", Some("20210101000000Z"));
    assert_eq!(expired, failed("status expired"));
    let early = check("20890101000000Z", Some("20900101000000Z"));
    assert_eq!(early, failed("status not yet valid"));
}

#[test]
fn responses_are_about_one_certificate() {
    let (by, key) = authority("CA");
    let (own, _) = issue(&by, |params| params.serial_number = Some(1u64.into()));
    let (other, _) = issue(&by, |params| params.serial_number = Some(2u64.into()));
    let ask = |about| Question::new(about, &by.certificate, Vec::new()).unwrap();
    let response = OcspSpec::new(Says::Good).respond(&ask(&other).request(), &key);
    let result = ask(&own).check(&response, Signer::Authorized, SystemTime::now());
    assert_eq!(result.unwrap_err(), "certificate status not found in the OCSP response");
    assert_ne!(ask(&own).id(), ask(&other).id());
    // `tryLater`
    let later = ask(&own).check(&[0x30, 3, 0x0a, 1, 3], Signer::Authorized, SystemTime::now());
    assert_eq!(later.unwrap_err(), "OCSP response not successful (3: trylater)");
    assert!(ask(&own).path().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'%'));
}

#[test]
fn certificates_name_responders() {
    let (by, _) = authority("CA");
    let (own, _) = issue(&by, |params| {
        let url = b"http://ocsp.example/";
        let mut access = vec![0x30, 0, 0x30, 0, 6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 1, 0x86];
        access.push(url.len() as u8);
        access.extend_from_slice(url);
        (access[3], access[1]) = (access.len() as u8 - 4, access.len() as u8 - 2);
        let extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access);
        params.custom_extensions = vec![extension];
    });
    assert_eq!(responder(&own).as_deref(), Some("http://ocsp.example/"));
    assert_eq!(responder(&by.certificate), None);
    assert!(is_issuer(&by.certificate, &own));
    assert!(!is_issuer(&authority("CA").0.certificate, &own));
}
