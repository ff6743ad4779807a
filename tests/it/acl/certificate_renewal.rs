//! Certificate files of a running process: renewed, refused, about to expire.

use std::path::Path;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use time::OffsetDateTime;

use crate::harness::binary::{Binary, ask, eventually};
use crate::harness::ports;

/// Certificate for 127.0.0.1 with its own CA and the given validity in days.
struct Signed {
    authority: String,
    certificate: String,
    key: String,
}

fn signed(begun: i64, ends: i64) -> Signed {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let now = OffsetDateTime::now_utc();
    (leaf.not_before, leaf.not_after) = (now - time::Duration::days(begun), now + time::Duration::days(ends));
    let certificate = leaf.signed_by(&key, &issuer).unwrap().pem();
    Signed { authority: pem, certificate, key: key.serialize_pem() }
}

/// Replaces a file atomically with mode 0600.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::rename(&new, path).unwrap();
}

/// Sends a request, trusting this CA only.
async fn call(address: &str, authority: &str) -> Result<(), String> {
    let authority = reqwest::Certificate::from_pem(authority.as_bytes()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).build().unwrap();
    let response = client.get(format!("https://{address}/v1/sys/health")).send().await;
    response.map(drop).map_err(|error| format!("{error:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_loaded_and_an_expiring_one_reported() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let port = ports::reserve().port();
    let address = format!("127.0.0.1:{port}");
    let first = signed(25, 5);
    put(&folder.path().join("cert.pem"), &first.certificate);
    put(&folder.path().join("key.pem"), &first.key);
    let config = format!(
        "[acl]\nlisten = \"tcp://{address}\"\ntls_cert = \"{}\"\ntls_key = \"{}\"\ndata_dir = \"{}\"\n\
         [listener.probes]\nkind = \"health\"\naddress = \"unix://{}\"\n",
        at("cert.pem"),
        at("key.pem"),
        at("acl"),
        at("probes.sock"),
    );
    std::fs::write(folder.path().join("keyward.toml"), config).unwrap();
    let server = Binary::start(&["run", "--config", &at("keyward.toml")], &[], folder.path());
    let metric = |name: &str| {
        let (_, text) = ask(&folder.path().join("probes.sock"), "GET", "/metrics")?;
        let name = format!("keyward_certificate_{name}{{certificate=\"acl.tls_cert\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<i64>().ok());
        value.ok_or_else(|| format!("no {name} in {text}"))
    };
    let logged = |text: &str, what: &dyn Fn() -> Result<(), String>| {
        eventually(Duration::from_mins(1), || {
            let output = server.output();
            if output.contains(text) { what() } else { Err(format!("no {text:?} in {output}")) }
        });
    };
    logged("certificate.expiring", &|| {
        let left = metric("expiry_timestamp_seconds")? - OffsetDateTime::now_utc().unix_timestamp();
        if (4 * 86400..=5 * 86400).contains(&left) { Ok(()) } else { Err(format!("{left} s are left")) }
    });
    call(&address, &first.authority).await.unwrap();

    // A certificate without its key is refused, and the old pair stays in use.
    let second = signed(1, 300);
    put(&folder.path().join("cert.pem"), &second.certificate);
    call(&address, &first.authority).await.unwrap();
    logged("certificate.rejected", &|| {
        if metric("rejected")? == 1 { Ok(()) } else { Err("it is not counted".to_owned()) }
    });
    put(&folder.path().join("key.pem"), &second.key);
    call(&address, &second.authority).await.unwrap();
    call(&address, &first.authority).await.unwrap_err();
    logged("certificate.reloaded", &|| {
        let left = metric("expiry_timestamp_seconds")? - OffsetDateTime::now_utc().unix_timestamp();
        let good = left > 290 * 86400 && metric("rejected")? == 0;
        if good { Ok(()) } else { Err(format!("{left} s are left")) }
    });
    let (_, output) = server.stop();
    assert_eq!(output.matches("certificate.expiring").count(), 1, "{output}");
}
