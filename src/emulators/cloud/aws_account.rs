//! The emulated AWS account: its machine, and the temporary credentials of the machine's role.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use keyward_machine::secret_string::SecretString;
use parking_lot::Mutex;

use super::identities::random_secret;

/// Names of the emulated AWS account and its machine, which are the same for all.
#[derive(Debug, Clone, Copy)]
pub struct AwsNames;

impl AwsNames {
    /// Number of the account.
    pub const ACCOUNT: &str = "111122223333";
    /// Region of the machine.
    pub const REGION: &str = "eu-west-1";
    /// Id of the machine.
    pub const INSTANCE: &str = "i-0123456789abcdef0";
    /// Role of the machine's instance profile.
    pub const ROLE: &str = "keyward-vm";
    /// Unique id of the role.
    pub(crate) const ROLE_ID: &str = "AROA1234567890EXAMPLE";

    /// ARN of the role, as a server's bound names it.
    pub fn role_arn() -> String {
        format!("arn:aws:iam::{}:role/{}", Self::ACCOUNT, Self::ROLE)
    }

    /// ARN of the machine's session of the role, as STS names it.
    pub fn session_arn() -> String {
        format!("arn:aws:sts::{}:assumed-role/{}/{}", Self::ACCOUNT, Self::ROLE, Self::INSTANCE)
    }
}

/// Temporary credentials.
#[derive(Debug, Clone)]
pub(super) struct TemporaryCredentials {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: SecretString,
    pub(super) session_token: SecretString,
    pub(super) issued: SystemTime,
    pub(super) expires: SystemTime,
}

/// Credentials and sessions that were issued.
#[derive(Debug, Default)]
pub(super) struct AwsAccount {
    credentials: Mutex<Vec<TemporaryCredentials>>,
    /// Ends of the metadata service's session tokens.
    sessions: Mutex<BTreeMap<String, SystemTime>>,
}

impl AwsAccount {
    /// Returns the role's credentials, which are the same until five minutes before their end, as on a real machine.
    pub(super) fn credentials(&self, now: SystemTime, life: Duration) -> Option<TemporaryCredentials> {
        let mut all = self.credentials.lock();
        // Those that ended are kept for a day, so that STS can say that they did.
        all.retain(|one| one.expires + Duration::from_hours(24) > now);
        let fresh =
            |one: &&TemporaryCredentials| one.expires > now + Duration::from_mins(5).min(life / 2) && one.issued <= now;
        if let Some(found) = all.iter().rev().find(fresh) {
            return Some(found.clone());
        }
        let id: String = random_secret()?.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        let made = TemporaryCredentials {
            access_key_id: format!("ASIA{}", id.to_ascii_uppercase()),
            secret_access_key: random_secret()?.into(),
            session_token: random_secret()?.into(),
            issued: now,
            expires: now + life,
        };
        // Bounds the memory.
        if all.len() >= 1000 {
            all.remove(0);
        }
        all.push(made.clone());
        Some(made)
    }

    /// Returns the credentials with this access key id, ended ones too.
    pub(super) fn find(&self, access_key_id: &str) -> Option<TemporaryCredentials> {
        self.credentials.lock().iter().find(|one| one.access_key_id == access_key_id).cloned()
    }

    /// Creates a session of the metadata service.
    pub(super) fn open_session(&self, now: SystemTime, life: Duration) -> Option<String> {
        let token = random_secret()?;
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, end| *end > now);
        if sessions.len() < 10_000 {
            sessions.insert(token.clone(), now + life);
        }
        Some(token)
    }

    /// Returns true for the token of a session that has not ended.
    pub(super) fn is_session(&self, token: &str, now: SystemTime) -> bool {
        self.sessions.lock().get(token).is_some_and(|end| *end > now)
    }
}
