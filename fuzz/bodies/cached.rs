//! The response cache: a script of requests, responses, writes and restarts, compared with a list of the inserted responses.

use std::time::Duration;

use http::Method;
use keyward_agent::api_proxy::fuzz::{FuzzedCache, FuzzedHit, FuzzedRequest, FuzzedScope};

/// Sizes of the cache in bytes: one that holds the responses of any script, and one that evicts.
const SIZES: [usize; 2] = [1 << 24, 2500];

/// A response that was inserted and not invalidated.
struct Inserted<'a> {
    request: FuzzedRequest<'a>,
    is_leased: bool,
    body: &'a [u8],
    age: Duration,
    /// Lifetime of the lease in the body.
    ttl: Option<Duration>,
}

/// A cache, and the responses that may be in it.
struct Script<'a> {
    cache: FuzzedCache,
    size: usize,
    inserted: Vec<Inserted<'a>>,
    hits: usize,
}

/// Reads bytes as a script with one operation per line, and runs it on a cache that evicts and on one that does not.
pub(crate) fn cached(bytes: &[u8]) {
    let _ = count_hits(bytes);
}

/// Runs the script, and returns how many requests the cache that does not evict has served.
pub(crate) fn count_hits(bytes: &[u8]) -> usize {
    let Ok(text) = std::str::from_utf8(bytes) else { return 0 };
    let [hits, _] = SIZES.map(|size| {
        let mut script = Script { cache: FuzzedCache::new(size), size, inserted: Vec::new(), hits: 0 };
        for line in text.lines().take(64) {
            script.run(line);
        }
        script.restart();
        script.hits
    });
    hits
}

impl<'a> Script<'a> {
    fn run(&mut self, line: &'a str) {
        let (operation, rest) = line.split_once(' ').unwrap_or((line, ""));
        match operation {
            "plain" | "leased" => self.insert(rest, operation == "leased"),
            "get" => {
                if let Some((request, _)) = parse_request(rest) {
                    self.look_up(&request, false);
                }
            }
            "write" => {
                let (namespace, path) = rest.split_once(' ').unwrap_or(("", rest));
                self.cache.invalidate_path(namespace, path);
                let written = full_path(namespace, path);
                self.inserted.retain(|inserted| !inserted.full_path().starts_with(&written));
            }
            "revoke" => {
                self.cache.invalidate_token(rest.as_bytes());
                self.inserted.retain(|inserted| {
                    inserted.request.scope != FuzzedScope::Caller(rest.as_bytes())
                        && !(inserted.is_leased && issues_token(inserted.body, rest))
                });
            }
            "wait" => {
                let span = Duration::from_secs(rest.parse::<u16>().unwrap_or_default().into());
                self.cache.advance(span);
                for inserted in &mut self.inserted {
                    inserted.age += span;
                }
            }
            "restart" => self.restart(),
            _ => {}
        }
    }

    fn insert(&mut self, rest: &'a str, is_leased: bool) {
        let Some((request, body)) = parse_request(rest) else { return };
        // A jitter that depends on the script alone, so that a run can be repeated.
        let jitter = f64::from(body.bytes().last().unwrap_or_default()) / 256.0;
        if !self.cache.insert(&request, is_leased, body.as_bytes(), jitter) {
            return;
        }
        self.inserted.retain(|inserted| !inserted.is_for(&request));
        let ttl = is_leased.then(|| lifetime(body.as_bytes()));
        let (body, age) = (body.as_bytes(), Duration::ZERO);
        self.inserted.push(Inserted { request: request.clone(), is_leased, body, age, ttl });
        self.look_up(&request, self.size == SIZES[0]);
    }

    /// Looks a request up. With `must_hit`, its response has just been inserted and must be cached.
    fn look_up(&mut self, request: &FuzzedRequest<'a>, must_hit: bool) {
        let Some(hit) = self.cache.lookup(request) else {
            assert!(!must_hit, "an inserted response is not cached");
            return;
        };
        self.hits += 1;
        let inserted = self.inserted.iter().find(|inserted| inserted.is_for(request));
        let inserted = inserted.unwrap_or_else(|| panic!("no response to this request was inserted: {request:?}"));
        assert_eq!(
            hit.remaining.is_some(),
            inserted.is_leased,
            "a lease is served as a plain value, or a plain value as a lease"
        );
        if let (Some(remaining), Some(ttl)) = (hit.remaining, inserted.ttl) {
            assert!(remaining + inserted.age <= ttl, "{remaining:?} remain of {ttl:?} after {:?}", inserted.age);
            assert_same_but_lifetime(inserted.body, &hit.body, remaining);
        } else {
            assert!(inserted.age <= Duration::from_hours(1), "a value of {:?} is fresh", inserted.age);
            assert_eq!(hit.body.trim_ascii(), inserted.body.trim_ascii(), "the body differs");
        }
    }

    /// Saves the cache, restores it as another process does, and continues with the restored one.
    fn restart(&mut self) {
        let file = self.cache.save().expect("a cache that cannot be saved");
        let restored = self.cache.restore(&file, self.size).expect("a saved cache cannot be restored");
        for inserted in &self.inserted {
            let (before, after) = (self.cache.lookup(&inserted.request), restored.lookup(&inserted.request));
            let remaining = |hit: &Option<FuzzedHit>| hit.as_ref().map(|hit| hit.remaining);
            assert_eq!(remaining(&before), remaining(&after), "the lifetime differs after a restart");
            if let (Some(before), Some(after)) = (before, after) {
                assert_eq!(before.body.trim_ascii(), after.body.trim_ascii(), "the body differs after a restart");
            }
        }
        // The saved bytes show that a second restart also preserves the order of uses.
        let again = restored.save().and_then(|file| restored.restore(&file, self.size)?.save());
        assert_eq!(again, restored.save(), "a second save differs");
        self.cache = restored;
    }
}

impl Inserted<'_> {
    /// Returns true if the server treats a request as the one of this response.
    fn is_for(&self, request: &FuzzedRequest<'_>) -> bool {
        let own = &self.request;
        (own.scope, &own.method, own.body) == (request.scope, &request.method, request.body)
            && own.namespace.trim_matches('/') == request.namespace.trim_matches('/')
            && decoded_path(own.path) == decoded_path(request.path)
            && sorted_pairs(own.query) == sorted_pairs(request.query)
    }

    fn full_path(&self) -> Vec<u8> {
        let path = String::from_utf8(decoded_path(self.request.path)).expect("a path that is not UTF-8 is cached");
        full_path(self.request.namespace, &path)
    }
}

/// Joins a namespace and a path as the server does.
fn full_path(namespace: &str, path: &str) -> Vec<u8> {
    let namespace = namespace.trim_matches('/');
    if namespace.is_empty() { path.into() } else { format!("{namespace}/{path}").into() }
}

/// Parses `CALLER METHOD NAMESPACE TARGET BODY REST`; `-` stands for an empty namespace or body. The caller is `session`, `nobody` or a token.
fn parse_request(text: &str) -> Option<(FuzzedRequest<'_>, &str)> {
    let mut words = text.splitn(6, ' ');
    let [caller, method, namespace, target, body] = std::array::from_fn(|_| words.next());
    let (path, query) = target?.split_once('?').map_or((target?, None), |(path, query)| (path, Some(query)));
    let scope = match caller? {
        "session" => FuzzedScope::Session,
        "nobody" => FuzzedScope::Anonymous,
        token => FuzzedScope::Caller(token.as_bytes()),
    };
    let is_set = |text: &&str| *text != "-";
    let (namespace, body) = (namespace.filter(is_set).unwrap_or_default(), body.filter(is_set).unwrap_or_default());
    let method = Method::from_bytes(method?.as_bytes()).ok()?;
    Some((
        FuzzedRequest { scope, method, namespace, path, query, body: body.as_bytes() },
        words.next().unwrap_or_default(),
    ))
}

fn decoded_path(path: &str) -> Vec<u8> {
    let path = path.strip_prefix("/v1/").unwrap_or(path);
    let mut decoded: Vec<u8> = percent_encoding::percent_decode_str(path).collect();
    if decoded.last() == Some(&b'/') {
        decoded.pop();
    }
    decoded
}

/// Returns the names and values of a query, sorted by name. Servers use the first value of a name, so that the order of values counts.
fn sorted_pairs(query: Option<&str>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let decode = |text: &str| percent_encoding::percent_decode_str(&text.replace('+', " ")).collect::<Vec<u8>>();
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<_> = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect();
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    pairs
}

/// Returns the part of a body that has the lease.
fn leased_part(body: &serde_json::Value) -> &serde_json::Value {
    if body["auth"].is_object() { &body["auth"] } else { body }
}

fn lifetime(body: &[u8]) -> Duration {
    let Ok(body) = serde_json::from_slice(body) else { return Duration::MAX };
    Duration::from_secs(leased_part(&body)["lease_duration"].as_u64().expect("a lease without a duration is cached"))
}

fn issues_token(body: &[u8], token: &str) -> bool {
    serde_json::from_slice::<serde_json::Value>(body).is_ok_and(|body| body["auth"]["client_token"] == token)
}

/// Asserts that two bodies differ only in the digits of the lease's duration.
fn assert_same_but_lifetime(inserted: &[u8], served: &[u8], remaining: Duration) {
    let (inserted, served) = (inserted.trim_ascii(), served.trim_ascii());
    let prefix = inserted.iter().zip(served).take_while(|(one, other)| one == other).count();
    let (inserted_rest, served_rest) = (&inserted[prefix..], &served[prefix..]);
    let suffix =
        inserted_rest.iter().rev().zip(served_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    let changed = [&inserted_rest[..inserted_rest.len() - suffix], &served_rest[..served_rest.len() - suffix]];
    assert!(changed.concat().iter().all(u8::is_ascii_digit), "more than one number differs");
    let (Ok(inserted), Ok(served)) =
        (serde_json::from_slice::<serde_json::Value>(inserted), serde_json::from_slice::<serde_json::Value>(served))
    else {
        return;
    };
    assert_eq!(
        leased_part(&served)["lease_duration"],
        remaining.as_secs(),
        "the body has another lifetime than the hit"
    );
    let remove_lifetime = |mut body: serde_json::Value| {
        let part = if body["auth"].is_object() { &mut body["auth"] } else { &mut body };
        part["lease_duration"].take();
        body
    };
    assert_eq!(remove_lifetime(inserted), remove_lifetime(served), "another number than the lifetime differs");
}
