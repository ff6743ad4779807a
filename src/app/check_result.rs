//! Results of checks (`check --online`, `doctor`): one line each, with error code and remedy.

use std::fmt;
use std::sync::Arc;

use keyward_telemetry::error_code::ErrorCode;

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CheckResult {
    /// Part of the configuration or of the machine, such as `session`, `gateway` or `unit`.
    pub part: &'static str,
    /// Name of the part, such as the session's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the check, such as `dns` or `login`.
    pub step: String,
    /// Outcome.
    pub status: CheckStatus,
    /// Result for people, or the error.
    #[serde(rename = "found")]
    pub message: String,
    /// Code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// Remedy: a command or a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// As it should be.
    Ok,
    /// Not checked; `message` has the reason.
    Skipped,
    /// Works, but probably not as intended or not for long.
    Warning,
    /// Does not work.
    Failed,
}

impl CheckResult {
    /// True unless the check failed.
    pub fn is_ok(&self) -> bool {
        self.status != CheckStatus::Failed
    }

    /// Returns the subject for people: `session web`, `gateway`.
    pub fn subject(&self) -> String {
        self.name.as_ref().map_or_else(|| self.part.to_owned(), |name| format!("{} {name}", self.part))
    }

    /// Returns the message with the error code appended.
    pub fn describe(&self) -> String {
        ErrorCode::tag(self.code, &self.message)
    }
}

/// Result of one check: message for people, or the problem.
pub(crate) type StepResult = Result<String, Problem>;

/// Problem that a check found: a failure, a warning, or a skipped check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    status: CheckStatus,
    code: Option<ErrorCode>,
    message: String,
    fix: Option<String>,
}

impl Problem {
    /// Creates a failure. Without [`Problem::fix`], the remedy of the error code is shown.
    pub(crate) fn new(code: impl Into<Option<ErrorCode>>, message: impl Into<String>) -> Self {
        Self { status: CheckStatus::Failed, code: code.into(), message: message.into(), fix: None }
    }

    /// Creates the result of something that was not checked.
    pub(crate) fn skipped(message: impl Into<String>) -> Self {
        Self { status: CheckStatus::Skipped, code: None, message: message.into(), fix: None }
    }

    /// Turns the problem into a warning.
    pub(crate) fn warning(mut self) -> Self {
        self.status = CheckStatus::Warning;
        self
    }

    /// Sets the remedy.
    pub(crate) fn with_remedy(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Prepends a string to the message.
    pub(crate) fn with_prefix(mut self, before: &str) -> Self {
        self.message.insert_str(0, before);
        self
    }
}

/// Reports the names of checks that have ended, for a line on the terminal. Clones share it.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<ReportProgress>>);

type ReportProgress = dyn Fn(&str) + Send + Sync;

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

impl Progress {
    /// Calls `report` with each check that has ended.
    pub fn new(report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
    }

    fn report(&self, result: &CheckResult) {
        if let Some(report) = &self.0 {
            report(&format!("{}: {}", result.subject(), result.step));
        }
    }
}

/// Collects the results of one part's checks.
#[derive(Debug)]
pub(crate) struct Steps {
    part: &'static str,
    name: Option<String>,
    progress: Progress,
    results: Vec<CheckResult>,
}

impl Steps {
    /// Creates a collection without results.
    pub(crate) fn new(part: &'static str, name: Option<&str>, progress: &Progress) -> Self {
        Self { part, name: name.map(str::to_owned), progress: progress.clone(), results: Vec::new() }
    }

    /// Adds a result; returns false for a failure.
    pub(crate) fn record(&mut self, step: impl Into<String>, result: StepResult) -> bool {
        let part = self.part;
        let name = self.name.clone();
        let step = step.into();
        let result = match result {
            Ok(message) => CheckResult { part, name, step, status: CheckStatus::Ok, message, code: None, fix: None },
            Err(Problem { status, code, message, fix }) => {
                let fix = fix.or_else(|| code.map(|code| code.explain().remedy.to_owned()));
                CheckResult { part, name, step, status, message, code, fix }
            }
        };
        self.progress.report(&result);
        let is_ok = result.is_ok();
        self.results.push(result);
        is_ok
    }

    /// Adds a result for each problem, or one success if there is none.
    pub(crate) fn record_all(&mut self, step: &str, problems: Vec<Problem>, message: impl Into<String>) {
        if problems.is_empty() {
            self.record(step, Ok(message.into()));
        }
        for problem in problems {
            self.record(step, Err(problem));
        }
    }

    /// Returns the results.
    pub(crate) fn into_results(self) -> Vec<CheckResult> {
        self.results
    }
}
