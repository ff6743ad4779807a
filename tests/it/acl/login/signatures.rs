//! Accepted signature algorithms and keys.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    KeyPair as _, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyward_credentials::jwt::signing_input;
use serde_json::{Value, json};

use super::World;
use crate::harness::issuer::{Key, pem};

/// ECDSA key.
struct Curve(EcdsaKeyPair);

impl Curve {
    fn new(how: &'static EcdsaSigningAlgorithm) -> Self {
        Self(EcdsaKeyPair::generate(how).unwrap())
    }

    fn pem(&self) -> String {
        pem(self.0.public_key().as_der().unwrap().as_ref())
    }

    fn sign(&self, algorithm: &str, claims: &Value) -> String {
        let text = signing_input(&json!({"alg": algorithm}), claims);
        let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

#[tokio::test]
async fn only_signatures_by_configured_keys_and_algorithms_are_accepted() {
    let world = World::start().await;
    world.rule("service", "web", "").await;
    let (p256, p384) = (Curve::new(&ECDSA_P256_SHA256_FIXED_SIGNING), Curve::new(&ECDSA_P384_SHA384_FIXED_SIGNING));
    let keys = json!([world.key.pem(), format!("{}{}", p256.pem(), p384.pem())]);
    let allow = async |algorithms: Value| {
        world.method(json!({"Config": {"JWTValidationPubKeys": keys, "JWTSupportedAlgs": algorithms, "BoundAudiences": ["a"]}})).await;
    };
    let check = async |jwt: &str, status: u16, reason: &str| {
        let response = world.acl.log_in("people", jwt).await;
        assert_eq!((response.status, response.text.contains(reason)), (status, true), "{jwt} {response:?}");
    };
    let claims = world.claims();
    let rsa = |algorithm: &str, how: &'static dyn RsaEncoding| {
        world.key.signed_with(&signing_input(&json!({"alg": algorithm}), &claims), how)
    };
    let signed = [
        ("RS384", rsa("RS384", &RSA_PKCS1_SHA384)),
        ("RS512", rsa("RS512", &RSA_PKCS1_SHA512)),
        ("PS256", rsa("PS256", &RSA_PSS_SHA256)),
        ("ES256", p256.sign("ES256", &claims)),
        ("ES384", p384.sign("ES384", &claims)),
    ];
    allow(json!([])).await;
    check(&world.key.sign(&claims), 200, "").await;
    for (_, jwt) in &signed {
        check(jwt, 403, "unsupported algorithm, expected \"RS256\"").await;
    }
    allow(json!(["RS384", "RS512", "PS256", "ES256", "ES384"])).await;
    check(&world.key.sign(&claims), 403, "unsupported algorithm").await;
    for (algorithm, jwt) in &signed {
        check(jwt, 200, "").await;
        let stranger = Key::new("k").sign_as(&json!({ "alg": algorithm }), &claims);
        check(&stranger, 403, "failed to verify signature").await;
        let (input, signature) = jwt.rsplit_once('.').unwrap();
        let other = signing_input(&json!({ "alg": algorithm }), &json!({"aud": "a"}));
        check(&format!("{other}.{signature}"), 403, "failed to verify signature").await;
        check(&format!("{input}."), 403, "failed to verify signature").await;
    }
    // Key types and curves are not confused.
    check(&p256.sign("ES384", &claims), 403, "failed to verify signature").await;
    check(&p384.sign("ES256", &claims), 403, "failed to verify signature").await;

    // A public key used as an HMAC secret, and `alg: none`, are refused.
    let input = signing_input(&json!({"alg": "HS256"}), &claims);
    let secret = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, world.key.pem().as_bytes());
    let tag = URL_SAFE_NO_PAD.encode(aws_lc_rs::hmac::sign(&secret, input.as_bytes()));
    check(&format!("{input}.{tag}"), 403, "unsupported algorithm").await;
    let none = signing_input(&json!({"alg": "none"}), &claims);
    check(&format!("{none}."), 403, "unsupported algorithm").await;
    allow(json!(["ES256"])).await;
    check(&rsa("ES256", &RSA_PKCS1_SHA384), 403, "failed to verify signature").await;
}
