use keyward_machine::clock::Clock;

use super::*;
use crate::model::authorize::DefaultPolicy;
use crate::service::seal::Sealer;
use crate::service::tokens::TokenDraft;
use crate::store::Embedded;

#[tokio::test]
async fn many_tokens_take_several_calls_and_each_is_rewritten_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
    let file = folder.path().join("seal.key");
    let sealer = Sealer::open(&file, &*store).await.unwrap();
    let service = AclService::new(store, sealer, "dc1".to_owned(), DefaultPolicy::Deny, Clock::System);
    service.create_builtins().await.unwrap();
    let secret = service.bootstrap(None, None).await.unwrap().secret;
    let root = service.authenticator().authenticate(Some(&secret), Freshness::Linearizable).await.unwrap();
    let namespace = NamespaceName::default_namespace();
    let draft = TokenDraft::default();
    let create = async || service.tokens().create(&root, &namespace, &draft).await.unwrap();
    join_all((0..600).map(|_| create())).await;
    let mut calls = 0;
    let mut rewritten = 0;
    let mut generate = true;
    loop {
        let result = service.key_rotation().run(&root, generate, 1).await.unwrap();
        (calls, rewritten, generate) = (calls + 1, rewritten + result.rewritten, false);
        if result.done {
            break;
        }
        create().await;
    }
    // Includes the bootstrap and the anonymous token.
    assert_eq!((calls, rewritten), (3, 602));
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 2);
}
