//! Certificates of the SSH engine, as `ssh-keygen` reads them.

use std::collections::BTreeMap;
use std::process::Command;

use keyward_agent::certificates::{SshCertificateKind, SshSubject};
use keyward_telemetry::error_code::ErrorCode;

use super::*;

fn subject() -> SshSubject {
    SshSubject {
        kind: SshCertificateKind::User,
        principals: vec!["deploy".to_owned()],
        key_id: None,
        critical_options: BTreeMap::new(),
        extensions: BTreeMap::new(),
        writes_key: true,
    }
}

/// Options of a certificate `web` for the user `deploy`, of ten days, in a folder.
fn wanted(bench: &Bench<'_>, subject: SshSubject) -> Wanted {
    let mut wanted = bench.wanted();
    wanted.request = CertificateRequest {
        mount: "ssh".to_owned(),
        role: subject.kind.name().to_owned(),
        ttl: Some(DAY * 10),
        key: KeyOrigin::Generated(KeyType::Ed25519),
        subject: CertificateSubject::Ssh(subject),
    };
    wanted.options.output.form = OutputForm::SshFolder;
    wanted.options.output.attributes.mode = 0o600;
    wanted
}

/// Runs `ssh-keygen` with a file at its end, and returns its output.
#[track_caller]
fn ssh_keygen(args: &[&str], path: &Path) -> String {
    let output = Command::new("ssh-keygen").args(args).arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The lines that `ssh-keygen -L` prints, trimmed.
fn described(path: &Path) -> Vec<String> {
    ssh_keygen(&["-L", "-f"], path).lines().map(|line| line.trim().to_owned()).collect()
}

/// Checks that the key belongs to the certificate in the folder, and returns the certificate's serial number.
#[track_caller]
fn serial(bench: &Bench<'_>) -> String {
    let public = ssh_keygen(&["-y", "-P", "", "-f"], &bench.path("web/key"));
    let of_file = bench.read("web/key.pub").unwrap();
    assert_eq!(public.split_ascii_whitespace().take(2).collect::<Vec<_>>().join(" "), of_file.trim_end());
    let fingerprint = ssh_keygen(&["-l", "-f"], &bench.path("web/key.pub"));
    let fingerprint = fingerprint.split_ascii_whitespace().nth(1).unwrap();
    let lines = described(&bench.path("web/key-cert.pub"));
    assert!(lines.iter().any(|line| line.starts_with("Public key: ") && line.ends_with(fingerprint)), "{lines:?}");
    lines.iter().find_map(|line| line.strip_prefix("Serial: ")).unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn key_and_certificate_are_those_of_openssh() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let wanted = wanted(&bench, subject());
    bench.ready(wanted).await;
    let serial = serial(&bench);
    let lines = described(&bench.path("web/key-cert.pub"));
    let text = lines.join("\n");
    assert!(text.contains("Type: ssh-ed25519-cert-v01@openssh.com user certificate"), "{text}");
    assert!(text.contains("Principals:\ndeploy\nCritical Options: (none)\nExtensions:\npermit-pty"), "{text}");
    for name in ["key", "key.pub", "key-cert.pub"] {
        let file = std::fs::metadata(bench.path(&format!("web/{name}"))).unwrap();
        assert_eq!(file.mode() & 0o7777, 0o600, "{name}");
    }
    let lasts = bench.metric("expiry_timestamp_seconds{certificate=\"web\"}");
    let now = bench.now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!((u64::try_from(lasts).unwrap() - now + 30) / 3600, 240);
    let note = world.health.statuses()["certificate/web"].note.clone().unwrap();
    assert!(note.starts_with(&format!("SSH user deploy; serial {serial}; ends at ")), "{note}");
    assert_eq!((bench.state(), bench.requests()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn every_type_of_key_is_read_by_openssh() {
    let world = world();
    let session = world.start();
    for (_, key_type) in KeyType::ALL {
        let mut bench = Bench::new(&world, &session);
        let mut wanted = wanted(&bench, subject());
        wanted.request.key = KeyOrigin::Generated(key_type);
        bench.ready(wanted).await;
        serial(&bench);
        bench.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn options_are_requested_by_name() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let subject = SshSubject {
        critical_options: BTreeMap::from([("force-command".to_owned(), "/usr/bin/backup -a".to_owned())]),
        extensions: BTreeMap::from([("permit-port-forwarding".to_owned(), String::new())]),
        ..subject()
    };
    let wanted = wanted(&bench, subject);
    bench.ready(wanted).await;
    let text = described(&bench.path("web/key-cert.pub")).join("\n");
    let expected = "Critical Options:\nforce-command /usr/bin/backup -a\nExtensions:\npermit-port-forwarding";
    assert!(text.contains(expected), "{text}");
}

#[tokio::test(start_paused = true)]
async fn restarts_request_no_certificate_and_other_names_another_one() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let first = wanted(&bench, subject());
    for _ in 0..20 {
        bench.ready(first.clone()).await;
        bench.end().await;
    }
    let before = serial(&bench);
    assert_eq!(bench.requests(), 1);
    let other = wanted(&bench, SshSubject { principals: vec!["admin".to_owned()], ..subject() });
    bench.start(other);
    bench.until(|bench| bench.requests() == 2 && bench.reason().is_empty()).await;
    assert_ne!(serial(&bench), before);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_ssh_is_replaced_before_its_end_and_on_request() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let wanted = wanted(&bench, subject());
    bench.ready(wanted).await;
    let (first, key) = (serial(&bench), bench.read("web/key"));
    sleep(DAY * 7 + HOUR).await;
    let second = serial(&bench);
    assert_ne!(second, first);
    assert_ne!(bench.read("web/key"), key);
    assert_eq!(bench.rotation().request(), RefreshRequest::Accepted);
    let rotated = bench.rotation().outcome().await.unwrap().unwrap();
    assert_eq!(rotated.serial, serial(&bench));
    assert_eq!(bench.requests(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_certificate_of_a_kept_key_is_written_alone() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let keep = |bench: &Bench<'_>| {
        for name in ["host", "host.pub"] {
            let _ = std::fs::remove_file(bench.path(name));
        }
        ssh_keygen(&["-q", "-t", "ecdsa", "-N", "", "-f"], &bench.path("host"));
    };
    keep(&bench);
    let subject = SshSubject {
        kind: SshCertificateKind::Host,
        principals: vec!["web.example.com".to_owned(), "example.com".to_owned()],
        writes_key: false,
        ..subject()
    };
    // The private key is not read.
    for name in ["host.pub", "host"] {
        let mut wanted = wanted(&bench, subject.clone());
        wanted.request.key = KeyOrigin::File(bench.path(name));
        wanted.options.output.form = OutputForm::SshCertificate;
        wanted.options.output.path = bench.path("host-cert.pub");
        wanted.options.output.attributes.mode = 0o644;
        let before = bench.requests();
        bench.ready(wanted.clone()).await;
        let text = described(&bench.path("host-cert.pub")).join("\n");
        assert!(text.contains("Type: ecdsa-sha2-nistp256-cert-v01@openssh.com host certificate"), "{text}");
        assert!(text.contains("Principals:\nweb.example.com\nexample.com\n"), "{text}");
        let fingerprint = ssh_keygen(&["-l", "-f"], &bench.path("host.pub"));
        assert!(text.contains(fingerprint.split_ascii_whitespace().nth(1).unwrap()), "{text}");
        bench.end().await;
        bench.ready(wanted.clone()).await;
        bench.end().await;
        assert_eq!(bench.requests() - before, u64::from(before == 0), "another file of the same key changes nothing");
        keep(&bench);
        bench.start(wanted);
        bench.until(|bench| bench.requests() == before + 1 + u64::from(before == 0) && bench.reason().is_empty()).await;
        bench.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_that_allows_less_refuses_with_its_reason() {
    let world = world();
    let session = world.start();
    let cases: [(SshSubject, &str); 4] = [
        (
            SshSubject { principals: vec!["root".to_owned()], ..subject() },
            "root is not a valid value for valid_principals",
        ),
        (SshSubject { key_id: Some("me".to_owned()), ..subject() }, "setting key_id is not allowed by role"),
        (
            SshSubject {
                extensions: BTreeMap::from([("permit-X11-forwarding".to_owned(), String::new())]),
                ..subject()
            },
            "extensions [permit-X11-forwarding] are not on allowed list",
        ),
        (
            SshSubject { kind: SshCertificateKind::Host, principals: vec!["web.example.org".to_owned()], ..subject() },
            "web.example.org is not a valid value for valid_principals",
        ),
    ];
    for (subject, expected) in cases {
        let mut bench = Bench::new(&world, &session);
        let wanted = wanted(&bench, subject);
        bench.start(wanted);
        bench.until(|bench| bench.reason().contains(expected)).await;
        let code = world.health.components()["certificate/web"].code;
        assert_eq!(code.map(ErrorCode::as_str), Some("KW-1412"));
        bench.end().await;
    }
    let mut bench = Bench::new(&world, &session);
    let mut wanted = wanted(&bench, subject());
    wanted.request.ttl = Some(DAY * 40);
    bench.start(wanted);
    bench.until(|bench| bench.reason().contains("ttl is larger than maximum allowed 2764800")).await;
}
