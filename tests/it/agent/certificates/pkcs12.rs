//! PKCS#12 files, as OpenSSL and Java read them.

use std::process::{Command, Output};

use super::*;
use crate::harness::not_run::not_run;

const PASSWORD: &str = "p\u{e4}ss word";

fn wanted(bench: &Bench<'_>) -> Wanted {
    let password_file = bench.path("password");
    std::fs::write(&password_file, format!("{PASSWORD}\n")).unwrap();
    let mut wanted = bench.wanted();
    wanted.options.output.form = OutputForm::Pkcs12 { password_file, alias: "web".to_owned() };
    wanted
}

fn openssl(bench: &Bench<'_>, args: &[&str]) -> Output {
    let mut command = Command::new("openssl");
    command.args(["pkcs12", "-nodes", "-passin", "env:PASSWORD", "-in"]).arg(bench.path("web"));
    command.args(args).env("PASSWORD", PASSWORD).output().unwrap()
}

#[track_caller]
fn text_of(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[tokio::test(start_paused = true)]
async fn a_pkcs12_file_has_key_and_certificate_with_a_name() {
    let world = world();
    let session = world.start();
    for (_, key_type) in KeyType::ALL {
        let mut bench = Bench::new(&world, &session);
        let mut wanted = wanted(&bench);
        wanted.request.key = KeyOrigin::Generated(key_type);
        bench.ready(wanted).await;
        let text = text_of(&openssl(&bench, &[]));
        fitting(&text, &text);
        assert!(text.contains("friendlyName: web"), "{text}");
        let info = String::from_utf8(openssl(&bench, &["-info", "-noout"]).stderr).unwrap();
        assert!(info.contains("MAC: sha256, Iteration 10000"), "{info}");
        assert_eq!(std::fs::metadata(bench.path("web")).unwrap().mode() & 0o7777, 0o640);
        bench.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn java_reads_the_file_if_there_is_java() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let wanted = wanted(&bench);
    // Java takes no others.
    std::fs::write(bench.path("password"), "of ASCII").unwrap();
    bench.ready(wanted).await;
    let mut keytool = Command::new("keytool");
    keytool.args(["-list", "-v", "-storetype", "PKCS12", "-storepass:env", "PASSWORD", "-keystore"]);
    let output = match keytool.arg(bench.path("web")).env("PASSWORD", "of ASCII").output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return not_run("there is no keytool"),
        output => output.unwrap(),
    };
    let text = text_of(&output);
    assert!(text.contains("Alias name: web") && text.contains("Entry type: PrivateKeyEntry"), "{text}");
    assert!(text.contains("CN=web.example.com"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_pkcs12_file_is_used_again_and_stays_as_it_is() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let mut wanted = wanted(&bench);
    bench.ready(wanted.clone()).await;
    let first = std::fs::read(bench.path("web")).unwrap();
    for _ in 0..10 {
        bench.end().await;
        bench.ready(wanted.clone()).await;
    }
    assert_eq!((bench.requests(), std::fs::read(bench.path("web")).unwrap()), (1, first.clone()));
    bench.end().await;
    wanted.options.output.attributes.mode = 0o600;
    bench.ready(wanted.clone()).await;
    assert_eq!((bench.requests(), std::fs::read(bench.path("web")).unwrap()), (1, first.clone()));
    assert_eq!(std::fs::metadata(bench.path("web")).unwrap().mode() & 0o7777, 0o600);
    bench.rotation().request();
    bench.rotation().outcome().await.unwrap().unwrap();
    assert_ne!(std::fs::read(bench.path("web")).unwrap(), first);
}

#[tokio::test(start_paused = true)]
async fn without_the_password_nothing_is_requested_and_with_another_one_a_new_certificate_is() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let wanted = wanted(&bench);
    std::fs::remove_file(bench.path("password")).unwrap();
    bench.start(wanted.clone());
    bench.until(|bench| bench.reason().contains("cannot read the password in ")).await;
    assert_eq!((bench.requests(), bench.path("web").exists()), (0, false));
    std::fs::write(bench.path("password"), "first").unwrap();
    bench.until(|bench| bench.reason().is_empty()).await;
    assert!(!openssl(&bench, &[]).status.success(), "it is the password of the file that opens it");
    bench.end().await;
    std::fs::write(bench.path("password"), PASSWORD).unwrap();
    bench.start(wanted);
    bench.until(|bench| bench.requests() == 2 && bench.reason().is_empty()).await;
    let text = text_of(&openssl(&bench, &[]));
    fitting(&text, &text);
}
