//! Identity tokens at the ACL server: tokens with valid and forged signatures, and key sets with the signer's keys or others.

use std::sync::LazyLock;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize, PublicKeyComponents};
use aws_lc_rs::signature::{self, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keyward_acl::service::login::fuzz::{verify, verify_by_pem};
use serde_json::{Map, Value};

/// Keys of one owner, one of each type.
struct SigningKeys {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
}

/// Two owners: a key set may hold the keys of both, of one, or of none.
static OWNERS: LazyLock<[SigningKeys; 2]> = LazyLock::new(|| std::array::from_fn(|_| SigningKeys::generate()));

impl SigningKeys {
    fn generate() -> Self {
        Self {
            rsa: RsaKeyPair::generate(KeySize::Rsa2048).expect("a key"),
            p256: EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"),
            p384: EcdsaKeyPair::generate(&signature::ECDSA_P384_SHA384_FIXED_SIGNING).expect("a key"),
        }
    }

    fn modulus(&self) -> &[u8] {
        self.rsa.public_key().modulus().big_endian_without_leading_zero()
    }

    /// Coordinates of the points on P-256 and P-384.
    fn coordinates(&self) -> [(&[u8], &[u8]); 2] {
        [(&self.p256, 32), (&self.p384, 48)].map(|(key, size)| key.public_key().as_ref()[1..].split_at(size))
    }

    fn pem(&self, name: &str) -> Option<String> {
        let text =
            |der: &[u8]| format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der));
        Some(match name {
            "rsa" => text(self.rsa.public_key().as_der().ok()?.as_ref()),
            "p256" => text(self.p256.public_key().as_der().ok()?.as_ref()),
            "p384" => text(self.p384.public_key().as_der().ok()?.as_ref()),
            _ => return None,
        })
    }

    /// Signs with an algorithm. `HS256` uses the public modulus as the shared secret, as an algorithm confusion attack does.
    fn sign(&self, algorithm: &str, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        let ecdsa = |key: &EcdsaKeyPair| Some(key.sign(&random, message).ok()?.as_ref().to_vec());
        let padding: &'static dyn signature::RsaEncoding = match algorithm {
            "RS256" => &signature::RSA_PKCS1_SHA256,
            "RS384" => &signature::RSA_PKCS1_SHA384,
            "RS512" => &signature::RSA_PKCS1_SHA512,
            "PS256" => &signature::RSA_PSS_SHA256,
            "ES256" => return ecdsa(&self.p256),
            "ES384" => return ecdsa(&self.p384),
            "HS256" => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, self.modulus());
                return Some(hmac::sign(&key, message).as_ref().to_vec());
            }
            _ => return None,
        };
        let mut signature = vec![0; self.rsa.public_modulus_len()];
        self.rsa.sign(padding, &random, message, &mut signature).ok()?;
        Some(signature)
    }
}

/// Reads bytes as a login: accepted algorithms, header, claims, signature and key set, a line each but for the last.
pub(crate) fn bearer(bytes: &[u8]) {
    let _ = is_accepted(bytes);
}

/// Verifies the token of a login and returns true if it is accepted; `None` if the bytes are no login.
pub(crate) fn is_accepted(bytes: &[u8]) -> Option<bool> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut parts = text.splitn(5, '\n');
    let [settings, header, claims, signature, keys] = std::array::from_fn(|_| parts.next());
    let (allowed, key_naming) = settings?.split_once(' ')?;
    let allowed: Vec<_> = allowed.split(',').collect();
    let must_name_key = key_naming == "named";
    let message = format!("{}.{}", encode_object(header?), encode_object(claims?));
    let jwt = format!("{message}.{}", sign(signature?, &message));
    let (outcome, keys) = if let Some(names) = keys?.strip_prefix("pem ") {
        let pem: String = names.split_whitespace().filter_map(|name| OWNERS[0].pem(name)).collect();
        (verify_by_pem(&pem, &jwt, &allowed)?, jwks_of_pem(names))
    } else {
        let keys = insert_key_parts(keys?);
        (verify(keys.as_bytes(), &jwt, &allowed, must_name_key)?, keys)
    };
    match outcome {
        Ok(claims) => {
            check_accepted(&jwt, &claims, &keys, &allowed, must_name_key);
            Some(true)
        }
        Err(message) => {
            super::assert_one_line(&message);
            let signature = jwt.rsplit('.').next().unwrap_or_default();
            assert!(signature.len() < 64 || !message.contains(signature), "the signature is in the error");
            Some(false)
        }
    }
}

/// Encodes a JSON object; returns any other text unchanged, since it is encoded already.
fn encode_object(text: &str) -> String {
    if text.starts_with('{') { URL_SAFE_NO_PAD.encode(text) } else { text.to_owned() }
}

/// Signs by a directive `ALGORITHM OWNER [SUFFIX]` and appends the suffix; any other text is the signature itself.
fn sign(directive: &str, message: &str) -> String {
    let mut words = directive.splitn(3, ' ');
    let (algorithm, owner) = (words.next().unwrap_or_default(), words.next().and_then(|owner| owner.parse().ok()));
    let owner = owner.and_then(|owner: usize| OWNERS.get(owner));
    match owner.and_then(|owner| owner.sign(algorithm, message.as_bytes())) {
        Some(signature) => URL_SAFE_NO_PAD.encode(signature) + words.next().unwrap_or_default(),
        None => directive.to_owned(),
    }
}

/// Replaces placeholders by parts of keys: `@0n` is the first owner's modulus, `@1x` and `@1y` are the coordinates of the
/// second one's point on P-256, `@1X` and `@1Y` of that on P-384.
fn insert_key_parts(keys: &str) -> String {
    let mut keys = keys.to_owned();
    for (number, owner) in OWNERS.iter().enumerate() {
        let [(x, y), (large_x, large_y)] = owner.coordinates();
        for (name, part) in [('n', owner.modulus()), ('x', x), ('y', y), ('X', large_x), ('Y', large_y)] {
            let name = format!("@{number}{name}");
            if keys.contains(&name) {
                keys = keys.replace(&name, &URL_SAFE_NO_PAD.encode(part));
            }
        }
    }
    keys
}

/// Returns the key set with the keys of a PEM text.
fn jwks_of_pem(names: &str) -> String {
    let keys = names.split_whitespace().filter_map(|name| match name {
        "rsa" => Some(r#"{"kty":"RSA","n":"@0n","e":"AQAB"}"#),
        "p256" => Some(r#"{"kty":"EC","crv":"P-256","x":"@0x","y":"@0y"}"#),
        "p384" => Some(r#"{"kty":"EC","crv":"P-384","x":"@0X","y":"@0Y"}"#),
        _ => None,
    });
    insert_key_parts(&format!(r#"{{"pem":true,"keys":[{}]}}"#, keys.collect::<Vec<_>>().join(",")))
}

/// Asserts that a key of the set has signed the token, by the algorithm that the header names and the method allows.
fn check_accepted(jwt: &str, claims: &Value, keys: &str, allowed: &[&str], must_name_key: bool) {
    let parts: Vec<_> = jwt.split('.').collect();
    let [header, body, signature] = parts[..] else { panic!("a token of {} parts is accepted", parts.len()) };
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).expect("a part that is not base64url is accepted");
    let header: Map<String, Value> = serde_json::from_slice(&decode(header)).expect("a header that is no object");
    let algorithm = header.get("alg").and_then(Value::as_str).expect("a token without an algorithm is accepted");
    assert!(allowed.contains(&algorithm), "{algorithm} is accepted but not allowed");
    assert!(!header.contains_key("crit"), "a critical extension is ignored");
    assert_eq!(serde_json::from_slice::<Value>(&decode(body)).as_ref().ok(), Some(claims), "other claims");
    let keys: Value = serde_json::from_str(keys).expect("a key set that is no document");
    let from_pem = keys.get("pem").is_some();
    let key_id = header.get("kid").filter(|id| !id.is_null() && !from_pem);
    assert!(key_id.is_some() || !must_name_key || from_pem, "a token that names no key is accepted");
    let (message, signature) = (jwt.rsplit_once('.').map_or("", |(message, _)| message), decode(signature));
    let keys = keys["keys"].as_array().expect("a key set without keys");
    let mut candidates = keys.iter().filter(|key| key_id.is_none() || key.get("kid") == key_id);
    assert!(
        candidates.any(|key| has_signed(key, algorithm, message.as_bytes(), &signature)),
        "no key of the set has signed the token"
    );
}

/// Returns true if a key of a set is meant for the algorithm, and has signed the message.
fn has_signed(key: &Value, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
    let allows = |name: &str, value: &str| matches!(key.get(name), None | Some(Value::Null)) || key[name] == value;
    let part = |name: &str| key[name].as_str().and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    if !allows("use", "sig") || !allows("alg", algorithm) {
        return false;
    }
    let rsa = |padding| {
        let (Some(n), Some(e)) = (part("n"), part("e")) else { return false };
        key["kty"] == "RSA" && PublicKeyComponents { n, e }.verify(padding, message, signature).is_ok()
    };
    let ecdsa = |curve: &str, verifier| {
        let (Some(x), Some(y)) = (part("x"), part("y")) else { return false };
        let point = [&[4], &x[..], &y[..]].concat();
        key["kty"] == "EC"
            && key["crv"] == curve
            && UnparsedPublicKey::new(verifier, point).verify(message, signature).is_ok()
    };
    match algorithm {
        "RS256" => rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
        "RS384" => rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
        "RS512" => rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
        "PS256" => rsa(&signature::RSA_PSS_2048_8192_SHA256),
        "ES256" => ecdsa("P-256", &signature::ECDSA_P256_SHA256_FIXED),
        "ES384" => ecdsa("P-384", &signature::ECDSA_P384_SHA384_FIXED),
        _ => false,
    }
}
