//! A reader in a loop while the certificate is replaced again and again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{Mode, OFlags};

use super::*;

const READS: usize = 100_000;
const REPLACEMENTS: usize = 20;

type Read = fn(&Path) -> std::io::Result<(String, String)>;

/// Opens the folder once, and reads key and leaf of it. Fails if the certificate was replaced twice meanwhile.
fn read_folder(path: &Path) -> std::io::Result<(String, String)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder: OwnedFd = rustix::fs::open(path, flags, Mode::empty()).unwrap();
    let read = |name: &str| -> std::io::Result<String> {
        let file = rustix::fs::openat(folder.as_fd(), name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text)?;
        Ok(text)
    };
    Ok((read("key.pem")?, read("cert.pem")?))
}

fn read_bundle(path: &Path) -> std::io::Result<(String, String)> {
    let bundle = std::fs::read_to_string(path)?;
    Ok((bundle.clone(), bundle))
}

#[tokio::test(start_paused = true)]
async fn a_reader_never_sees_a_key_that_fits_no_leaf() {
    for (form, read) in [(OutputForm::Folder, read_folder as Read), (OutputForm::Bundle, read_bundle)] {
        let world = world();
        let session = world.start();
        let mut bench = Bench::new(&world, &session);
        let mut wanted = bench.wanted();
        wanted.options.output.form = form.clone();
        bench.ready(wanted).await;
        let path = bench.path("web");
        let (reads, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stop) = (Arc::clone(&reads), Arc::clone(&is_over));
        let reader = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !stop.load(Ordering::Relaxed) {
                if let Ok(pair) = read(&path) {
                    seen.insert(pair);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
            seen
        });
        let mut replacements = 0;
        while replacements < REPLACEMENTS || reads.load(Ordering::Relaxed) < READS {
            sleep(Duration::from_secs(61)).await;
            assert_eq!(bench.rotation().request(), RefreshRequest::Accepted);
            bench.rotation().outcome().await.unwrap().unwrap();
            replacements += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        let seen = reader.join().unwrap();
        for (key, leaf) in &seen {
            fitting(key, leaf);
        }
        assert!(seen.len() > 10, "{form:?}: {} of {replacements} certificates were seen", seen.len());
        bench.end().await;
    }
}
