//! Certificates of clients: what they are worth, and what variables show.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nowait_tls::{
    Certificate, CertificateDer, ClientCertificates, ClientSettings, Distrust, Error, Identity,
    Role, ServerSettings, TicketKeys, Verifier, pem,
};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

use crate::certificates::{
    Authority, CertificateSpec, ecdsa, intermediate, revoked, root, verifier,
};
use crate::link::{client, connect, exchange, server};

type Trust = Option<Result<(), Distrust>>;

fn trust(verifier: Arc<Verifier>, identity: Option<Identity>) -> Trust {
    let named = vec![root().certificate.clone()];
    let server = server(ServerSettings {
        identities: vec![ecdsa()],
        client_certificates: Some(ClientCertificates { verifier, named, keeps_path: true }),
        tickets: Some(Arc::new(TicketKeys::generated().unwrap())),
        ..ServerSettings::default()
    });
    let has_one = identity.is_some();
    let client = client(ClientSettings { identity, ..ClientSettings::default() });
    let (mut one, mut other) = connect(&client, &server).unwrap();
    assert!(other.slow_steps > 0, "verifying takes long");
    assert_eq!(other.session.peer_certificates().is_empty(), !has_one);
    exchange(&mut one, &mut other, usize::MAX).unwrap();
    // A resumed session is worth the same.
    let (_, again) = connect(&client, &server).unwrap();
    assert!(again.session.is_reused());
    assert_eq!(again.session.trust(), other.session.trust());
    other.session.trust()
}

#[test]
fn the_result_is_that_of_openssl() {
    let by_root = || CertificateSpec::default().identity(root(), &[]);
    assert_eq!(trust(verifier(1), None), None);
    assert_eq!(trust(verifier(1), Some(by_root())), Some(Ok(())));
    let below = || CertificateSpec::default().identity(intermediate(), &[intermediate()]);
    assert_eq!(trust(verifier(1), Some(below())), Some(Ok(())));
    let failed = |reason| Some(Err(Distrust(reason)));
    assert_eq!(trust(verifier(0), Some(below())), failed("certificate chain too long"));
    let nobody = Arc::new(Verifier::new(Vec::new(), &[], 1).unwrap());
    let missing = trust(nobody, Some(by_root()));
    assert_eq!(missing, failed("unable to verify the first certificate"));
    assert!(missing.unwrap().unwrap_err().is_missing_ca());
    let future =
        CertificateSpec { years: (2080, 2081), ..CertificateSpec::default() }.identity(root(), &[]);
    assert_eq!(trust(verifier(1), Some(future)), failed("certificate is not yet valid"));
}

/// A certificate of a peer that is marked as an authority.
fn marked(by: &Authority, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "marked");
    params.serial_number = Some(7u64.into());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    params.signed_by(&KeyPair::generate().unwrap(), &by.issuer).unwrap().der().clone()
}

#[test]
fn peers_may_have_certificates_of_authorities() {
    let now = SystemTime::now();
    let check = |verifier: &Verifier, chain: &[CertificateDer<'static>], role| {
        verifier.verify(chain, role, now).map_err(|why| why.0)
    };
    let verify = |chain: &[CertificateDer<'static>]| check(&verifier(1), chain, Role::Client);
    assert_eq!(verify(&[marked(root(), |_| {})]), Ok(()));
    let below = intermediate().certificate.clone();
    let own = marked(intermediate(), |_| {});
    assert_eq!(verify(&[own.clone(), below.clone()]), Ok(()));
    assert_eq!(verify(std::slice::from_ref(&own)), Err("unable to verify the first certificate"));
    let long = check(&verifier(0), &[own.clone(), below.clone()], Role::Client);
    assert_eq!(long, Err("certificate chain too long"));

    // Each rule that webpki would apply.
    let other = {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Root");
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Authority { issuer: Issuer::new(params, key), certificate }
    };
    assert_eq!(verify(&[marked(&other, |_| {})]), Err("certificate signature failure"));
    let expired = marked(root(), |params| params.not_after = rcgen::date_time_ymd(2021, 1, 1));
    assert_eq!(verify(&[expired]), Err("certificate has expired"));
    let future = marked(root(), |params| params.not_before = rcgen::date_time_ymd(2085, 1, 1));
    assert_eq!(verify(&[future]), Err("certificate is not yet valid"));
    let servers = marked(root(), |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert_eq!(verify(std::slice::from_ref(&servers)), Err("unsuitable certificate purpose"));
    assert_eq!(check(&verifier(1), &[servers], Role::Server), Ok(()));
    let signs = marked(root(), |params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]);
    assert_eq!(verify(&[signs]), Err("unsuitable certificate purpose"));
    let critical = marked(root(), |params| {
        let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions = vec![extension];
    });
    assert_eq!(verify(&[critical]), Err("unhandled critical extension"));

    // What stands between it and the root has to be an authority, within the limits of its issuer.
    let between = |is_ca| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Between");
        params.is_ca = is_ca;
        let certificate = params.signed_by(&key, &root().issuer).unwrap().der().clone();
        Authority { issuer: Issuer::new(params, key), certificate }
    };
    let none = between(IsCa::NoCa);
    let chain = [marked(&none, |_| {}), none.certificate];
    assert_eq!(verify(&chain), Err("invalid CA certificate"));
    let last = between(IsCa::Ca(BasicConstraints::Constrained(0)));
    let allowed = [marked(&last, |_| {}), last.certificate.clone()];
    assert_eq!(verify(&allowed), Ok(()));
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Low");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.signed_by(&key, &last.issuer).unwrap().der().clone();
    let low = Authority { issuer: Issuer::new(params, key), certificate };
    let chain = [marked(&low, |_| {}), low.certificate, last.certificate];
    let deep = check(&verifier(9), &chain, Role::Client);
    assert_eq!(deep, Err("path length constraint exceeded"));

    // Revocation lists hold for it, too.
    let listed = |serials: &[u64], until| {
        let lists = pem::revocation_lists(revoked(serials, until).as_bytes()).unwrap();
        let verifier = Verifier::new(vec![root().certificate.clone()], &lists, 1).unwrap();
        check(&verifier, &[marked(root(), |_| {})], Role::Client)
    };
    assert_eq!(listed(&[8], 2090), Ok(()));
    assert_eq!(listed(&[7], 2090), Err("certificate revoked"));
    assert_eq!(listed(&[8], 2022), Err("CRL has expired"));
    let lists = pem::revocation_lists(revoked(&[8], 2090).as_bytes()).unwrap();
    let strict = Verifier::new(vec![root().certificate.clone()], &lists, 1).unwrap();
    let missing = check(&strict, &[own, below], Role::Client);
    assert_eq!(missing, Err("unable to get certificate CRL"));
}

#[test]
fn revoked_certificates_are_distrusted() {
    let check = |serials: &[u64], until, serial| {
        let lists = pem::revocation_lists(revoked(serials, until).as_bytes()).unwrap();
        let verifier = Verifier::new(vec![root().certificate.clone()], &lists, 1).unwrap();
        let identity =
            CertificateSpec { serial, ..CertificateSpec::default() }.identity(root(), &[]);
        trust(Arc::new(verifier), Some(identity)).unwrap()
    };
    assert_eq!(check(&[7], 2090, 8), Ok(()));
    assert_eq!(check(&[7], 2090, 7), Err(Distrust("certificate revoked")));
    assert_eq!(check(&[7], 2022, 8), Err(Distrust("CRL has expired")));
    // Every issuer needs a list.
    let lists = pem::revocation_lists(revoked(&[], 2090).as_bytes()).unwrap();
    let verifier = Verifier::new(vec![root().certificate.clone()], &lists, 1).unwrap();
    let identity = CertificateSpec::default().identity(intermediate(), &[intermediate()]);
    let result = trust(Arc::new(verifier), Some(identity));
    assert_eq!(result, Some(Err(Distrust("unable to get certificate CRL"))));
}

#[test]
fn revocation_holds_for_certificates_that_are_trusted_themselves() {
    let (own, _) = CertificateSpec { serial: 7, ..CertificateSpec::default() }.make(root());
    let verify = |serials: &[u64]| {
        let lists = pem::revocation_lists(revoked(serials, 2090).as_bytes()).unwrap();
        let verifier = Verifier::new(vec![own.clone()], &lists, 1).unwrap();
        verifier.verify(std::slice::from_ref(&own), Role::Client, SystemTime::now())
    };
    assert_eq!(verify(&[8]), Ok(()));
    assert_eq!(verify(&[7]), Err(Distrust("certificate revoked")));
    let (other, _) = CertificateSpec::default().make(intermediate());
    let lists = pem::revocation_lists(revoked(&[], 2090).as_bytes()).unwrap();
    let verifier = Verifier::new(vec![other.clone()], &lists, 1).unwrap();
    let result = verifier.verify(&[other], Role::Client, SystemTime::now());
    assert_eq!(result, Err(Distrust("unable to get certificate CRL")));
}

#[test]
fn a_trusted_certificate_that_is_no_authority_signs_nothing() {
    let sign = |is_ca, usages: &[KeyUsagePurpose]| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Signs");
        (params.is_ca, params.key_usages) = (is_ca, usages.to_vec());
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let by = Authority { issuer: Issuer::new(params, key), certificate };
        let (own, _) = CertificateSpec::default().make(&by);
        let verifier = Verifier::new(vec![by.certificate.clone()], &[], 1).unwrap();
        let now = SystemTime::now();
        let itself = verifier.verify(&[by.certificate], Role::Server, now);
        assert_eq!(itself, Ok(()), "it is trusted itself");
        verifier.verify(&[own], Role::Server, now)
    };
    let ca = IsCa::Ca(BasicConstraints::Unconstrained);
    assert_eq!(sign(ca, &[]), Ok(()));
    assert_eq!(sign(ca, &[KeyUsagePurpose::KeyCertSign]), Ok(()));
    let refused = Err(Distrust("unable to verify the first certificate"));
    assert_eq!(sign(ca, &[KeyUsagePurpose::DigitalSignature]), refused);
    assert_eq!(sign(IsCa::NoCa, &[]), refused);
    assert_eq!(sign(IsCa::ExplicitNoCa, &[KeyUsagePurpose::KeyCertSign]), refused);
}

#[test]
fn lists_of_version_1_count() {
    // Made by `openssl ca`: rcgen makes no such lists.
    macro_rules! file {
        ($name:literal) => {
            include_bytes!(concat!("old_list/", $name, ".pem"))
        };
    }
    let authority = pem::certificates(file!("ca")).unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000);
    let verify = |list: &[u8], certificate: &[u8]| {
        let lists = pem::revocation_lists(list).unwrap();
        let verifier = Verifier::new(authority.clone(), &lists, 1).unwrap();
        verifier.verify(&pem::certificates(certificate).unwrap(), Role::Server, at)
    };
    assert_eq!(verify(file!("list"), file!("good")), Ok(()));
    assert_eq!(verify(file!("list"), file!("bad")), Err(Distrust("certificate revoked")));
    assert_eq!(verify(file!("expired"), file!("good")), Err(Distrust("CRL has expired")));
    assert_eq!(verify(file!("forged"), file!("good")), Err(Distrust("CRL signature failure")));
    // Every issuer needs a list, of any version.
    let lists = pem::revocation_lists(file!("list")).unwrap();
    let verifier = Verifier::new(vec![root().certificate.clone()], &lists, 1).unwrap();
    let (own, _) = CertificateSpec::default().make(root());
    let result = verifier.verify(&[own], Role::Client, SystemTime::now());
    assert_eq!(result, Err(Distrust("unable to get certificate CRL")));
}

#[test]
fn facts_of_a_certificate() {
    let (der, key) = CertificateSpec::default().make(root());
    let certificate = Certificate::parse(&der).unwrap();
    assert_eq!(certificate.subject(), "CN=example.com");
    assert_eq!(certificate.issuer(), "CN=Root");
    assert_eq!(certificate.legacy_subject(), "/CN=example.com");
    assert_eq!(certificate.serial(), "01234567");
    assert_eq!(certificate.valid_from(), "Jan  1 00:00:00 2020 GMT");
    assert_eq!(certificate.valid_to(), "Jan  1 00:00:00 2090 GMT");
    assert_eq!(certificate.fingerprint().len(), 40);
    let at = |year: u64| SystemTime::UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_556_952);
    assert_eq!(certificate.remaining_days(at(2095)), Some(0));
    assert!(certificate.remaining_days(at(2089)).unwrap() > 360);
    let text = certificate.pem();
    assert_eq!(pem::certificates(text.as_bytes()).unwrap(), std::slice::from_ref(&der));
    assert!(certificate.folded_pem().contains("-----\n\tMI"));
    assert!(certificate.folded_pem().ends_with("-----END CERTIFICATE-----"));
    assert!(certificate.escaped_pem().starts_with("-----BEGIN%20CERTIFICATE-----%0AMI"));
    let chain = format!("note\n{text}\n{text}");
    assert_eq!(pem::certificates(chain.as_bytes()).unwrap().len(), 2);

    let other =
        pem::PrivateKey::from_pem(CertificateSpec::default().make(root()).1.as_bytes(), &[]);
    let mismatch = Identity::new(vec![der.clone()], &other.unwrap(), None).unwrap_err();
    assert_eq!(mismatch, Error::KeyMismatch);
    let own = pem::PrivateKey::from_pem(key.as_bytes(), &[]).unwrap();
    assert!(Identity::new(vec![der], &own, None).is_ok());
}
