//! Hands records to the audit devices of the process, and waits where a request depends on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use keyward_machine::clock::Clock;
use parking_lot::RwLock;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::device::{Device, DeviceError};
use super::device_task::Confirmations;
use super::options::{AuditOptions, OnFailure};
use super::queue::{QueueShare, QueuedRecord, RecordQueue};
use super::record::AuditRecord;
use super::writer::AuditWriter;
use crate::error_code::ErrorCode;
use crate::health::Health;
use crate::metrics::Metrics;

/// Audit devices of the process. Clones share them; without a device nothing is recorded.
#[derive(Debug, Clone, Default)]
pub struct Auditor(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_on: AtomicBool,
    next_id: AtomicU64,
    devices: RwLock<Vec<DeviceHandle>>,
}

/// Queue of a device, for those that record.
#[derive(Debug, Clone)]
pub struct DeviceHandle(Arc<DeviceShared>);

#[derive(Debug)]
struct DeviceShared {
    name: Arc<str>,
    is_closed: bool,
    queue: RecordQueue,
    /// The device's task. A request that waits shares it, so that it outlives a device that a reload replaces.
    _task: JoinSet<()>,
}

/// A device whose thread runs.
#[derive(Debug)]
pub struct RunningDevice {
    options: AuditOptions,
    handle: DeviceHandle,
    thread: Option<JoinHandle<()>>,
}

/// The record of a request could not be kept.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the audit {0} cannot keep a record of this request, so that it is not served (fail = \"closed\") [{code}]", code = ErrorCode::AuditUnavailable)]
pub struct AuditUnavailable(Arc<str>);

/// A record that devices with `fail = "closed"` still have to confirm.
#[derive(Debug)]
pub struct PendingRecord(Vec<PendingConfirmation>);

/// Confirmation that one device still owes.
#[derive(Debug)]
struct PendingConfirmation {
    device: DeviceHandle,
    confirmation: oneshot::Receiver<bool>,
}

impl Auditor {
    /// Returns true if there is a device.
    pub fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// Returns the number of a request.
    pub fn next_id(&self) -> u64 {
        self.0.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sets the devices.
    pub fn set_devices(&self, devices: Vec<DeviceHandle>) {
        self.0.is_on.store(!devices.is_empty(), Ordering::Relaxed);
        *self.0.devices.write() = devices;
    }

    /// Records a request that may be served only once its record is kept.
    pub fn admit(&self, record: AuditRecord) -> PendingRecord {
        let mut waiting = Vec::new();
        self.push(record, QueueShare::Full, |device| {
            device.0.is_closed.then(|| {
                let (sender, confirmation) = oneshot::channel();
                waiting.push(PendingConfirmation { device: device.clone(), confirmation });
                sender
            })
        });
        for pending in &waiting {
            pending.device.0.queue.request_flush();
        }
        PendingRecord(waiting)
    }

    /// Records a refusal. It leaves room in the queue for requests that were admitted.
    pub fn record_refusal(&self, record: AuditRecord) {
        self.push(record, QueueShare::Half, |_| None);
    }

    /// Records the response to a request whose record was kept.
    pub fn record_response(&self, record: AuditRecord) {
        self.push(record, QueueShare::Full, |_| None);
    }

    fn push(
        &self,
        record: AuditRecord,
        share: QueueShare,
        mut confirm: impl FnMut(&DeviceHandle) -> Option<oneshot::Sender<bool>>,
    ) {
        let at = SystemTime::now();
        let devices = self.0.devices.read();
        let mut push = |device: &DeviceHandle, record| {
            // A full queue drops the sender, which the receiver notices.
            device.0.queue.push(QueuedRecord { at, record, confirmation: confirm(device) }, share);
        };
        if let Some((last, rest)) = devices.split_last() {
            for device in rest {
                push(device, record.clone());
            }
            push(last, record);
        }
    }
}

impl PendingRecord {
    /// Returns true if no device has to confirm.
    pub const fn is_certain(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until every device has confirmed.
    ///
    /// # Errors
    /// A device with `fail = "closed"` cannot keep the record, or not in time.
    pub async fn wait(self) -> Result<(), AuditUnavailable> {
        for PendingConfirmation { device, confirmation } in self.0 {
            match tokio::time::timeout(TIMEOUT, confirmation).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false) | Err(_)) | Err(_) => return Err(AuditUnavailable(Arc::clone(&device.0.name))),
            }
        }
        Ok(())
    }
}

impl RunningDevice {
    /// Checks that a device can be used, without changing anything.
    pub fn probe(options: &AuditOptions) -> Result<(), DeviceError> {
        Device::probe(&options.target)
    }

    /// Starts the thread of a device, which begins once its predecessor has closed the file. Called within a runtime.
    pub fn start(
        options: AuditOptions,
        predecessor: Option<Self>,
        health: &Health,
        metrics: &Metrics,
        clock: &Clock,
    ) -> std::io::Result<Self> {
        let is_closed = options.on_failure == OnFailure::Closed;
        let component = health.register(format!("audit/{}", options.name), is_closed, "nothing written yet");
        component.set_target(options.target.path());
        let queue = RecordQueue::default();
        let mut tasks = JoinSet::new();
        let (confirmations, task) = Confirmations::new(queue.clone());
        let writer = AuditWriter::new(&options, confirmations, component, metrics, clock.clone());
        let thread = spawn(writer, predecessor, queue.clone())?;
        tasks.spawn(task.run());
        let name = options.name.as_str().into();
        let handle = DeviceHandle(Arc::new(DeviceShared { name, is_closed, queue, _task: tasks }));
        Ok(Self { options, handle, thread: Some(thread) })
    }

    /// Options that it was built from.
    pub const fn options(&self) -> &AuditOptions {
        &self.options
    }

    /// Queue for [`Auditor::set_devices`].
    pub fn handle(&self) -> DeviceHandle {
        self.handle.clone()
    }

    /// Reopens the file if another one is at its path, as a tool that rotates leaves it.
    pub fn reopen(&self) {
        self.handle.0.queue.reopen();
    }

    /// Writes what is queued, and ends.
    pub fn stop(&self) {
        self.handle.0.queue.stop();
    }

    /// Waits for the end of the thread.
    fn join(&mut self) {
        // A panic of the thread was logged where it happened.
        drop(self.thread.take().map(JoinHandle::join));
    }

    /// Stops, and waits for the end without blocking the runtime.
    pub async fn finish(mut self) {
        self.stop();
        // A disk that hangs delays the end of the process for no longer.
        let _ = tokio::time::timeout(STOP_TIMEOUT, tokio::task::spawn_blocking(move || self.join())).await;
    }
}

fn spawn(
    writer: AuditWriter,
    predecessor: Option<RunningDevice>,
    queue: RecordQueue,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("audit".to_owned()).spawn(move || {
        if let Some(mut predecessor) = predecessor {
            predecessor.stop();
            predecessor.join();
        }
        writer.run(&queue);
    })
}

/// Time for a record to be kept.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Time for a device to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
