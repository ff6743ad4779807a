//! Identities for which other agents call the node's metadata service, or fail.

use keyward_emulators::cloud::{FaultTarget, MachineKind};
use keyward_emulators::secrets::{Bounds, Operation, Role, Verification};

use crate::harness::agent::Agent;
use crate::harness::binary::ask;
use crate::harness::world::{World, run_in_network_namespace};

const OWN_AUDIENCE: &str = "https://secrets.example";

fn owned(variables: std::collections::BTreeMap<String, String>) -> Vec<(String, String)> {
    variables.into_iter().collect()
}

fn borrowed(variables: &[(String, String)]) -> Vec<(&str, &str)> {
    variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// Creates a role for one principal on any machine.
fn for_principal(object_id: &str) -> Role {
    let bounds = Bounds { service_principal_ids: vec![object_id.to_owned()], ..Bounds::default() };
    Role { policies: vec!["web".to_owned()], bounds, ..Role::default() }
}

/// vault#20055: a container has a managed identity and no instance document.
#[test]
fn a_container_without_an_instance_document_logs_in() {
    run_in_network_namespace(|| {
        let world = World::with(
            |_| (),
            |cloud, secrets| {
                // A custom audience: its token has no machine claims, so the instance document would be used.
                if let Verification::Cloud { audience, .. } = &mut secrets.verification {
                    OWN_AUDIENCE.clone_into(audience);
                }
                secrets.roles.insert("web".to_owned(), for_principal(&cloud.identities().system.object_id));
            },
        );
        world.cloud.faults().block_instance(true);
        let agent = Agent::ready(&world, &[], |text| text.replace(crate::harness::world::RESOURCE, OWN_AUDIENCE));
        assert!(!agent.sink("token").is_empty());
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1);
        assert!(world.cloud.faults().requests(FaultTarget::Instance) >= 1, "it was asked for, and not needed");
    });
}

/// vault-plugin-auth-azure#17: a login of an App Service app must send the resource id.
#[test]
fn an_app_logs_in_to_a_role_that_is_bound_to_its_resource_group() {
    run_in_network_namespace(|| {
        let world = World::with(|cloud| cloud.machine = MachineKind::App, |_, _| ());
        let variables = owned(world.cloud.variables_for_app_service());
        let agent = Agent::ready(&world, &borrowed(&variables), |text| text);
        assert!(!agent.sink("token").is_empty());
        assert_eq!(world.cloud.faults().requests(FaultTarget::Metadata), 0, "the node is nobody");
        assert_eq!(world.cloud.faults().requests(FaultTarget::Instance), 0);
    });
}

/// vault-k8s#396: with a user-assigned identity both refusals are without advice.
#[test]
fn an_unassigned_or_unauthorized_identity_is_reported_with_the_setting_to_change() {
    run_in_network_namespace(|| {
        let world = World::start();
        let started = |object_id: &str| {
            let key = format!("[session.web.cloud]\nobject_id = \"{object_id}\"");
            Agent::start(&world, &[], |text| text.replace("[session.web.cloud]", &key))
        };
        // Not assigned to the machine.
        let agent = started("00000000-0000-0000-0000-000000000001");
        agent.logs("(object_id 00000000-0000-0000-0000-000000000001)");
        agent.logs("Identity not found (assign the identity to this machine");
        drop(agent);
        // Assigned to the machine, and not bound by the role.
        let user = world.cloud.identities().user.object_id.clone();
        let agent = started(&user);
        agent.logs(&format!("service principal not authorized: {user}"));
        agent.logs("the role must bind this identity's object id");
        let status = agent.get("/agent/v1/status");
        let error = status["sessions"]["web"]["last_error"].to_string();
        assert!(error.contains(&user), "{status}");
        assert_eq!(ask(&agent.socket(), "GET", "/readyz").unwrap().0, 503);
    });
}

/// vault#22264: workload identity still calls the node's metadata service, which clusters block for pods.
#[test]
fn a_pod_logs_in_where_no_metadata_service_answers() {
    run_in_network_namespace(|| {
        let world = World::with(
            // Connections to the real address are refused.
            |cloud| cloud.metadata = "127.0.0.1:0".parse().unwrap(),
            |cloud, secrets| {
                secrets.roles.insert("web".to_owned(), for_principal(&cloud.identities().workload.object_id));
            },
        );
        let mut variables = owned(world.cloud.variables_for_workload_identity());
        variables.push(("SSL_CERT_FILE".to_owned(), world.cloud.ca_file().display().to_string()));
        let agent = Agent::ready(&world, &borrowed(&variables), |text| {
            text.replace("[session.web.cloud]", "[session.web.cloud]\nauthenticate_from_environment = true")
        });
        assert!(!agent.sink("token").is_empty());
        let faults = world.cloud.faults();
        assert_eq!((faults.requests(FaultTarget::Metadata), faults.requests(FaultTarget::Instance)), (0, 0));
    });
}

/// vault#11298, vault#8364: one process, one identity, one policy.
#[test]
fn one_process_serves_two_identities_with_their_own_rights() {
    run_in_network_namespace(|| {
        let world = World::with(
            |_| (),
            |cloud, secrets| {
                let role = for_principal(&cloud.identities().user.object_id);
                secrets.roles.insert("ops".to_owned(), Role { policies: vec!["ops".to_owned()], ..role });
            },
        );
        let user = world.cloud.identities().user.client_id.clone();
        let agent = Agent::ready(&world, &[], |text| {
            let text = text.replace("[sink.token]", "[sink.token]\nsession = \"web\"");
            format!(
                "{text}\n[session.ops]\nmount = \"azure\"\n[session.ops.cloud]\nrole = \"ops\"\n\
                 resource = \"{}\"\nclient_id = \"{user}\"\n[sink.ops]\nsession = \"ops\"\npath = \"FOLDER/ops\"\n\
                 [listener.ops]\naddress = \"unix://FOLDER/ops.sock\"\nsessions = [\"ops\"]\n",
                crate::harness::world::RESOURCE
            )
        });
        assert_ne!(agent.sink("token"), agent.sink("ops"));
        let status = agent.get("/agent/v1/status");
        let policies = |session: &str| status["sessions"][session]["policies"].to_string();
        assert!(policies("web").contains("web") && !policies("web").contains("ops"), "{status}");
        assert!(policies("ops").contains("ops") && !policies("ops").contains("web"), "{status}");
        // A listener of one session serves no token of the other.
        let (status, body) = ask(&agent.path("ops.sock"), "GET", "/agent/v1/token").unwrap();
        assert!(status == 200 && body.contains(&agent.sink("ops")), "{status}");
        assert_eq!(ask(&agent.path("ops.sock"), "GET", "/agent/v1/token?session=web").unwrap().0, 404);
    });
}
