//! Certificates, made when the tests run.

use std::sync::{Arc, LazyLock};

use nowait_tls::{CertificateDer, Identity, Verifier, pem};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, SignatureAlgorithm,
    date_time_ymd,
};

/// A certificate authority.
pub struct Authority {
    pub issuer: Issuer<'static, KeyPair>,
    pub certificate: CertificateDer<'static>,
}

fn ca(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

pub fn root() -> &'static Authority {
    static ROOT: LazyLock<Authority> = LazyLock::new(|| {
        let key = KeyPair::generate().unwrap();
        let certificate = ca("Root").self_signed(&key).unwrap().der().clone();
        Authority { issuer: Issuer::new(ca("Root"), key), certificate }
    });
    &ROOT
}

/// An authority below the root.
pub fn intermediate() -> &'static Authority {
    static BELOW: LazyLock<Authority> = LazyLock::new(|| {
        let key = KeyPair::generate().unwrap();
        let certificate = ca("Below").signed_by(&key, &root().issuer).unwrap().der().clone();
        Authority { issuer: Issuer::new(ca("Below"), key), certificate }
    });
    &BELOW
}

/// Properties of a certificate to be made.
pub struct CertificateSpec {
    pub name: &'static str,
    pub serial: u64,
    pub years: (i32, i32),
    pub algorithm: &'static SignatureAlgorithm,
}

impl Default for CertificateSpec {
    fn default() -> CertificateSpec {
        let algorithm = &rcgen::PKCS_ECDSA_P256_SHA256;
        CertificateSpec { name: "example.com", serial: 0x0123_4567, years: (2020, 2090), algorithm }
    }
}

impl CertificateSpec {
    /// The certificate, and its key as PEM.
    pub fn make(&self, by: &Authority) -> (CertificateDer<'static>, String) {
        let key = KeyPair::generate_for(self.algorithm).unwrap();
        let mut params = CertificateParams::new(vec![self.name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, self.name);
        params.serial_number = Some(SerialNumber::from(self.serial));
        params.not_before = date_time_ymd(self.years.0, 1, 1);
        params.not_after = date_time_ymd(self.years.1, 1, 1);
        let certificate = params.signed_by(&key, &by.issuer).unwrap();
        (certificate.der().clone(), key.serialize_pem())
    }

    pub fn identity(&self, by: &Authority, others: &[&Authority]) -> Identity {
        let (certificate, key) = self.make(by);
        let others = others.iter().map(|authority| authority.certificate.clone());
        let chain = std::iter::once(certificate).chain(others).collect();
        let key = pem::PrivateKey::from_pem(key.as_bytes(), &[]).unwrap();
        Identity::new(chain, &key, None).unwrap()
    }
}

pub fn ecdsa() -> Identity {
    static ECDSA: LazyLock<Identity> =
        LazyLock::new(|| CertificateSpec::default().identity(root(), &[]));
    ECDSA.clone()
}

pub fn rsa() -> Identity {
    static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
        CertificateSpec { algorithm: &rcgen::PKCS_RSA_SHA256, ..CertificateSpec::default() }
            .identity(root(), &[])
    });
    IDENTITY.clone()
}

/// Trusts the root.
pub fn verifier(depth: usize) -> Arc<Verifier> {
    Arc::new(Verifier::new(vec![root().certificate.clone()], &[], depth).unwrap())
}

/// The root's list of these serial numbers, as PEM.
pub fn revoked(serials: &[u64], until_year: i32) -> String {
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2021, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2021, 1, 1),
        next_update: date_time_ymd(until_year, 1, 1),
        crl_number: SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(&root().issuer).unwrap().pem().unwrap()
}
