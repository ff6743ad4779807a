//! Table tests of the evaluation.
#![expect(clippy::needless_pass_by_value, reason = "statuses are written where they are passed")]

use serde_json::{Value, json};

use super::*;

/// 2026-01-31T09:00:00Z.
const NOW: Timestamp = Timestamp(1_769_850_000);

fn report(status: Value) -> StatusReport {
    evaluate(&serde_json::from_value(status).unwrap(), NOW)
}

/// Evaluates one session, whose component is ready if it serves.
fn session(session: Value) -> ReportItem {
    let ready = session["serving"] == true;
    session_with(session, json!({ "ready": ready, "required": true, "since": "2026-01-31T08:58:00Z" }))
}

fn session_with(session: Value, component: Value) -> ReportItem {
    let mut report = report(json!({ "sessions": { "web": session }, "components": { "session/web": component } }));
    assert_eq!(report.items.len(), 1, "one row for a session and its component");
    report.items.remove(0)
}

fn component(component: Value) -> ReportItem {
    report(json!({ "components": { "sink/token": component } })).items.remove(0)
}

fn good() -> Value {
    json!({
        "serving": true, "obtained": "2026-01-31T08:30:00Z", "expires": "2026-01-31T09:30:00Z",
        "next_step": "renew", "next_step_at": "2026-01-31T09:14:00Z",
    })
}

fn good_but(change: Value) -> Value {
    let mut session = good();
    session.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    session
}

#[track_caller]
fn check(item: &ReportItem, state: StatusState, reason: Option<&str>) {
    assert_eq!((item.state, item.reason.as_deref()), (state, reason), "{item:?}");
}

#[test]
fn a_session_is_ok_while_its_token_is_renewed_in_time() {
    let item = session(good());
    check(&item, StatusState::Ok, None);
    assert_eq!(item.ends_in_seconds, Some(1_800));
    assert_eq!(item.next, Some(ReportedStep { kind: StepKind::Renew, in_seconds: 840 }));
    let endless = json!({ "serving": true, "next_step": "wait" });
    check(&session(endless), StatusState::Ok, None);
    let looked_up = good_but(json!({ "activity": { "kind": "lookup", "since": "2026-01-31T08:59:58Z" } }));
    let item = session(looked_up);
    check(&item, StatusState::Ok, None);
    assert_eq!(item.next.map(|next| next.in_seconds), Some(840), "a look-up delays nothing");
}

#[test]
fn a_session_whose_token_ends_unless_something_changes_is_at_risk() {
    let refused = good_but(json!({
        "expires": "2026-01-31T09:00:35Z", "next_step": "login", "next_step_at": "2026-01-31T09:00:12Z",
        "failures": 3, "last_error": "the login was refused", "last_error_code": "KW-1101",
    }));
    let item = session(refused);
    check(&item, StatusState::AtRisk, Some("the login was refused"));
    assert_eq!((item.ends_in_seconds, item.code.as_deref()), (Some(35), Some("KW-1101")));
    assert_eq!(item.next, Some(ReportedStep { kind: StepKind::Retry, in_seconds: 12 }));

    let nearly_over = "90 % of the lease has passed, and the token is neither renewed nor replaced";
    let last_minutes = good_but(json!({ "expires": "2026-01-31T09:03:00Z", "next_step_at": "2026-01-31T09:01:00Z" }));
    check(&session(last_minutes), StatusState::AtRisk, Some(nearly_over));
    let renewing = good_but(json!({
        "expires": "2026-01-31T09:03:00Z",
        "activity": { "kind": "renewal", "since": "2026-01-31T08:59:50Z", "deadline": "2026-01-31T09:00:05Z" },
    }));
    let item = session(renewing);
    check(&item, StatusState::AtRisk, Some(nearly_over));
    let running = RunningCall { activity: ActivityKind::Renewal, for_seconds: 10, gives_up_after_seconds: Some(15) };
    assert_eq!((item.now, item.next), (Some(running), None));

    let late = "no renewal or login is due before the token ends";
    check(&session(good_but(json!({ "next_step_at": "2026-01-31T09:31:00Z" }))), StatusState::AtRisk, Some(late));
    check(&session(good_but(json!({ "next_step": "wait", "next_step_at": null }))), StatusState::AtRisk, Some(late));
}

#[test]
fn a_session_without_a_usable_token_is_down() {
    let logging_in = json!({
        "serving": false, "next_step": "login", "next_step_at": "2026-01-31T08:59:36Z",
        "activity": { "kind": "login", "since": "2026-01-31T08:59:36Z", "deadline": "2026-01-31T09:01:06Z" },
    });
    let item = session(logging_in);
    check(&item, StatusState::Down, Some("there is no token yet"));
    assert_eq!((item.for_seconds, item.ends_in_seconds, item.next), (Some(120), None, None));
    let running = RunningCall { activity: ActivityKind::Login, for_seconds: 24, gives_up_after_seconds: Some(90) };
    assert_eq!(item.now, Some(running));

    let failed = json!({
        "serving": false, "next_step": "login", "next_step_at": "2026-01-31T09:00:12Z",
        "failures": 2, "last_error": "the login was refused", "last_error_code": "KW-1101",
    });
    let item = session(failed);
    check(&item, StatusState::Down, Some("the login was refused"));
    assert_eq!(item.next, Some(ReportedStep { kind: StepKind::Retry, in_seconds: 12 }));

    let refused =
        json!({ "ready": false, "required": true, "reason": "the server refuses the token", "code": "KW-1301" });
    let item = session_with(good(), refused);
    check(&item, StatusState::Down, Some("the server refuses the token"));
    assert_eq!(item.code.as_deref(), Some("KW-1301"));

    check(
        &session(good_but(json!({ "expires": "2026-01-31T09:00:00Z" }))),
        StatusState::Down,
        Some("the token has expired"),
    );
    let inherited = session_with(json!({ "serving": false }), json!({ "ready": true, "required": true }));
    check(&inherited, StatusState::AtRisk, Some("there is no token yet"));
}

#[test]
fn a_component_is_evaluated_by_readiness_its_previous_result_and_its_warning() {
    check(&component(json!({ "ready": true })), StatusState::Ok, None);
    let failing = json!({
        "ready": false, "reason": "the disk is full", "code": "KW-1403", "since": "2026-01-31T08:59:00Z",
        "next_try": "2026-01-31T09:00:07Z",
    });
    let item = component(failing.clone());
    check(&item, StatusState::Down, Some("the disk is full"));
    assert_eq!((item.code.as_deref(), item.for_seconds), (Some("KW-1403"), Some(60)));
    assert_eq!(item.next, Some(ReportedStep { kind: StepKind::Retry, in_seconds: 7 }));
    let mut previous = failing;
    previous["keeps_previous"] = true.into();
    check(&component(previous), StatusState::AtRisk, Some("the disk is full"));
    let warning = json!({ "reason": "the server does not answer", "code": "KW-1201", "since": "2026-01-31T08:59:30Z" });
    let item = component(json!({ "ready": true, "warning": warning }));
    check(&item, StatusState::AtRisk, Some("the server does not answer"));
    assert_eq!((item.code.as_deref(), item.for_seconds), (Some("KW-1201"), Some(30)));
}

#[test]
fn the_whole_is_as_bad_as_its_worst_required_part() {
    let state = |required: bool, ready: bool| {
        report(json!({ "components": {
            "sink/a": { "ready": true, "required": true },
            "sink/b": { "ready": ready, "required": required },
        } }))
        .state
    };
    assert_eq!(state(true, true), StatusState::Ok);
    assert_eq!(state(true, false), StatusState::Down);
    assert_eq!(state(false, false), StatusState::AtRisk, "the process is ready without it");
    assert_eq!(report(json!({})).state, StatusState::Ok);
    let report = report(json!({ "reload_error": "an unknown key", "components": { "sink/a": { "ready": true } } }));
    assert_eq!(report.state, StatusState::AtRisk);
    assert_eq!(report.items.last().unwrap().component, "configuration");
}

#[test]
fn components_are_listed_along_the_path_of_a_token() {
    let names = ["gateway/token", "listener/local", "process", "sink/b", "sink/a", "template/c", "derived_token/x/y"];
    let components: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!({ "ready": true }))).collect();
    let report = report(json!({ "sessions": { "web": good() }, "components": components }));
    let listed: Vec<&str> = report.items.iter().map(|item| item.component.as_str()).collect();
    let expected = [
        "session/web",
        "derived_token/x/y",
        "sink/a",
        "sink/b",
        "template/c",
        "process",
        "listener/local",
        "gateway/token",
    ];
    assert_eq!(listed, expected);
}

#[test]
fn the_report_as_json_has_the_documented_names() {
    let item = session(good_but(json!({
        "failures": 1, "last_error": "the renewal failed", "last_error_code": "KW-1201",
        "activity": { "kind": "renewal", "since": "2026-01-31T08:59:50Z", "deadline": "2026-01-31T09:00:20Z" },
    })));
    let expected = json!({
        "component": "session/web", "state": "at_risk", "required": true, "reason": "the renewal failed",
        "code": "KW-1201", "ends_in_seconds": 1800,
        "now": { "activity": "renewal", "for_seconds": 10, "gives_up_after_seconds": 30 },
    });
    assert_eq!(serde_json::to_value(item).unwrap(), expected);
}
