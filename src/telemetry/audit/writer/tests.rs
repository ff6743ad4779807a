use std::io::{self, Read as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::SystemTime;

use keyward_machine::atomic_file::Attributes;
use keyward_machine::secret_string::SecretString;
use tokio::sync::oneshot;

use super::*;
use crate::audit::checkpoint::Checkpoint;
use crate::audit::device_task::DeviceTask;
use crate::audit::options::{AuditFileOptions, AuditTarget, Fsync, OnFailure};
use crate::audit::queue::QueueShare;
use crate::audit::read::{list_files, read_lines};
use crate::audit::tests::record;
use crate::audit::verify::{LinePosition, Verifier, VerifyNote, VerifyReport};
use crate::health::Health;

const KEY: &str = "0123456789abcdef0123456789abcdef";

fn options(path: &Path, max_bytes: u64, keep: u32) -> AuditOptions {
    AuditOptions {
        name: "main".to_owned(),
        key: SecretString::from(KEY),
        on_failure: OnFailure::Closed,
        target: AuditTarget::File(AuditFileOptions {
            path: path.to_owned(),
            attributes: Attributes { mode: 0o640, owner: None, group: None },
            max_bytes,
            keep,
            fsync: Fsync::Always,
        }),
        checkpoint_file: None,
        checkpoint_records: 10,
        checkpoint_interval: Duration::from_mins(5),
    }
}

/// A writer that is driven by hand, and its health.
fn writer(options: &AuditOptions) -> (AuditWriter, Health, DeviceTask, RecordQueue) {
    let health = Health::default();
    let metrics = Metrics::default();
    let queue = RecordQueue::default();
    let (confirmations, task) = Confirmations::new(queue.clone());
    let component = health.register("audit/main", true, "");
    (AuditWriter::new(options, confirmations, component, &metrics, Clock::System), health, task, queue)
}

/// Runs a writer over `count` records; returns how many were kept.
fn write(options: &AuditOptions, count: u64) -> usize {
    let (writer, _health, task, queue) = writer(options);
    let kept: Vec<_> = (0..count)
        .map(|number| {
            let (sender, receiver) = oneshot::channel();
            let queued = QueuedRecord { at: SystemTime::now(), record: record(number), confirmation: Some(sender) };
            queue.push(queued, QueueShare::Full);
            receiver
        })
        .collect();
    queue.stop();
    writer.run(&queue);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(task.run());
    kept.into_iter().filter_map(|mut kept| kept.try_recv().ok()).filter(|kept| *kept).count()
}

fn verify(path: &Path) -> VerifyReport {
    verify_against(path, Vec::new())
}

fn verify_against(path: &Path, checkpoints: Vec<Checkpoint>) -> VerifyReport {
    let key = AuditKey::new(&SecretString::from(KEY));
    let mut verifier = Verifier::new(&key, checkpoints);
    for file in list_files(path).files {
        let mut position = LinePosition { file: file.display().to_string().into(), line: 0 };
        let bytes = std::fs::read(&file).unwrap();
        read_lines(&mut &*bytes, |line| {
            position.line += 1;
            verifier.verify_line(&position, line);
        })
        .unwrap();
    }
    verifier.finish()
}

#[test]
fn the_chain_goes_on_over_processes_and_rotations_and_old_files_are_removed() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    assert_eq!(write(&options(&path, 1 << 20, 2), 5), 5);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(write(&options(&path, 1 << 20, 2), 5), 5);
    let report = verify(&path);
    // Two starts, two stops.
    assert!(report.is_intact() && report.verified == 14 && report.notes.is_empty() && report.stopped, "{report:?}");
    for _ in 0..6 {
        assert_eq!(write(&options(&path, 4096, 2), 10), 10);
    }
    let names = list_files(&path).files;
    assert_eq!(names.len(), 3, "{names:?}");
    let report = verify(&path);
    assert!(report.is_intact() && report.stopped, "{report:?}");
}

#[test]
fn a_file_that_does_not_fit_the_key_is_moved_away_and_a_second_writer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    write(&options(&path, 1 << 20, 2), 3);
    let other =
        AuditOptions { key: SecretString::from("another key of thirty-two letters"), ..options(&path, 1 << 20, 2) };
    assert_eq!(write(&other, 3), 3);
    assert!(folder.path().join("audit.jsonl.1").exists());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.lines().next().unwrap().contains("\"previous\":\"unverified\""), "{text}");
    let held = std::fs::File::open(&path).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(write(&other, 3), 0, "another process has the file");
    std::os::unix::fs::symlink("/dev/null", folder.path().join("link")).unwrap();
    assert_eq!(write(&options(&folder.path().join("link"), 1 << 20, 2), 3), 0, "no symlink is followed");
}

#[test]
fn a_sync_that_succeeds_does_not_mend_a_device_that_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (mut writer, health, _task, _queue) = writer(&options(&path, 1 << 20, 2));
    writer.write(Vec::new(), false);
    assert!(health.is_ready() && writer.unsynced.is_some());
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    writer.write(Vec::new(), false);
    assert!(!health.is_ready() && writer.retries());
    writer.do_due_work(true);
    assert!(!health.is_ready() && writer.retries(), "the file cannot be made");
    std::fs::remove_dir(&path).unwrap();
    writer.write(Vec::new(), false);
    assert!(health.is_ready() && !writer.retries());
}

#[test]
fn a_file_that_could_not_be_moved_away_at_the_start_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    write(&options(&path, 1 << 20, 1), 3);
    let other =
        AuditOptions { key: SecretString::from("another key of thirty-two letters"), ..options(&path, 1 << 20, 1) };
    // It does not verify with the key, and a folder is where it would go.
    let rotated = folder.path().join("audit.jsonl.1");
    std::fs::create_dir(&rotated).unwrap();
    let (mut writer, health, _task, _queue) = writer(&other);
    writer.write(Vec::new(), false);
    assert!(!health.is_ready());
    std::fs::remove_dir(&rotated).unwrap();
    writer.write(Vec::new(), false);
    assert!(health.is_ready(), "{:?}", health.components());
    assert!(rotated.is_file());
}

#[test]
fn a_line_that_a_restarted_collector_has_in_part_is_counted_as_lost_and_not_continued() {
    let folder = tempfile::tempdir().unwrap();
    let [path, stored, checkpoint] = ["socket", "stored", "checkpoint"].map(|name| folder.path().join(name));
    let listener = UnixListener::bind(&path).unwrap();
    let options = AuditOptions {
        target: AuditTarget::Socket(path.clone()),
        checkpoint_file: Some(checkpoint.clone()),
        ..options(&path, 1 << 20, 2)
    };
    let (mut writer, _health, _task, _queue) = writer(&options);
    let queued = |number| QueuedRecord { at: SystemTime::now(), record: record(number), confirmation: None };
    let mut received = Vec::new();
    let mut sent = 0;
    writer.write(Vec::new(), false);
    let (first, _) = listener.accept().unwrap();
    // The socket is full within a line, or by chance at the end of one.
    while writer.before_partial.is_none() {
        if writer.is_write_failing {
            drain(&first, &mut received);
        }
        writer.write((0..2000).map(queued).collect(), false);
        sent += 2000;
        assert!(sent < 200_000, "the socket takes everything");
    }
    writer.do_due_work(true);
    drain(&first, &mut received);
    drop(first);
    for number in 0..3 {
        writer.write(vec![queued(number)], false);
        sent += 1;
    }
    let (second, _) = listener.accept().unwrap();
    drain(&second, &mut received);
    std::fs::write(&stored, &received).unwrap();
    let checkpoints = Checkpoint::parse_all(&std::fs::read_to_string(&checkpoint).unwrap()).unwrap();
    let report = verify_against(&stored, checkpoints);
    assert!(report.is_intact() && report.checkpoints == 1, "{report:?}");
    assert!(matches!(*report.notes, [VerifyNote::IncompleteLine { .. }]), "{report:?}");
    let text = String::from_utf8(received).unwrap();
    let count = |kind: &str| text.matches(&format!("\"type\":\"{kind}\"")).count() as u64;
    assert_eq!(report.verified - count("start") - count("continue") - count("lost") + report.lost, sent);
}

/// Reads what a connection holds, without waiting for more.
fn drain(mut connection: &UnixStream, received: &mut Vec<u8>) {
    connection.set_nonblocking(true).unwrap();
    let end = connection.read_to_end(received).unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::WouldBlock);
}
