//! Random faults over a day: the budget holds, and a token is served exactly until its end.

use std::time::Duration;

use keyward_agent::token::Token;
use keyward_emulators::secrets::{CannedResponse, Operation, Role, TokenType};
use keyward_machine::clock::ClockReading;
use proptest::prelude::*;

use crate::harness::identities::TestedMethod;
use crate::harness::session::{Session, World};

/// An injected fault.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Away,
    Hang,
    Garbage,
    Sealed,
    RenewalsRefused,
    LookUpsRefused,
    LoginsRefused,
    IdentityGone,
    IdentityHangs,
    Revoked,
    StateLost,
    WallClockSet(i64),
    Suspended(u64),
    Restarted,
    LookupRequests,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Away),
        Just(Fault::Hang),
        Just(Fault::Garbage),
        Just(Fault::Sealed),
        Just(Fault::RenewalsRefused),
        Just(Fault::LookUpsRefused),
        Just(Fault::LoginsRefused),
        Just(Fault::IdentityGone),
        Just(Fault::IdentityHangs),
        Just(Fault::Revoked),
        Just(Fault::StateLost),
        (-10_000_i64..10_000).prop_map(Fault::WallClockSet),
        (1_u64..10_000).prop_map(Fault::Suspended),
        Just(Fault::Restarted),
        Just(Fault::LookupRequests),
    ]
}

fn role() -> impl Strategy<Value = Role> {
    (5_u64..180, prop::option::of(30_u64..600), any::<bool>(), any::<bool>()).prop_map(
        |(ttl, most, renewable, batch)| Role {
            ttl: Duration::from_mins(ttl),
            max_ttl: most.map(Duration::from_mins),
            renewable,
            token_type: if batch { TokenType::Batch } else { TokenType::Service },
            ..Role::default()
        },
    )
}

/// Turns a fault on, or a lasting one off again.
async fn set_fault(world: &World, session: &mut Session, fault: Fault, on: bool) {
    let faults = world.faults();
    let always = |operation, status| {
        let response = on.then(|| CannedResponse::error(status, "1 error occurred:\n\t* permission denied\n\n"));
        faults.respond_always(operation, response);
    };
    match fault {
        Fault::Away if on => faults.go_away().await,
        Fault::Away => faults.come_back().await,
        Fault::Hang => faults.set_unresponsive(on),
        Fault::Garbage => faults.garbage(on),
        Fault::Sealed => Operation::ALL.into_iter().for_each(|operation| always(operation, 503)),
        Fault::RenewalsRefused => always(Operation::Renew, 403),
        Fault::LookUpsRefused => always(Operation::Lookup, 403),
        Fault::LoginsRefused => always(Operation::Login, 400),
        Fault::IdentityGone => world.set_identity_missing(on),
        Fault::IdentityHangs => world.hang_identity(on),
        Fault::Revoked if on => faults.revoke_all(),
        Fault::StateLost if on => faults.lose_state(),
        Fault::WallClockSet(seconds) if on => world.driven.set_wall_by(seconds),
        Fault::Suspended(seconds) if on => world.driven.suspend(Duration::from_secs(seconds)),
        Fault::Restarted if on => *session = world.start(),
        _ => {}
    }
}

/// Returns true if the fault may end a token early, or hide its expiry.
const fn may_end_token(fault: Fault) -> bool {
    matches!(fault, Fault::Revoked | Fault::StateLost | Fault::Restarted | Fault::WallClockSet(_))
}

/// Returns true if the server forgets the current token. The session notices when the server answers next, which may be after the fault.
const fn kills_token(fault: Fault) -> bool {
    matches!(fault, Fault::Revoked | Fault::StateLost)
}

fn text_of(token: &Token) -> String {
    token.secret.secret().expose_secret().to_owned()
}

/// Faults begin and end at steps of five seconds.
const HOUR: u64 = 720;
const DAY: u64 = 24 * HOUR;

async fn a_day(world: World, script: Vec<(Fault, u64, u64)>) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let mut world = world;
    world.keep_state(folder.path(), true);
    let mut session = world.start();
    let mut last: Option<ClockReading> = None;
    let mut dead: Option<String> = None;
    let (mut spent, mut step) = (0, 0);
    while step < DAY {
        let mut next = (step / HOUR + 1) * HOUR;
        let (mut may_end, mut requesting) = (false, false);
        for (fault, from, length) in &script {
            if step == *from && kills_token(*fault) {
                dead = session.token().map(|token| text_of(&token)).or(dead);
            }
            if step == *from || step == from + length {
                set_fault(&world, &mut session, *fault, step == *from).await;
            }
            if (*from..=from + length).contains(&step) {
                may_end |= may_end_token(*fault);
                requesting |= matches!(fault, Fault::LookupRequests);
            }
            let changes = [*from, from + length, from + length + 1];
            next = changes.into_iter().filter(|change| *change > step).fold(next, u64::min);
        }
        if requesting {
            session.refresh_signal.request();
            next = step + 1;
        }
        let mut wrong = None;
        let span = Duration::from_secs(5) * u32::try_from(next - step).unwrap();
        let check = |token: Option<&Token>, now: ClockReading| {
            let is_dead = dead.is_some() && token.map(text_of) == dead;
            if may_end || is_dead {
                last = None;
            }
            match (token.and_then(|token| token.expires), last) {
                (Some(ends), _) if now.since(ends) >= Duration::from_secs(1) => {
                    wrong = Some(format!("served {:?} after its end", now.since(ends)));
                }
                (Some(ends), _) => last = Some(ends).filter(|_| !is_dead),
                (None, Some(ends)) if !now.until(ends).is_zero() => {
                    wrong = Some(format!("withheld {:?} before its end", now.until(ends)));
                }
                (None, _) => {}
            }
        };
        session.watch(span, check).await;
        prop_assert!(wrong.is_none(), "{wrong:?} between step {step} and {next}");
        step = next;
        if step % HOUR == 0 {
            let calls = world.upstream_calls();
            prop_assert!(calls - spent <= 200, "{} calls in an hour, step {step}", calls - spent);
            spent = calls;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_day_of_faults_keeps_the_budget_and_serves_the_token_to_its_end(
        role in role(),
        script in prop::collection::vec((fault(), 1_u64..17_000, 1_u64..3_000), 0..12),
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async { a_day(World::new(role), script).await })?;
    }

    #[test]
    fn any_day_of_faults_keeps_the_budget_and_serves_the_token_to_its_end_by_every_method(
        role in role(),
        method in prop::sample::select(&TestedMethod::ALL),
        script in prop::collection::vec((fault(), 1_u64..17_000, 1_u64..3_000), 0..12),
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async { a_day(World::with_method(role, method).await, script).await })?;
    }
}

/// One day for each method, so that none is left out by chance.
#[test]
fn a_day_with_each_fault_of_the_identity_is_survived_by_every_method() {
    for method in TestedMethod::ALL {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        let role = Role { max_ttl: Some(Duration::from_hours(3)), ..Role::default() };
        let script = vec![
            (Fault::IdentityGone, 2 * HOUR, HOUR),
            (Fault::IdentityHangs, 8 * HOUR, HOUR),
            (Fault::Revoked, 12 * HOUR, 1),
        ];
        runtime
            .block_on(async { a_day(World::with_method(role, method).await, script).await })
            .unwrap_or_else(|error| panic!("{method:?}: {error}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_died_behind_a_sealed_server_may_be_withheld_once_the_server_answers() {
    let role = Role {
        ttl: Duration::from_hours(3),
        max_ttl: Some(Duration::from_hours(7)),
        renewable: true,
        ..Role::default()
    };
    let script = vec![(Fault::StateLost, 5_720, 600), (Fault::Sealed, 5_754, 700)];
    a_day(World::new(role), script).await.unwrap();
}
