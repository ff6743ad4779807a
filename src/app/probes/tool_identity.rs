//! Probes of an identity for tools: a token for each of its resources.

use keyward_agent::identity_tokens::{IdentityTokenOptions, try_token};
use keyward_machine::clock::Clock;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::format_rfc3339;

use super::limits::Limits;
use crate::check_result::{CheckResult, Problem, Progress, Steps};

/// Tries to get a token for each resource of an identity for tools, and for the role of AWS, which is not assumed.
pub async fn check_tool_identity(
    options: &IdentityTokenOptions,
    limits: Limits,
    progress: &Progress,
) -> Vec<CheckResult> {
    let mut steps = Steps::new("identity", Some(&options.name), progress);
    let role = options.aws_role.iter().map(|role| &role.audience);
    for resource in options.resources.iter().chain(role) {
        let obtained = limits.bound(try_token(&options.origin, resource, Clock::System)).await;
        let result = obtained.and_then(|obtained| {
            let problem = |error: keyward_agent::identity::IdentityError| {
                Problem::new(ErrorCode::from(error.kind), error.to_string())
            };
            obtained.map(|end| format!("a token until {}", format_rfc3339(end))).map_err(problem)
        });
        steps.record(format!("token for {resource}"), result);
    }
    steps.into_results()
}
