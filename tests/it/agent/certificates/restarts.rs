//! Certificates after a restart.

use super::*;

#[tokio::test(start_paused = true)]
async fn fifty_restarts_request_no_certificate() {
    let world = world();
    let session = world.start();
    for form in [OutputForm::Folder, OutputForm::Bundle] {
        let mut bench = Bench::new(&world, &session);
        let mut wanted = bench.wanted();
        wanted.options.output.form = form.clone();
        let before = bench.requests();
        bench.ready(wanted.clone()).await;
        let first = std::fs::canonicalize(bench.path("web")).unwrap();
        for restart in 0..50 {
            if restart % 2 == 0 {
                bench.end().await;
            } else {
                // As `kill -9`.
                bench.running.shutdown().await;
            }
            bench.ready(wanted.clone()).await;
        }
        assert_eq!(bench.requests() - before, 1, "{form:?}");
        assert_eq!(std::fs::canonicalize(bench.path("web")).unwrap(), first, "the files stay as they are");
        bench.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_used_again_without_the_server() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.ready(bench.wanted()).await;
    let first = bench.served();
    bench.end().await;
    world.faults().go_away().await;
    bench.ready(bench.wanted()).await;
    assert_eq!(bench.served(), first);
}

#[tokio::test(start_paused = true)]
async fn other_settings_request_another_certificate_and_another_mode_only_writes_the_files() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.ready(bench.wanted()).await;
    let first = bench.served();
    bench.end().await;
    let mut wanted = bench.wanted();
    wanted.options.output.attributes.mode = 0o600;
    bench.ready(wanted).await;
    assert_eq!(bench.served(), first);
    assert_eq!(std::fs::metadata(bench.path("web/key.pem")).unwrap().mode() & 0o7777, 0o600);
    let changes: [fn(&mut CertificateRequest); 3] = [
        |request| {
            let CertificateSubject::Pki(subject) = &mut request.subject else { panic!() };
            subject.alt_names.clear();
        },
        |request| request.ttl = Some(DAY * 9),
        |request| request.key = KeyOrigin::Generated(KeyType::EcP384),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        bench.end().await;
        let mut wanted = bench.wanted();
        change(&mut wanted.request);
        bench.start(wanted);
        let expected = u64::try_from(index).unwrap() + 2;
        bench.until(|bench| bench.requests() == expected && bench.reason().is_empty()).await;
        bench.served();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_in_the_files_is_replaced_if_it_is_not_valid_any_more() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let changes: [fn(&Path); 3] = [
        |path| std::fs::write(path.join("web/key.pem"), rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap(),
        |path| std::fs::write(path.join("web/cert.pem"), "x").unwrap(),
        |path| std::fs::remove_file(path.join(".web.request")).unwrap(),
    ];
    bench.ready(bench.wanted()).await;
    for change in changes {
        let before = bench.requests();
        bench.end().await;
        change(bench.folder.path());
        bench.start(bench.wanted());
        bench.until(|bench| bench.requests() == before + 1 && bench.reason().is_empty()).await;
        bench.served();
    }
    bench.end().await;
    // Nobody replaced it while it was valid.
    sleep(DAY * 11).await;
    bench.ready(bench.wanted()).await;
    assert!(bench.served().ends > bench.now());
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_became_due_meanwhile_is_replaced_after_the_start() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.ready(bench.wanted()).await;
    let first = bench.served();
    bench.end().await;
    sleep(DAY * 8).await;
    bench.start(bench.wanted());
    bench.until(|bench| bench.requests() == 2 && bench.reason().is_empty()).await;
    assert_ne!(bench.served().serial, first.serial);
}
