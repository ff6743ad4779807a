//! Tests of the lines of a status.

use keyward_telemetry::status::evaluate;
use serde_json::{Value, json};

use super::*;

/// 2026-01-31T09:00:00Z.
const NOW: Timestamp = Timestamp(1_769_850_000);

fn lines(status: Value) -> Vec<String> {
    let status: StatusDocument = serde_json::from_value(status).unwrap();
    let report = evaluate(&status, NOW);
    format_status(&status, &report, NOW).iter().map(|line| line.paint(false)).collect()
}

#[test]
fn a_status_is_formatted_with_what_happens_now_and_next() {
    let session = json!({
        "identity": "metadata service", "server": "https://vault.example.com", "role": "web", "policies": ["web"],
        "serving": true, "obtained": "2026-01-31T08:30:00Z", "expires": "2026-01-31T09:00:35Z",
        "failures": 3, "last_error": "the login was refused", "last_error_code": "KW-1101",
        "next_step": "login", "next_step_at": "2026-01-31T09:00:12Z", "last_checked": "2026-01-31T08:56:00Z",
    });
    let starting = json!({
        "identity": "metadata service", "server": "https://vault.example.com", "role": "db",
        "serving": false, "next_step": "login", "next_step_at": "2026-01-31T08:59:36Z",
        "activity": { "kind": "login", "since": "2026-01-31T08:59:36Z", "deadline": "2026-01-31T09:01:06Z" },
    });
    let told = lines(json!({
        "version": "1.2.3", "started_at": "2026-01-31T05:48:00Z", "pid": 812, "ready": false,
        "sessions": { "web": session, "db": starting },
        "components": {
            "session/web": { "ready": true, "required": true },
            "session/db": { "ready": false, "required": true, "since": "2026-01-31T08:58:00Z" },
            "sink/token": { "ready": true, "required": true, "target": "/run/keyward/token", "updated": "2026-01-31T08:19:00Z" },
            "template/conf": {
                "ready": false, "required": true, "reason": "the disk is full", "code": "KW-1403",
                "since": "2026-01-31T08:59:00Z", "next_try": "2026-01-31T09:00:07Z", "target": "/etc/app.conf",
            },
        },
        "platform": { "upstream": "https://app.terraform.io", "product": "hosted", "api_version": "2.6" },
        "callers": { "callers": [{ "name": "web", "connections": 2, "admitted": 7, "refused": 1 }], "unmatched": 3 },
    }));
    let expected = [
        "keyward 1.2.3: DOWN, not ready; up 3 h 12 min, pid 812",
        "DOWN     session/db     there is no token yet",
        "                        down for 2 min; logging in for 24 s, gives up after 90 s",
        "                        logs in to https://vault.example.com by metadata service, role db",
        "AT RISK  session/web    ends in 35 s, 3 failures in a row, the login was refused [KW-1101]",
        "                        retries in 12 s",
        "                        logs in to https://vault.example.com by metadata service, role web, policies web, checked 4 min ago",
        "OK       sink/token     /run/keyward/token, written 41 min ago",
        "DOWN     template/conf  the disk is full [KW-1403]",
        "                        down for 60 s; retries in 7 s",
        "                        /etc/app.conf",
        "platform https://app.terraform.io: HCP Terraform, API 2.6",
        "caller web: 2 connections, 7 requests admitted, 1 refused",
        "no caller: 3 requests refused",
    ];
    for (told, expected) in told.iter().zip(expected) {
        assert_eq!(told, expected);
    }
    assert_eq!(told.len(), expected.len(), "{told:#?}");
}

#[test]
fn a_text_of_a_server_cannot_move_or_colour_the_terminal() {
    let told = lines(json!({
        "components": { "sink/token": { "ready": false, "reason": "\u{1b}[2Jwrong\nnext" } },
    }));
    assert_eq!(told[1], "DOWN     sink/token  \\u{1b}[2Jwrong next");
}

#[test]
fn only_the_state_is_coloured() {
    let line = Line { state: Some(StatusState::AtRisk), text: "session/web".to_owned() };
    assert_eq!(line.paint(true), "\u{1b}[33mAT RISK  \u{1b}[0msession/web");
    assert_eq!(Line::plain("keyward").paint(true), "keyward");
}
