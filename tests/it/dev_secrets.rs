//! The emulated secrets server, as the agent's own client sees it.

use std::time::Duration;

use keyward::agent::login;
use keyward::agent::login::{Login, LoginError};
use keyward::agent::token::Kind;
use keyward::agent::upstream::{CallError, Verdict};
use keyward::dev::secrets::{Canned, Operation, Role, TokenType};

use crate::harness::secrets::{Bench, login_options, proof};

#[tokio::test(start_paused = true)]
async fn a_token_is_got_looked_up_renewed_up_to_its_maximum_and_revoked() {
    let role = Role { ttl: Duration::from_mins(10), max_ttl: Some(Duration::from_mins(15)), ..Role::default() };
    let bench = Bench::new(role);
    let token = bench.login().login(&proof("a.b.c"), &bench.clock).await.unwrap();
    assert_eq!((token.lease.ttl, token.lease.renewable, token.kind), (Duration::from_mins(10), true, Kind::Service));
    tokio::time::advance(Duration::from_mins(8)).await;
    let seen = bench.upstream.lookup_self(&token.secret, None).await.unwrap();
    assert_eq!((seen.lease.ttl, seen.accessor), (Duration::from_mins(2), token.accessor));
    let renewed = bench.upstream.renew_self(&token.secret, None).await.unwrap();
    assert_eq!(renewed.lease.ttl, Duration::from_mins(7), "the maximum of fifteen minutes shortens the lease");
    bench.upstream.revoke_self(&token.secret, None).await.unwrap();
    let error = bench.upstream.lookup_self(&token.secret, None).await.unwrap_err();
    assert_eq!(error.verdict(), Verdict::Dead, "{error}");
    let counts = bench.secrets.dials().counts();
    assert_eq!((counts.of(Operation::Login), counts.of(Operation::Lookup), counts.total()), (1, 2, 5));
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_when_its_lease_does() {
    let bench = Bench::new(Role { ttl: Duration::from_mins(10), ..Role::default() });
    let token = bench.login().login(&proof("a.b.c"), &bench.clock).await.unwrap();
    tokio::time::advance(Duration::from_mins(10)).await;
    assert!(bench.upstream.renew_self(&token.secret, None).await.unwrap_err().is_token_dead());
}

#[tokio::test(start_paused = true)]
async fn a_role_says_what_kind_of_token_it_gives() {
    let batch = Bench::new(Role { token_type: TokenType::Batch, ..Role::default() });
    let token = batch.login().login(&proof("a.b.c"), &batch.clock).await.unwrap();
    assert_eq!((&token.kind, token.lease.renewable), (&Kind::Batch, false));
    assert!(batch.upstream.lookup_self(&token.secret, None).await.unwrap().batch);
    assert_eq!(batch.upstream.renew_self(&token.secret, None).await.unwrap_err().verdict(), Verdict::Refused);

    let limited = Bench::new(Role { num_uses: 3, ..Role::default() });
    let error = limited.login().login(&proof("a.b.c"), &limited.clock).await.unwrap_err();
    assert!(error.to_string().contains("token_num_uses = 0"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_wrapped_login_gives_a_token_that_unwraps_once() {
    let bench = Bench::new(Role::default());
    let options = login::Options { wrap_ttl: Some(Duration::from_mins(2)), ..login_options() };
    let token = Login::new(bench.upstream.clone(), options).login(&proof("a.b.c"), &bench.clock).await.unwrap();
    let Kind::Wrapping { creation_path, creation_time } = &token.kind else { panic!("{token:?}") };
    assert_eq!(creation_path, "auth/azure/login");
    assert!(creation_time.starts_with("2027-"), "{creation_time}");
    assert_eq!((token.lease.ttl, token.lease.renewable), (Duration::from_mins(2), false));
}

#[tokio::test(start_paused = true)]
async fn dials_make_it_fail_in_every_way() {
    let bench = Bench::new(Role::default());
    let (dials, login) = (bench.secrets.dials(), bench.login());
    let try_once = async || login.login(&proof("a.b.c"), &bench.clock).await;

    dials.fail_next_login(2);
    assert!(matches!(try_once().await, Err(LoginError::Unavailable { .. })));
    assert!(try_once().await.is_err());
    let token = try_once().await.unwrap();

    dials.answer_next(Operation::Login, Canned::error(429, "quota").retry_after("7"));
    assert_eq!(try_once().await.unwrap_err().retry_after(), Some(Duration::from_secs(7)));

    dials.go_away().await;
    let error = bench.upstream.lookup_self(&token.secret, None).await.unwrap_err();
    assert!(matches!(&error, CallError::Unreachable { cause } if cause.contains("refused")), "{error}");
    dials.come_back().await;
    bench.upstream.lookup_self(&token.secret, None).await.unwrap();

    dials.hang(true);
    let start = tokio::time::Instant::now();
    assert!(matches!(bench.upstream.lookup_self(&token.secret, None).await, Err(CallError::TimedOut { .. })));
    assert_eq!(start.elapsed().as_secs(), 10);
    assert!(matches!(try_once().await, Err(LoginError::Unavailable { .. })));
    assert_eq!(start.elapsed().as_secs(), 100, "a login's answer may take 90 s");
    dials.hang(false);

    dials.garbage(true);
    assert!(matches!(bench.upstream.lookup_self(&token.secret, None).await, Err(CallError::Garbage { .. })));
    dials.garbage(false);

    dials.refuse_renewals(true);
    assert_eq!(bench.upstream.renew_self(&token.secret, None).await.unwrap_err().verdict(), Verdict::Refused);
    bench.upstream.lookup_self(&token.secret, None).await.unwrap();
    dials.lose_state();
    assert!(bench.upstream.lookup_self(&token.secret, None).await.unwrap_err().is_token_dead());
}
