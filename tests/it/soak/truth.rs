//! Correct responses: versions of the secrets with their times, and owners and ends of the tokens.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyward_emulators::secrets::{Role, Secrets};
use keyward_machine::secret_string::SecretString;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::client::now;
use super::plan::{VAULT_SESSIONS, session};

/// Versions of a secret that are remembered: more than any response may be old.
const VERSIONS: usize = 64;

/// A version of a secret.
#[derive(Debug, Clone, Copy)]
struct Version {
    number: u64,
    /// End of its write; `None` while that lasts.
    written: Option<Instant>,
}

/// Checks fields of a secret, of which these are the last versions, that were asked for at `asked` and may be as old as `age` then.
fn check(list: &[Version], owner: &str, fields: &Value, requested_at: Instant, age: Duration) -> Result<(), String> {
    let text = |name: &str| fields[name].as_str().unwrap_or_default();
    if text("owner") != owner {
        return Err(format!("{owner} got the secret of {:?}", text("owner")));
    }
    let number: u64 = text("version").parse().map_err(|_| format!("{owner} got no version: {fields}"))?;
    if text("filler") != filler(owner, number) {
        return Err(format!("{owner} got a secret that is not whole: {fields}"));
    }
    let at = list.iter().position(|version| version.number == number);
    let at = at.ok_or_else(|| format!("{owner} got version {number}, which is long gone or never was"))?;
    let replaced = list.get(at + 1).and_then(|next| next.written);
    match replaced.and_then(|replaced| requested_at.checked_duration_since(replaced)) {
        Some(old) if old > age => Err(format!("{owner} got version {number}, {old:?} after its replacement")),
        _ => Ok(()),
    }
}

/// A token as the server has it.
#[derive(Debug, Clone)]
struct KnownToken {
    owner: String,
    end: Instant,
    dead: bool,
}

#[derive(Clone)]
pub(super) struct Truth {
    pub(super) secrets: Secrets,
    http: reqwest::Client,
    root: Arc<Mutex<SecretString>>,
    versions: Arc<Mutex<BTreeMap<String, Vec<Version>>>>,
    tokens: Arc<Mutex<HashMap<String, KnownToken>>>,
    /// While a revocation is under way of which the agent has not heard, and a second after.
    revoking: Arc<Mutex<Option<Instant>>>,
    /// Time in which the agent stops giving revoked tokens once it was told to look at them.
    grace: Duration,
}

/// Text of a version: whole, or wrong.
pub(super) fn filler(owner: &str, number: u64) -> String {
    format!("{owner}.{number}.").repeat(32)
}

/// A token of the test's own, without an end.
fn root(secrets: &Secrets) -> SecretString {
    secrets.token(&Role { ttl: Duration::ZERO, max_ttl: None, ..Role::default() })
}

impl Truth {
    pub(super) fn new(secrets: Secrets, http: reqwest::Client, openbao: bool) -> Self {
        let root = Arc::new(Mutex::new(root(&secrets)));
        // A token that OpenBao refuses may also be one that is used from a wrong address: it is given until a login replaces it.
        let grace = Duration::from_secs(if openbao { 10 } else { 1 });
        Self { secrets, http, root, grace, versions: Arc::default(), tokens: Arc::default(), revoking: Arc::default() }
    }

    /// Writes the next version of a session's secret, as somebody else would.
    pub(super) async fn write(&self, owner: &str) {
        let number = {
            let mut versions = self.versions.lock();
            let list = versions.entry(owner.to_owned()).or_default();
            let number = list.last().map_or(1, |last| last.number + 1);
            list.push(Version { number, written: None });
            let old = list.len().saturating_sub(VERSIONS);
            list.drain(..old);
            number
        };
        let url = format!("{}/v1/secret/data/{owner}/value", self.secrets.url());
        let data = json!({"owner": owner, "version": number.to_string(), "filler": filler(owner, number)});
        let root = self.root.lock().expose_secret().to_owned();
        let request = self.http.post(url).header("x-vault-token", root);
        // A canned error of the emulated Vault hits this write too: the version is then never seen.
        let written =
            request.json(&json!({ "data": data })).send().await.is_ok_and(|response| response.status().is_success());
        let mut versions = self.versions.lock();
        let list = versions.get_mut(owner).unwrap();
        if written {
            list.iter_mut()
                .filter(|version| version.number == number)
                .for_each(|version| version.written = Some(now()));
        } else {
            list.retain(|version| version.number != number);
        }
    }

    /// As [`check`].
    pub(super) fn check(
        &self,
        owner: &str,
        fields: &Value,
        requested_at: Instant,
        age: Duration,
    ) -> Result<(), String> {
        let versions = self.versions.lock();
        check(versions.get(owner).map_or(&[], Vec::as_slice), owner, fields, requested_at, age)
    }

    /// Checks a token that was got for a session: it is that session's, and has not ended more than `over` before it was asked for.
    pub(super) async fn check_token(
        &self,
        owner: &str,
        token: &str,
        requested_at: Instant,
        over: Duration,
    ) -> Result<(), String> {
        if !self.tokens.lock().contains_key(token) {
            let found = self.owner(token).await;
            // The look-up failed for a fault's sake: the next response with this token is checked.
            if found.is_none() && self.secrets.remaining(token).is_some() {
                return Ok(());
            }
            let known = KnownToken { owner: found.unwrap_or_default(), end: now(), dead: false };
            self.tokens.lock().insert(token.to_owned(), known);
        }
        let left = self.secrets.remaining(token);
        let mut tokens = self.tokens.lock();
        if tokens.len() > 4000 {
            let old = now().checked_sub(Duration::from_mins(10)).unwrap_or_else(now);
            tokens.retain(|_, entry| entry.end > old);
        }
        let Some(known) = tokens.get_mut(token) else { return Ok(()) };
        if let Some(left) = left {
            known.end = now().checked_add(left).unwrap_or_else(|| now() + Duration::from_hours(1));
        } else if !known.dead {
            (known.dead, known.end) = (true, known.end.min(now()));
        }
        // One that was dead when it was first seen has no known owner.
        if known.owner != owner && !(known.dead && known.owner.is_empty()) {
            return Err(format!("{owner} got the token of {:?}", known.owner));
        }
        let late = requested_at.saturating_duration_since(known.end);
        if known.dead && late > over && !self.is_revoking(requested_at) {
            return Err(format!("{owner} got a token {late:?} after its end"));
        }
        Ok(())
    }

    /// Session of a token, by its policy; `None` if the server does not know the token.
    async fn owner(&self, token: &str) -> Option<String> {
        let url = format!("{}/v1/auth/token/lookup-self", self.secrets.url());
        let response = self.http.get(url).header("x-vault-token", token).send().await.ok()?;
        let body: Value = serde_json::from_slice(&response.bytes().await.ok()?).ok()?;
        let mut policies = body["data"]["policies"].as_array()?.iter().filter_map(Value::as_str);
        policies.find(|policy| *policy != "default").map(str::to_owned)
    }

    /// Revokes every token but the test's own; until [`Truth::revoked`] the agent may not know.
    pub(super) fn revoke(&self) {
        *self.revoking.lock() = Some(now() + Duration::from_hours(1));
        self.secrets.faults().revoke_all();
        *self.root.lock() = root(&self.secrets);
    }

    /// The agent has been told to look at its tokens: soon none of the revoked ones may be served.
    pub(super) fn revoked(&self) {
        *self.revoking.lock() = Some(now() + self.grace);
    }

    fn is_revoking(&self, requested_at: Instant) -> bool {
        self.revoking.lock().is_some_and(|until| requested_at < until)
    }

    /// Writes the first version of each secret.
    pub(super) async fn write_all(&self) {
        for number in 0..VAULT_SESSIONS {
            self.write(&session(number)).await;
        }
    }
}

#[test]
fn a_secret_of_another_one_that_is_cut_and_one_that_is_too_old_are_wrong() {
    let requested_at = now();
    let ago = |seconds: u64| requested_at.checked_sub(Duration::from_secs(seconds));
    let version = |number, written| Version { number, written };
    let list = [version(3, ago(30)), version(4, ago(20)), version(5, ago(5)), version(6, None)];
    let found = |owner: &str, number: u64, cut: usize| {
        let filler = filler("s01", number);
        let fields = json!({"owner": owner, "version": number.to_string(), "filler": filler[cut..]});
        check(&list, "s01", &fields, requested_at, Duration::from_secs(10))
            .map_err(|error| error.replace(char::is_numeric, ""))
    };
    for number in [4, 5, 6] {
        assert_eq!(found("s01", number, 0), Ok(()), "{number}");
    }
    let wrong = [found("s02", 5, 0), found("s01", 5, 1), found("s01", 3, 0), found("s01", 2, 0), found("s01", 7, 0)];
    assert!(wrong.iter().all(Result::is_err), "{wrong:?}");
    assert!(check(&list, "s01", &json!({}), requested_at, Duration::MAX).is_err());
}
