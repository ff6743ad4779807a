//! Keys of the process: logs, telemetry, and tasks of its service manager.

use super::input::Block;
use super::output::{Document, Outcome};

pub(super) fn read(top: &mut Block<'_>, document: &mut Document) {
    if let Some(level) = top.take("log_level") {
        let word = level.text().unwrap_or_default().to_ascii_lowercase();
        let log_level = match word.as_str() {
            "trace" | "debug" | "info" | "warn" | "error" => Some(word.as_str()),
            "err" => Some("error"),
            "notice" => Some("info"),
            "warning" => Some("warn"),
            _ => None,
        };
        match log_level {
            Some(log_level) => {
                document.section("log").text("level", log_level);
                level.record_kept("log.level");
            }
            None => level.not_supported("not a log level"),
        }
    }
    if let Some(format) = top.take("log_format") {
        match format.text() {
            Some("json") => {
                document.section("log").text("format", "json");
                format.record_kept("log.format");
            }
            Some("standard") | None => {
                document.section("log").text("format", "text");
                format.record_kept("log.format");
            }
            Some(_) => format.not_supported("expected \"standard\" or \"json\""),
        }
    }
    let files =
        ["log_file", "log_rotate_bytes", "log_rotate_duration", "log_rotate_max_files", "log_path", "log_rotate"];
    top.drop_keys(&files, "logs go to standard error, for the journal or the container runtime");
    top.drop_keys(&["disable_mlock"], "secrets stand in locked memory of their own");
    top.drop_keys(&["pid_file"], "the service manager tracks the process");
    if let Some(exit) = top.take("exit_after_auth") {
        match exit.flag() {
            Some(false) => exit.record_kept("keeps running"),
            _ => {
                exit.record_changed("use the flag: `keyward run --exit-after-auth`");
            }
        }
    }
    let idle = ["disable_idle_connections", "disable_keep_alives"];
    top.drop_keys(&idle, "connections are reused, and closed when idle");
    drop_telemetry(top);
}

fn drop_telemetry(top: &mut Block<'_>) {
    if let Some(mut telemetry) = top.block("telemetry") {
        telemetry.record(Outcome::Changed, "a listener of kind = \"health\" serves /metrics for Prometheus");
        let dropped = ["prometheus_retention_time", "disable_hostname", "metrics_prefix", "usage_gauge_period"];
        telemetry.drop_keys(&dropped, "the metrics have their own names, see docs/reference/metrics.md");
        let sinks = [
            "statsd_address",
            "statsite_address",
            "dogstatsd_addr",
            "dogstatsd_tags",
            "stackdriver_project_id",
            "stackdriver_location",
            "stackdriver_namespace",
            "stackdriver_debug_logs",
            "circonus_api_token",
            "circonus_api_app",
            "circonus_api_url",
        ];
        telemetry.drop_keys(&sinks, "metrics are scraped, not pushed");
        telemetry.finish();
    }
}
