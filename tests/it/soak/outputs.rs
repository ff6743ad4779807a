//! Sinks, templates and the child process: each read finds one whole text, of its own session.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;

use super::client::now;
use super::ledger::Ledger;
use super::plan::{SESSIONS, TEMPLATES, VAULT_SESSIONS, session};
use super::truth::Truth;

const CLASS: &str = "file";

/// Pause between two files.
const PAUSE: Duration = Duration::from_millis(50);

/// A token or a secret may stand in a file for long after its end, while there is no other.
const ANY_AGE: Duration = Duration::from_hours(1000);

/// Starts the reader of the files.
pub(super) fn start(folder: &Path, truth: &Truth, ledger: &Arc<Ledger>, tasks: &mut JoinSet<()>) {
    let (folder, truth, ledger) = (folder.join("disk"), truth.clone(), Arc::clone(ledger));
    tasks.spawn(async move {
        for number in 0.. {
            tokio::time::sleep(PAUSE).await;
            let checked = if number % 2 == 0 {
                read_sink(&folder, &session(number / 2 % VAULT_SESSIONS), &truth).await
            } else {
                read_template(&folder, number / 2 % TEMPLATES, &truth, now(), ANY_AGE)
            };
            match checked {
                Ok(()) => ledger.good(CLASS),
                Err(error) => ledger.wrong(format!("{CLASS}: {error}")),
            }
        }
    });
}

async fn read_sink(folder: &Path, name: &str, truth: &Truth) -> Result<(), String> {
    let text = read(&folder.join(format!("{name}.token")))?;
    truth.check_token(name, &text, now(), ANY_AGE).await
}

fn read_template(
    folder: &Path,
    number: usize,
    truth: &Truth,
    requested_at: Instant,
    age: Duration,
) -> Result<(), String> {
    let path = folder.join(format!("t{number:02}"));
    let text = read(&path)?;
    let fields: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}: {text}", path.display()))?;
    truth.check(&session(number % VAULT_SESSIONS), &fields, requested_at, age)
}

fn read(path: &PathBuf) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Error unless each sink holds its session's newest token, and each template and the child a version that is not older than `age`.
pub(super) fn are_newest(folder: &Path, truth: &Truth, age: Duration) -> Result<(), String> {
    let socket = folder.join("api.sock");
    for number in 0..SESSIONS {
        let name = session(number);
        let (status, body) = crate::harness::binary::ask(&socket, "GET", &format!("/agent/v1/token?session={name}"))?;
        let body: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        let sink = read(&folder.join(format!("disk/{name}.token")))?;
        if status != 200 || body["token"] != sink.as_str() {
            return Err(format!("the sink of {name} does not hold the served token ({status})"));
        }
    }
    for number in 0..TEMPLATES {
        read_template(&folder.join("disk"), number, truth, now(), age)?;
    }
    read_child(folder, truth, age)
}

/// The newest child got a version that is not older than `age`, and runs.
fn read_child(folder: &Path, truth: &Truth, age: Duration) -> Result<(), String> {
    let text = read(&folder.join("children"))?;
    let line = text.lines().last().ok_or("no child has run")?;
    let words: Vec<&str> = line.split(' ').collect();
    let [id, owner, version] = words[..] else { return Err(format!("the child got {line:?}")) };
    let filler = super::truth::filler(owner, version.parse().map_err(|_| format!("the child got {line:?}"))?);
    let fields = serde_json::json!({"owner": owner, "version": version, "filler": filler});
    truth.check("s00", &fields, now(), age)?;
    let state = read(&PathBuf::from(format!("/proc/{id}/stat"))).map_err(|_| format!("the child {id} does not run"))?;
    if state.contains(") Z ") { Err(format!("the child {id} has ended")) } else { Ok(()) }
}

/// Process id of the newest child.
pub(super) fn child(folder: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(folder.join("children")).ok()?;
    text.lines().last()?.split(' ').next()?.parse().ok()
}
