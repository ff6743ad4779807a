use super::*;
use crate::check_result::{CheckStatus, Progress};

#[test]
fn an_agent_of_another_release_and_each_component_that_is_not_ready_are_noted() {
    let status = serde_json::json!({
        "version": "0.0.1", "ready": false, "reload_error": "line 3",
        "components": {
            "session/web": { "ready": false, "required": true, "reason": "login refused", "code": "KW-1102" },
            "sink/token": { "ready": false, "required": false, "reason": "no token" },
            "listener/api": { "ready": true, "required": true },
        },
    });
    let agent = RunningAgent { process: AgentProcess::Id(7), status, metrics: String::new() };
    let mut steps = Steps::new("agent", None, &Progress::default());
    record_agent(Some(&Ok(Some(agent))), "keyward@web.service", &mut steps);
    let results = steps.into_results();
    assert_eq!(results.last().unwrap().fix.as_deref(), Some("systemctl restart keyward@web"));
    let found: Vec<_> = results.iter().map(|result| (result.status, result.code.map(ErrorCode::number))).collect();
    let failed = CheckStatus::Failed;
    let warning = CheckStatus::Warning;
    assert_eq!(found, [(failed, Some(1102)), (warning, Some(1804)), (failed, None), (warning, Some(1910))]);
}

#[test]
fn the_remedy_of_a_failed_reload_is_a_restart_if_the_status_says_so() {
    for (needs_restart, expected) in [
        (true, "sudo -u keyward keyward check --host, then systemctl restart keyward"),
        (false, "sudo -u keyward keyward check --host, then systemctl reload keyward"),
    ] {
        let status = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "ready": true,
            "reload_error": "line 3",
            "reload_needs_restart": needs_restart,
        });
        let agent = RunningAgent { process: AgentProcess::Unknown, status, metrics: String::new() };
        let mut steps = Steps::new("agent", None, &Progress::default());
        record_agent(Some(&Ok(Some(agent))), "keyward.service", &mut steps);
        let results = steps.into_results();
        let reload = results.iter().find(|result| result.step == "reload").unwrap();
        assert_eq!(reload.fix.as_deref(), Some(expected));
    }
}

#[test]
fn a_sandbox_that_is_off_or_incomplete_is_a_warning() {
    let check = |sandbox: Value, expected: Option<Result<&str, &str>>| {
        let mut steps = Steps::new("agent", None, &Progress::default());
        if let Some(result) = check_sandbox(&sandbox, "keyward") {
            steps.record("sandbox", result);
        }
        let results = steps.into_results();
        let text = |result: &'_ CheckResult| match result.status {
            CheckStatus::Ok => Ok(result.message.clone()),
            _ => Err(result.message.clone()),
        };
        let found = results.first().map(text);
        assert_eq!(found, expected.map(|expected| expected.map(str::to_owned).map_err(str::to_owned)), "{sandbox}");
    };
    let sandbox = |mode: &str, missing: &[&str]| serde_json::json!({ "mode": mode, "parts": ["files", "ports"], "missing": missing });
    check(Value::Null, None);
    check(sandbox("enforce", &[]), Some(Ok("the agent's sandbox is complete: files, ports")));
    let mut denied = sandbox("enforce", &[]);
    denied["denied_replacements"] = serde_json::json!(["/tmp/a", "/tmp/b"]);
    check(denied, Some(Err("the agent's sandbox denies files that replace these: /tmp/a, /tmp/b")));
    check(sandbox("best_effort", &["a", "b"]), Some(Err("the agent's sandbox is incomplete: a; b")));
    let off = "the agent runs without its sandbox (agent.sandbox is \"off\")";
    check(sandbox("off", &[]), Some(Err(off)));
}
