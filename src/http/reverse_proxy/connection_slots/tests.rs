use super::*;

const WITHIN: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn no_caller_gets_more_than_half_and_the_last_slots_are_reserved() {
    let slots = Arc::new(ConnectionSlots::new(32, WITHIN, None));
    let mut slot_owners = Vec::new();
    let mut fill = async |uid, count, expected: Option<&str>| {
        for _ in 0..count {
            slot_owners.push(slots.take(CallerGroup::User(uid)).await.unwrap());
        }
        if let Some(expected) = expected {
            assert_eq!(slots.take(CallerGroup::User(uid)).await.unwrap_err().to_string(), expected);
        }
    };
    let base_uid = rustix::process::geteuid().as_raw() + 1000;
    fill(base_uid, 16, Some("all 16 connections to the upstream that one caller may use are busy")).await;
    fill(base_uid + 1, 14, Some("all 32 connections to the upstream are busy")).await;
    fill(base_uid + 2, 0, Some("all 32 connections to the upstream are busy")).await;
    fill(0, 2, Some("all 32 connections to the upstream are busy")).await;
    slot_owners.truncate(1);
    assert_eq!(slots.state.lock().in_use, 1);
    slot_owners.clear();
    let state = slots.state.lock();
    assert!(state.in_use == 0 && state.by_group.is_empty() && state.waiting.is_empty(), "{state:?}");
}

#[expect(clippy::disallowed_methods, reason = "a test awaits or aborts its own tasks")]
#[tokio::test(start_paused = true)]
async fn a_free_slot_goes_to_the_longest_waiting_caller_that_may_have_it() {
    let slots = Arc::new(ConnectionSlots::new(4, Duration::from_mins(1), None));
    let mut slot_owners = Vec::new();
    for uid in [7, 7, 8, 8] {
        slot_owners.push(slots.take(CallerGroup::User(uid)).await.unwrap());
    }
    let wait = |uid| {
        tokio::spawn({
            let slots = Arc::clone(&slots);
            async move { slots.take(CallerGroup::User(uid)).await.map(|slot| (uid, slot)) }
        })
    };
    let greedy = wait(7);
    let gone = wait(9);
    let patient = wait(9);
    tokio::time::sleep(Duration::from_secs(1)).await;
    gone.abort();
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(slot_owners.pop());
    let (uid, slot) = patient.await.unwrap().unwrap();
    assert_eq!(uid, 9);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!greedy.is_finished(), "it has its share");
    drop(slot_owners.remove(0));
    assert_eq!(greedy.await.unwrap().unwrap().0, 7);
    drop(slot);
}
