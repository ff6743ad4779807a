//! Browsers that have signed in: in memory, for 15 minutes after the last page that a person opened.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use keyward_credentials::token_bucket::{KeyedBuckets, TokenBucket};
use keyward_machine::clock::{Clock, ClockReading};
use keyward_machine::secret_string::SecretString;
use parking_lot::Mutex;
use zeroize::Zeroizing;

/// Time after which a browser has to sign in again.
pub(super) const LIFETIME: Duration = Duration::from_mins(15);

/// Maximum of signed-in browsers. For a new one, the longest idle one is removed of the user who has the most.
const MAX_SESSIONS: usize = 64;

/// Maximum of signed-in browsers of one user. Users who are not known share theirs.
const MAX_SESSIONS_OF_USER: usize = 16;

/// The prefix binds the cookie to this host and to path `/` (RFC 6265bis, 4.1.3.2).
const COOKIE_NAME: &str = "__Host-keyward";

/// Failed and successful attempts of one user together: another user's guesses must not keep anybody out.
const SIGN_INS: TokenBucket = TokenBucket::full(10, Duration::from_secs(6));

/// Maximum of users whose attempts are counted: one user may have thousands of subordinate ids.
const MAX_USERS: usize = 1024;

/// Maximum of numbers that a browser's rights keep.
const MAX_NUMBERS: usize = 16;

/// Rights of a browser that has signed in.
#[derive(Debug, Clone, Default)]
pub(super) struct BrowserRights {
    /// The listener's key was given.
    pub(super) has_key: bool,
    /// ACL token that was given.
    pub(super) acl_token: Option<SecretString>,
    /// Numbers of the sign-ins, as their events have them.
    pub(super) sign_ins: Vec<u64>,
}

/// Sign-ins of this process on all listeners, counted for the field `sign_in` of their events.
static SIGN_IN_COUNT: AtomicU64 = AtomicU64::new(0);

impl BrowserRights {
    /// Returns true for a browser that has signed in.
    pub(super) fn any(&self) -> bool {
        self.has_key || self.acl_token.is_some()
    }

    /// Numbers a sign-in that adds to these rights. The number is no secret.
    pub(super) fn number_sign_in(&mut self) -> u64 {
        let number = SIGN_IN_COUNT.fetch_add(1, Ordering::Relaxed) + 1;
        // A browser that signs in again and again: older events have left the list.
        if self.sign_ins.len() >= MAX_NUMBERS {
            self.sign_ins.remove(0);
        }
        self.sign_ins.push(number);
        number
    }
}

/// Browsers that have signed in, by the SHA-256 of their cookie.
///
/// Browsers send a cookie to every port of a host (RFC 6265, 8.5), so a server of another user on this machine can get it. It
/// is worth nothing there: a session is for the user whose browser signed in.
#[derive(Debug)]
pub(super) struct BrowserSessions {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sessions: HashMap<[u8; 32], BrowserSession>,
    /// Attempts left, by user.
    sign_ins: KeyedBuckets<Option<u32>>,
}

#[derive(Debug)]
struct BrowserSession {
    rights: BrowserRights,
    /// User of this machine that signed in; `None` for a browser elsewhere, and where the kernel does not report it.
    user: Option<u32>,
    used: ClockReading,
}

impl State {
    /// Removes sessions so that `user` may have one more. Whoever signs in often ends only sessions of its own, until it is
    /// the user with the most.
    fn make_room(&mut self, user: Option<u32>, now: ClockReading) {
        self.sessions.retain(|_, session| now.since(session.used) < LIFETIME);
        let count = |state: &Self, user| state.sessions.values().filter(|session| session.user == user).count();
        while count(self, user) >= MAX_SESSIONS_OF_USER {
            self.remove_longest_idle(user, now);
        }
        while self.sessions.len() >= MAX_SESSIONS {
            let users = self.sessions.values().map(|session| session.user);
            let Some(most) = users.max_by_key(|user| count(self, *user)) else { return };
            self.remove_longest_idle(most, now);
        }
    }

    fn remove_longest_idle(&mut self, user: Option<u32>, now: ClockReading) {
        let of_user = self.sessions.iter().filter(|(_, session)| session.user == user);
        if let Some(key) = of_user.max_by_key(|(_, session)| now.since(session.used)).map(|(key, _)| *key) {
            self.sessions.remove(&key);
        }
    }
}

impl BrowserSessions {
    pub(super) fn new(clock: Clock) -> Self {
        let sign_ins = KeyedBuckets::new(SIGN_INS, MAX_USERS);
        Self { clock, state: Mutex::new(State { sessions: HashMap::new(), sign_ins }) }
    }

    /// Returns the rights of the browser of `user` that sent these headers. `prolong` if a person opened the page.
    pub(super) fn find(&self, headers: &HeaderMap, user: Option<u32>, prolong: bool) -> BrowserRights {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.sessions.retain(|_, session| now.since(session.used) < LIFETIME);
        let session = digest_of(headers).and_then(|digest| state.sessions.get_mut(&digest));
        let Some(session) = session.filter(|session| session.user == user) else {
            return BrowserRights::default();
        };
        if prolong {
            session.used = now;
        }
        session.rights.clone()
    }

    /// Counts an attempt of a user to sign in; users who are not known share theirs.
    ///
    /// # Errors
    /// There were too many; the value is the time until the next one.
    pub(super) fn try_sign_in(&self, user: Option<u32>) -> Result<(), Duration> {
        self.state.lock().sign_ins.try_take(user, self.clock.now())
    }

    /// Adds rights to the browser of `user` that sent these headers, under a new cookie, which is returned. `None` without
    /// entropy.
    pub(super) fn sign_in(&self, headers: &HeaderMap, user: Option<u32>, rights: BrowserRights) -> Option<HeaderValue> {
        let mut bytes = Zeroizing::new([0_u8; 32]);
        aws_lc_rs::rand::fill(&mut *bytes).ok()?;
        let id = URL_SAFE_NO_PAD.encode(bytes.as_slice());
        let now = self.clock.now();
        let mut state = self.state.lock();
        // A cookie that was known before the sign-in must not gain rights by it (session fixation).
        if let Some(digest) = digest_of(headers) {
            state.sessions.remove(&digest);
        }
        state.make_room(user, now);
        state.sessions.insert(sha256(id.as_bytes()), BrowserSession { rights, user, used: now });
        set_cookie(&id, LIFETIME)
    }

    /// Ends the session of the browser that sent these headers. Returns the header that deletes its cookie.
    pub(super) fn sign_out(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if let Some(digest) = digest_of(headers) {
            self.state.lock().sessions.remove(&digest);
        }
        set_cookie("", Duration::ZERO)
    }
}

/// Browsers accept `Secure` from `http://` on loopback too (Secure Contexts, 3.1).
fn set_cookie(id: &str, lifetime: Duration) -> Option<HeaderValue> {
    let seconds = lifetime.as_secs();
    let text = format!("{COOKIE_NAME}={id}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite=Strict");
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the digest of the cookie; `None` without exactly one.
fn digest_of(headers: &HeaderMap) -> Option<[u8; 32]> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut ids = pairs.filter(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value);
    match (ids.next(), ids.next()) {
        (Some(id), None) => Some(sha256(id.as_bytes())),
        _ => None,
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    digest
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use keyward_machine::clock::TestClock;

    use super::*;

    fn with_cookie(cookie: &HeaderValue) -> HeaderMap {
        let pair = cookie.to_str().unwrap().split(';').next().unwrap().to_owned();
        HeaderMap::from_iter([(COOKIE, format!("other=1; {pair}").parse().unwrap())])
    }

    fn key() -> BrowserRights {
        BrowserRights { has_key: true, ..BrowserRights::default() }
    }

    #[test]
    fn a_session_ends_15_minutes_after_the_last_page_that_a_person_opened() {
        let time = TestClock::starting_at(SystemTime::UNIX_EPOCH);
        let sessions = BrowserSessions::new(Clock::Test(time.clone()));
        let cookie = sessions.sign_in(&HeaderMap::new(), None, key()).unwrap();
        let text = cookie.to_str().unwrap();
        assert!(text.starts_with("__Host-keyward="), "{text}");
        assert!(text.ends_with("; Path=/; Max-Age=900; HttpOnly; Secure; SameSite=Strict"), "{text}");
        let headers = with_cookie(&cookie);
        let minutes = |count| time.suspend(Duration::from_mins(count));
        minutes(14);
        assert!(sessions.find(&headers, None, true).has_key);
        minutes(14);
        assert!(sessions.find(&headers, None, false).has_key, "the page prolonged it");
        minutes(1);
        assert!(!sessions.find(&headers, None, true).has_key, "a refresh did not");
    }

    #[test]
    fn a_new_cookie_comes_with_each_sign_in_and_the_old_one_is_worth_nothing() {
        let sessions = BrowserSessions::new(Clock::System);
        let first = with_cookie(&sessions.sign_in(&HeaderMap::new(), None, key()).unwrap());
        let second = with_cookie(&sessions.sign_in(&first, None, key()).unwrap());
        assert!(!sessions.find(&first, None, true).has_key && sessions.find(&second, None, true).has_key);
        sessions.sign_out(&second);
        assert!(!sessions.find(&second, None, true).has_key);
        let mut duplicate = first.clone();
        duplicate.append(COOKIE, "__Host-keyward=x".parse().unwrap());
        assert!(!sessions.find(&duplicate, None, true).has_key);
    }

    #[test]
    fn a_cookie_is_worth_nothing_to_another_user_of_the_machine() {
        let sessions = BrowserSessions::new(Clock::System);
        let own = with_cookie(&sessions.sign_in(&HeaderMap::new(), Some(1000), key()).unwrap());
        for (user, expected) in [(Some(1001), false), (Some(0), false), (None, false), (Some(1000), true)] {
            assert_eq!(sessions.find(&own, user, true).has_key, expected, "{user:?}");
        }
        let elsewhere = with_cookie(&sessions.sign_in(&HeaderMap::new(), None, key()).unwrap());
        assert!(!sessions.find(&elsewhere, Some(1001), true).has_key && sessions.find(&elsewhere, None, true).has_key);
    }

    #[test]
    fn the_sign_ins_of_a_user_end_no_session_of_another() {
        let sessions = BrowserSessions::new(Clock::System);
        let own = with_cookie(&sessions.sign_in(&HeaderMap::new(), Some(1000), key()).unwrap());
        let elsewhere = with_cookie(&sessions.sign_in(&HeaderMap::new(), None, key()).unwrap());
        for user in [1001, 1002, 1003, 1004] {
            for _ in 0..2 * MAX_SESSIONS {
                sessions.sign_in(&HeaderMap::new(), Some(user), key()).unwrap();
            }
        }
        assert!(sessions.find(&own, Some(1000), true).has_key && sessions.find(&elsewhere, None, true).has_key);
    }

    #[test]
    fn browsers_and_attempts_are_bounded() {
        let sessions = BrowserSessions::new(Clock::System);
        let first = with_cookie(&sessions.sign_in(&HeaderMap::new(), None, key()).unwrap());
        for _ in 0..MAX_SESSIONS_OF_USER {
            sessions.sign_in(&HeaderMap::new(), None, key()).unwrap();
        }
        assert!(!sessions.find(&first, None, true).has_key);
        assert_eq!(sessions.state.lock().sessions.len(), MAX_SESSIONS_OF_USER);
        for user in 0..9999 {
            sessions.sign_in(&HeaderMap::new(), Some(user), key()).unwrap();
        }
        assert_eq!(sessions.state.lock().sessions.len(), MAX_SESSIONS);
        let allowed = |user| std::iter::repeat_with(|| sessions.try_sign_in(user)).take_while(Result::is_ok).count();
        for user in [None, Some(1000), Some(1001)] {
            assert_eq!(allowed(user), 10, "{user:?}, whatever others try");
        }
    }
}
