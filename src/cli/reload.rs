//! `keyward reload`: makes the running agent read its configuration again, and reports what it says of it.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::status::StatusDocument;
use keyward_telemetry::time_format::format_duration;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::agent_client::{AgentAddress, AgentError, REQUEST_TIMEOUT};
use super::agent_listener::RequiredListener;
use super::deadline::Deadline;
use super::progress::ProgressLine;
use super::running_process::RunningProcess;
use super::{Exit, print_error, print_error_with_code, print_line};

/// Make the running agent read its configuration again.
#[derive(Debug, Args)]
pub(super) struct Reload {
    #[command(flatten)]
    at: AgentAddress,
    /// Maximum time to wait for the result, such as 30s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Pause between two requests for the result.
const PAUSE: Duration = Duration::from_millis(100);

impl Reload {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let mut process = match RunningProcess::find(&self.at, RequiredListener::LocalApi) {
            Ok(process) => process,
            Err(exit) => return Ok(exit),
        };
        let before = match fetch(&process)? {
            Ok(status) => status,
            Err(error) => {
                print_error(&error.line);
                return Ok(error.exit);
            }
        };
        let pid = before.pid.context("the agent does not report its process id; run `systemctl reload keyward`")?;
        if let Err(exit) = hang_up(pid)? {
            return Ok(exit);
        }
        let deadline = Deadline::after(self.timeout);
        let line = ProgressLine::start("waiting until the agent has read its configuration");
        // The new configuration may serve the status elsewhere.
        let mut may_have_moved = true;
        let after = loop {
            match fetch(&process)? {
                Ok(status) if status.reloads > before.reloads || status.pid != before.pid => break status,
                Err(_) if may_have_moved => {
                    may_have_moved = false;
                    if let Ok(found) = RunningProcess::find(&self.at, RequiredListener::LocalApi) {
                        process = found;
                    }
                }
                Ok(_) | Err(_) => {}
            }
            if deadline.is_over() {
                drop(line);
                let timeout = format_duration(self.timeout);
                print_error(&format!(
                    "process {pid} has not reported the result within {timeout}; `keyward status` shows it, and its log"
                ));
                return Ok(Exit::TimedOut);
            }
            std::thread::sleep(deadline.at_most(PAUSE));
        };
        drop(line);
        if after.pid != before.pid {
            print_error(&format!("process {pid} has ended: another one answers now; `keyward status` shows its state"));
            return Ok(Exit::Failed);
        }
        if let Some(error) = &after.reload_error {
            print_error(&format!("the new configuration is rejected, and the previous one stays in use: {error}"));
            return Ok(Exit::ConfigInvalid);
        }
        print_line(&format!("the agent has reloaded its configuration (pid {pid})"));
        Ok(Exit::Ok)
    }
}

/// Returns a field of `/proc/PID/status`.
fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Returns true if a process has a handler for SIGHUP, which would end it otherwise.
fn catches_hangup(status: &str) -> bool {
    let caught = status_field(status, "SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    caught.is_some_and(|mask| mask & 1 == 1)
}

fn fetch(process: &RunningProcess) -> anyhow::Result<Result<StatusDocument, AgentError>> {
    Ok(match process.fetch_status(REQUEST_TIMEOUT)? {
        Ok(raw) => Ok(serde_json::from_value(raw).context("the response is not the status of an agent")?),
        Err(error) => Err(error),
    })
}

/// Sends SIGHUP to the agent; prints the error if that fails. The kernel decides if this user may.
fn hang_up(pid: u32) -> anyhow::Result<Result<(), Exit>> {
    let not_here = || {
        format!(
            "the agent reports process {pid}, which is no keyward here: it may run in a container; reload it there, or by its service \
             manager"
        )
    };
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // The descriptor keeps the number from another process between the check and the signal.
    let Some(process) = raw.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        print_error(&not_here());
        return Ok(Err(Exit::NotRunning));
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let own = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let name = status_field(&status, "Name:");
    if name != Some("keyward") && name != status_field(&own, "Name:") {
        print_error(&not_here());
        return Ok(Err(Exit::NotRunning));
    }
    if !catches_hangup(&status) {
        let line =
            format!("process {pid} does not reload: only `keyward run` does; restart it, or its configuration stays");
        print_error(&line);
        return Ok(Err(Exit::Failed));
    }
    match pidfd_send_signal(&process, Signal::HUP) {
        Ok(()) => Ok(Ok(())),
        Err(Errno::PERM) => {
            let line = format!(
                "only root and the user of the agent may reload it (pid {pid}): run `sudo keyward reload`, or \
                 `sudo systemctl reload keyward`"
            );
            print_error_with_code(ErrorCode::AgentRefused, &line);
            Ok(Err(Exit::Denied))
        }
        Err(error) => Err(error).with_context(|| format!("cannot send SIGHUP to process {pid}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_handler_gets_no_signal_that_would_end_it() {
        let status = |mask| format!("Name:\tkeyward\nSigQ:\t0/1\nSigCgt:\t{mask}\n");
        assert_eq!(status_field(&status("0"), "Name:"), Some("keyward"));
        assert!(catches_hangup(&status("0000000000004a03")));
        assert!(!catches_hangup(&status("0000000000004a02")));
        assert!(!catches_hangup(""));
    }
}
