//! Describes an evaluation in the words that every view of it uses. Pure.

use super::document::ActivityKind;
use super::evaluate::{ReportItem, RunningCall, StatusState, StepKind};
use crate::error_code::ErrorCode;
use crate::time_format::format_span;

impl ReportItem {
    /// Describes the reason of a state other than OK, with the code of its error.
    pub fn describe_reason(&self) -> Option<String> {
        Some(ErrorCode::tag(self.code.as_ref(), self.reason.as_deref()?))
    }

    /// Describes how long the state has lasted, what happens now, and what comes next.
    pub fn describe_progress(&self) -> String {
        let lasted = self.for_seconds.map(|seconds| {
            format!("{} for {}", if self.state == StatusState::Down { "down" } else { "at risk" }, format_span(seconds))
        });
        let now = self.now.as_ref().map(describe_call);
        let next = self.next.map(|next| {
            let span = format_span(next.in_seconds);
            match next.kind {
                StepKind::Renew => format!("renews in {span}"),
                StepKind::Login => format!("next login in {span}"),
                StepKind::Retry => format!("retries in {span}"),
            }
        });
        [lasted, now, next].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

fn describe_call(call: &RunningCall) -> String {
    let doing = match call.activity {
        ActivityKind::Proof => "getting an identity token",
        ActivityKind::Login => "logging in",
        ActivityKind::Renewal => "renewing",
        ActivityKind::Lookup => "looking the token up",
        ActivityKind::Other => "calling the server",
    };
    let gives_up = call.gives_up_after_seconds.map(|after| format!(", gives up after {}", format_span(after)));
    format!("{doing} for {}{}", format_span(call.for_seconds), gives_up.unwrap_or_default())
}

/// Returns the name of a product of the platform by its word in the status.
pub fn product_name(product: &str) -> &str {
    match product {
        "hosted" => "HCP Terraform",
        "self-managed" => "Terraform Enterprise",
        other => other,
    }
}

/// Returns the verb for the last success of a component.
pub fn update_verb(component: &str) -> &'static str {
    match component.split('/').next() {
        _ if component == "gateway/terraform_config_file" => "written",
        Some("sink" | "template" | "certificate") => "written",
        Some("process") => "started",
        Some("credential") => "read",
        Some("derived_token") => "created",
        _ => "loaded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_has_the_name_that_its_maker_gives_it() {
        assert_eq!(
            ["hosted", "self-managed", "other"].map(product_name),
            ["HCP Terraform", "Terraform Enterprise", "other"]
        );
    }

    #[test]
    fn a_success_has_the_verb_of_its_component() {
        let check = |component: &str, expected: &str| assert_eq!(update_verb(component), expected, "{component}");
        check("sink/a", "written");
        check("gateway/terraform_config_file", "written");
        check("gateway/token", "loaded");
        check("derived_token/sink/a", "created");
    }
}
