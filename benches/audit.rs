//! Benchmark of audit records, from the queue to the file: `audit FOLDER [RECORDS]` prints microseconds per record, and those of a bare
//! write of the same bytes.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod audit_device;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use keyward_machine::clock::Clock;
use keyward_telemetry::audit::{
    AuditCaller, AuditNote, AuditRecord, AuditedRequest, Auditor, RecordKind, RequestFacts, RequestState, RunningDevice,
};
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;

use audit_device::audit_options;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: keyward_machine::os::ZeroingAllocator = keyward_machine::os::ZeroingAllocator;

/// Records that wait at the same time, as concurrent requests do.
const CONCURRENT: u64 = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let Some(folder) = arguments.first().map(PathBuf::from) else { return println!("audit FOLDER [RECORDS]") };
    let count: u64 = arguments.get(1).map_or(200_000, |count| count.parse().unwrap());
    let path = folder.join("audit.jsonl");
    let (auditor, health, metrics) = (Auditor::default(), Health::default(), Metrics::default());
    let device = RunningDevice::start(audit_options(path.clone()), None, &health, &metrics, &Clock::System).unwrap();
    auditor.set_devices(vec![device.handle()]);
    let start = Instant::now();
    for first in (0..count).step_by(usize::try_from(CONCURRENT).unwrap()) {
        let waiting: Vec<_> = (first..first + CONCURRENT).map(|number| auditor.admit(build_record(number))).collect();
        for record in waiting {
            record.wait().await.unwrap();
        }
    }
    let audited = start.elapsed();
    device.finish().await;
    let bytes = std::fs::read(&path).unwrap();
    let mut floor_file = std::fs::File::create(folder.join("floor")).unwrap();
    let start = Instant::now();
    let chunk_size = bytes.len() / usize::try_from(count / CONCURRENT).unwrap();
    bytes.chunks(chunk_size).for_each(|chunk| floor_file.write_all(chunk).unwrap());
    let floor = start.elapsed();
    let per_record = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(u32::try_from(count).unwrap());
    println!(
        "record_us={:.3} floor_us={:.3} bytes={}",
        per_record(audited),
        per_record(floor),
        bytes.len() as u64 / count
    );
}

fn build_record(number: u64) -> AuditRecord {
    let facts = RequestFacts {
        id: number,
        part: "agent",
        listener: "proxy".into(),
        route: "proxy",
        method: "GET".to_owned(),
        path: "/v1/secret/data/team/web/production".to_owned(),
        caller: AuditCaller { uid: Some(1000), gid: Some(1000), pid: Some(4711), ..AuditCaller::default() },
    };
    let note = AuditNote { session: Some("web".into()), accessor: Some("accessor".into()), ..AuditNote::default() };
    let state = RequestState { note, ..RequestState::default() };
    AuditRecord { kind: RecordKind::Request, request: AuditedRequest::new(facts), state }
}
