//! The emulated platform's tokens: their number per owner, the right to create them, and their end.

use std::time::Duration;

use http::Method;
use keyward_emulators::platform::{Edition, PlatformOptions};
use keyward_machine::clock::{Clock, TestClock};
use serde_json::{Value, json};

use crate::harness::platform::{Emulated, text};

const ORG: &str = "/api/v2/organizations/example";

/// A platform with a team and an agent pool.
struct Owners {
    it: Emulated,
    team: String,
    pool: String,
    user: String,
}

impl Owners {
    async fn start() -> Self {
        let it = Emulated::start();
        let team = it.make(&format!("{ORG}/teams"), json!({"name": "ops"})).await;
        let pool = it.make(&format!("{ORG}/agent-pools"), json!({"name": "pool"})).await;
        let user = text(&it.get("/api/v2/account/details").await.with(200)["data"]["id"]);
        Self { it, team, pool, user }
    }

    /// Paths where tokens are created; true if a second one keeps the first; true if an expiry can be set.
    fn kinds(&self) -> [(String, bool, bool); 6] {
        let Self { team, pool, user, .. } = self;
        [
            (format!("/api/v2/users/{user}/authentication-tokens"), true, true),
            (format!("/api/v2/teams/{team}/authentication-tokens"), true, true),
            (format!("/api/v2/teams/{team}/authentication-token"), false, true),
            (format!("{ORG}/authentication-token"), false, true),
            (format!("{ORG}/authentication-token?token=audit-trails"), false, true),
            (format!("/api/v2/agent-pools/{pool}/authentication-tokens"), true, false),
        ]
    }

    /// Returns true if the emulator accepts a token.
    async fn knows(&self, token: &str) -> bool {
        self.it.send(Method::GET, "/api/v2/nothing", Some(token), None).await.status.as_u16() == 404
    }
}

#[tokio::test]
async fn only_single_tokens_replace_the_previous_one() {
    let owners = Owners::start().await;
    for (path, both, can_end) in owners.kinds() {
        let mut made = Vec::new();
        for description in ["one", "two"] {
            let attributes = json!({"description": description, "expired-at": "2100-01-02T03:04:05.000Z"});
            let token = owners.it.post(&path, attributes).await.with(201)["data"].take();
            assert_eq!(token["type"], "authentication-tokens", "{path}");
            let ends = if can_end { json!("2100-01-02T03:04:05Z") } else { Value::Null };
            assert_eq!(token["attributes"]["expired-at"], ends, "{path}");
            made.push(token);
        }
        let known = [
            owners.knows(&text(&made[0]["attributes"]["token"])).await,
            owners.knows(&text(&made[1]["attributes"]["token"])).await,
        ];
        assert_eq!(known, [both, true], "{path}");
        let one = format!("/api/v2/authentication-tokens/{}", text(&made[1]["id"]));
        let response = owners.it.get(&one).await.with(200);
        assert!(response["data"]["attributes"]["token"].is_null(), "the token itself is in the first answer alone");
        owners.it.delete(&one).await.with(204);
        assert!(!owners.knows(&text(&made[1]["attributes"]["token"])).await, "{path}");
    }
}

#[tokio::test]
async fn a_teams_tokens_are_distinguished_by_description_and_listed_without_their_secrets() {
    let owners = Owners::start().await;
    let it = &owners.it;
    let path = format!("/api/v2/teams/{}/authentication-tokens", owners.team);
    let token = it.post(&path, json!({"description": "a"})).await.with(201);
    assert!(it.post(&path, json!({"description": "a"})).await.refused(422).contains("already been taken"));
    assert!(it.post(&path, json!({})).await.refused(422).contains("can't be blank"));
    assert!(
        it.post(&path, json!({"description": "c", "expired-at": "soon"})).await.refused(422).contains("valid date")
    );
    it.post(&format!("/api/v2/teams/{}/authentication-token", owners.team), json!({})).await.with(201);
    let other = it.make(&format!("{ORG}/teams"), json!({"name": "another"})).await;
    it.post(&format!("/api/v2/teams/{other}/authentication-token"), json!({})).await.with(201);
    let list = async |query: &str| {
        let listed = it.get(&format!("{ORG}/team-tokens{query}")).await.with(200);
        let tokens = listed["data"].as_array().unwrap().clone();
        assert!(tokens.iter().all(|token| token["attributes"]["token"].is_null()), "{listed}");
        tokens.iter().map(|token| text(&token["relationships"]["team"]["data"]["id"])).collect::<Vec<_>>()
    };
    assert_eq!(list("").await, [&*owners.team, &owners.team, &other]);
    assert_eq!(list("?q=ano").await, [&*other]);
    assert_eq!(list("?sort=team-name").await, [&*other, &owners.team, &owners.team]);
    assert_eq!(list("?sort=-team-name").await, [&*owners.team, &owners.team, &other]);

    // A used token shows its last use; it ends with its team.
    let text_of = text(&token["data"]["attributes"]["token"]);
    assert!(owners.knows(&text_of).await);
    let response = it.get(&format!("/api/v2/authentication-tokens/{}", text(&token["data"]["id"]))).await.with(200);
    assert!(response["data"]["attributes"]["last-used-at"].is_string(), "{response}");
    it.delete(&format!("/api/v2/teams/{}", owners.team)).await.with(204);
    assert!(!owners.knows(&text_of).await);
}

#[tokio::test]
async fn hidden_resources_are_answered_with_404() {
    let owners = Owners::start().await;
    let it = &owners.it;
    it.post("/api/v2/organizations", json!({"name": "second"})).await.with(201);
    let mut tokens = Vec::new();
    for (path, ..) in owners.kinds() {
        tokens.push(text(&it.post(&path, json!({"description": "x"})).await.with(201)["data"]["attributes"]["token"]));
    }
    let sees = async |token: &str, path: &str| {
        let status = it.send(Method::GET, path, Some(token), None).await.status.as_u16();
        assert!([200, 404].contains(&status), "{path}: {status}");
        status == 200
    };
    let expected = [[true, true], [true, false], [true, false], [true, false], [false, false], [false, false]];
    for (token, expected) in tokens.iter().zip(expected) {
        let statuses = [sees(token, ORG).await, sees(token, "/api/v2/organizations/second").await];
        assert_eq!(statuses, expected);
    }
    // A user's tokens are the user's own; the others answer as a service user.
    let of_user = format!("/api/v2/users/{}/authentication-tokens", owners.user);
    assert!(sees(&tokens[0], &of_user).await && !sees(&tokens[1], &of_user).await && !sees(&tokens[3], &of_user).await);
    for (token, kind) in [(&tokens[2], "teams"), (&tokens[3], "organizations")] {
        let whose = it.send(Method::GET, "/api/v2/account/details", Some(token), None).await.with(200);
        assert_eq!(whose["data"]["relationships"]["authenticated-resource"]["data"]["type"], kind);
        assert_eq!(whose["data"]["attributes"]["is-service-account"], true);
    }
}

#[tokio::test]
async fn editions_differ_in_their_kinds_of_tokens_and_in_token_expiry() {
    let owners = Owners::start().await;
    let it = &owners.it;
    let edition = |release: &str| it.platform.faults().edition(Edition::SelfManaged { release: release.to_owned() });
    let audit = format!("{ORG}/authentication-token?token=audit-trails");
    it.post(&audit, json!({})).await.with(201);
    edition("v202304-1");
    it.post(&audit, json!({})).await.with(404);
    let path = format!("{ORG}/authentication-token");
    let ends = async || {
        let attributes = json!({"expired-at": "2100-01-02T03:04:05.000Z"});
        it.post(&path, attributes).await.with(201)["data"]["attributes"]["expired-at"].is_string()
    };
    assert!(!ends().await);
    edition("v202305-1");
    assert!(ends().await);
    it.get(&path).await.with(200);
    it.delete(&path).await.with(204);
    it.get(&path).await.with(404);
}

#[tokio::test(start_paused = true)]
async fn tokens_expire_and_can_be_revoked_by_fault_injection() {
    let clock = Clock::Test(TestClock::starting_at(std::time::SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)));
    let it = Emulated::with(PlatformOptions { clock, ..PlatformOptions::default() });
    let attributes = json!({"expired-at": "2027-01-15T08:01:00Z"});
    let made = it.post(&format!("{ORG}/authentication-token"), attributes).await.with(201);
    let token = text(&made["data"]["attributes"]["token"]);
    let knows = async || it.send(Method::GET, ORG, Some(&token), None).await.status.as_u16();
    assert_eq!(
        (text(&made["data"]["attributes"]["created-at"]), knows().await),
        ("2027-01-15T08:00:00Z".to_owned(), 200)
    );
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(knows().await, 401);
    assert!(it.platform.faults().revoke(&it.first.id) && !it.platform.faults().revoke(&it.first.id));
    it.get(ORG).await.with(401);
}
