//! Selection of the source by environment variables.

use super::*;
use crate::identity::IdentityErrorKind;
use crate::identity::{CloudEndpoints, LoginFields};

fn options(from: IdentityOrigin, variables: &str) -> CloudIdentityOptions {
    let variables = variables.split_whitespace().map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "x"));
        (name.to_owned(), value.to_owned())
    });
    let mut endpoints = CloudEndpoints::provider();
    endpoints.arc_agent = "/nonexistent".into();
    CloudIdentityOptions {
        resource: "https://management.azure.com/".to_owned(),
        scope: None,
        from,
        overrides: LoginFields::default(),
        variables: ProviderVariables::of_azure(variables),
        endpoints,
    }
}

fn description(from: IdentityOrigin, variables: &str) -> String {
    match select_source(&options(from, variables)) {
        Ok(choice) => choice.selected.describe(),
        Err(error) => {
            assert_eq!(error.kind, IdentityErrorKind::Config);
            format!("error: {}{}", error.message, error.hint.map(|hint| format!(" ({hint})")).unwrap_or_default())
        }
    }
}

/// Azure identity, key `authenticate_from_environment`: the provider's priority order.
#[test]
fn environment_variables_select_sources_in_the_order_of_azure_sdks() {
    let check = |variables: &str, expected: &str| {
        let description = description(IdentityOrigin::Environment, variables);
        assert!(description.starts_with(expected), "{variables}: {description}");
    };
    let who = "AZURE_TENANT_ID=t AZURE_CLIENT_ID=c";
    let at = "(client_id c in tenant t at login.microsoftonline.com)";
    check(&format!("{who} AZURE_CLIENT_SECRET=s"), &format!("client secret {at}"));
    check(&format!("{who} AZURE_CLIENT_CERTIFICATE_PATH=/c.pem"), &format!("client certificate {at}"));
    check(&format!("{who} AZURE_FEDERATED_TOKEN_FILE=/f"), &format!("workload identity {at}"));
    let all = format!("{who} AZURE_CLIENT_SECRET=s AZURE_CLIENT_CERTIFICATE_PATH=/c AZURE_FEDERATED_TOKEN_FILE=/f");
    check(&all, "client secret");
    check(&format!("{who} AZURE_CLIENT_CERTIFICATE_PATH=/c AZURE_FEDERATED_TOKEN_FILE=/f"), "client certificate");
    for stray in ["AZURE_USERNAME=u", "AZURE_PASSWORD=p"] {
        check(&format!("{who} AZURE_FEDERATED_TOKEN_FILE=/f {stray}"), &format!("workload identity {at}"));
    }
    check("", "metadata service");
    check("AZURE_CLIENT_ID=c", "metadata service (client_id c)");
    check("AZURE_CLIENT_ID=c AZURE_AUTHORITY_HOST=https://a/", "metadata service (client_id c)");
    let app = "IDENTITY_ENDPOINT=http://127.0.0.1/msi IDENTITY_HEADER=h";
    check(app, "App Service identity endpoint");
    check(&format!("{app} AZURE_CLIENT_ID=c"), "App Service identity endpoint (client_id c)");
    check(
        "AZURE_AUTHORITY_HOST=https://login.microsoftonline.us AZURE_FEDERATED_TOKEN_FILE=/f AZURE_TENANT_ID=t \
           AZURE_CLIENT_ID=c",
        "workload identity (client_id c in tenant t at login.microsoftonline.us)",
    );
    check(&format!("{all} AZURE_TOKEN_CREDENTIALS=prod"), "client secret");
    check(&format!("{all} AZURE_TOKEN_CREDENTIALS=WorkloadIdentityCredential"), "workload identity");
    check("AZURE_CLIENT_ID=c AZURE_TOKEN_CREDENTIALS=managedidentitycredential", "metadata service (client_id c)");
}

#[test]
fn an_incomplete_set_of_variables_is_an_error_that_names_the_missing_ones() {
    let check = |variables: &str, expected: &str| {
        let description = description(IdentityOrigin::Environment, variables);
        assert!(description.starts_with("error: ") && description.contains(expected), "{variables}: {description}");
    };
    check("AZURE_CLIENT_SECRET", "AZURE_TENANT_ID and AZURE_CLIENT_ID are missing");
    check("AZURE_CLIENT_SECRET AZURE_CLIENT_ID", "AZURE_TENANT_ID is missing");
    check("AZURE_CLIENT_CERTIFICATE_PATH AZURE_TENANT_ID", "AZURE_CLIENT_ID is missing");
    check("AZURE_FEDERATED_TOKEN_FILE AZURE_TENANT_ID", "AZURE_CLIENT_ID is missing");
    check(
        "AZURE_FEDERATED_TOKEN_FILE AZURE_TENANT_ID",
        "annotation azure.workload.identity/client-id of its service account",
    );
    check("AZURE_FEDERATED_TOKEN_FILE", "set all of them, or none");
    check("AZURE_TENANT_ID AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE");
    check("AZURE_TENANT_ID", "is missing, and so is AZURE_CLIENT_ID");
    check("AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_CLIENT_CERTIFICATE_PATH is missing");
    check("AZURE_USERNAME AZURE_PASSWORD AZURE_TENANT_ID AZURE_CLIENT_ID", "not supported");
    let workload = "AZURE_TENANT_ID AZURE_CLIENT_ID AZURE_FEDERATED_TOKEN_FILE";
    check(&format!("{workload} AZURE_USERNAME AZURE_PASSWORD"), "not supported");
    check(&format!("{workload} AZURE_USERNAME AZURE_TOKEN_CREDENTIALS=EnvironmentCredential"), "not supported");
    check("AZURE_USERNAME AZURE_FEDERATED_TOKEN_FILE AZURE_TENANT_ID", "not supported");
    check("AZURE_TOKEN_CREDENTIALS=dev", "cannot use");
    check("AZURE_TOKEN_CREDENTIALS=AzureCliCredential", "cannot use");
    check("AZURE_TOKEN_CREDENTIALS=WorkloadIdentityCredential", "AZURE_FEDERATED_TOKEN_FILE");
    check("AZURE_TOKEN_CREDENTIALS=EnvironmentCredential AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_SECRET or");
    let who = "AZURE_TENANT_ID AZURE_CLIENT_ID AZURE_CLIENT_SECRET";
    for host in ["http://login.example/", "login.example", "https://u:p@login.example/", "https://login.example/x"] {
        check(&format!("{who} AZURE_AUTHORITY_HOST={host}"), "AZURE_AUTHORITY_HOST is not an https URL");
    }
}

#[test]
fn the_kind_of_host_is_detected_by_its_variables_in_both_modes() {
    let check = |variables: &str, expected: &str| {
        for from in [IdentityOrigin::Instance(ManagedIdentity::System), IdentityOrigin::Environment] {
            let description = description(from, variables);
            assert!(description.contains(expected), "{variables}: {description}");
        }
    };
    check("IDENTITY_ENDPOINT=http://localhost:1/x IDENTITY_HEADER", "App Service");
    check("IDENTITY_ENDPOINT=http://localhost:1/x IMDS_ENDPOINT", "Arc agent");
    check("IDENTITY_ENDPOINT=http://arc.example/x IMDS_ENDPOINT", "not on loopback");
    check("IDENTITY_ENDPOINT=http://localhost:1/x", "IDENTITY_HEADER (App Service) or IMDS_ENDPOINT (Arc) is missing");
    check("IDENTITY_HEADER", "IDENTITY_ENDPOINT is missing");
    check("IDENTITY_ENDPOINT=nonsense IDENTITY_HEADER", "not an http URL");
    check("IDENTITY_ENDPOINT=http://x/ IDENTITY_HEADER IDENTITY_SERVER_THUMBPRINT", "Service Fabric");
    check("MSI_ENDPOINT=http://localhost:1/x MSI_SECRET", "App Service");
    check("MSI_ENDPOINT=http://localhost:1/x", "Cloud Shell");
    check("MSI_SECRET", "MSI_ENDPOINT is missing");
}

#[test]
fn instance_mode_reads_none_of_the_providers_login_variables() {
    let all = "AZURE_TENANT_ID AZURE_CLIENT_ID=other AZURE_CLIENT_SECRET AZURE_FEDERATED_TOKEN_FILE \
               AZURE_TOKEN_CREDENTIALS=dev AZURE_AUTHORITY_HOST=nonsense";
    assert_eq!(description(IdentityOrigin::Instance(ManagedIdentity::System), all), "metadata service");
    let named = IdentityOrigin::Instance(ManagedIdentity::ObjectId("mine".to_owned()));
    assert_eq!(description(named, all), "metadata service (object_id mine)");
}

#[test]
fn an_identity_that_the_host_cannot_give_is_an_error() {
    let arc = "IDENTITY_ENDPOINT=http://localhost:1/x IMDS_ENDPOINT";
    let client = || IdentityOrigin::Instance(ManagedIdentity::ClientId("c".to_owned()));
    let object = || IdentityOrigin::Instance(ManagedIdentity::ObjectId("o".to_owned()));
    assert!(description(client(), arc).contains("client_id cannot be used"));
    assert!(description(object(), arc).contains("object_id cannot be used"));
    assert!(
        description(IdentityOrigin::Environment, &format!("{arc} AZURE_CLIENT_ID=c"))
            .contains("client_id cannot be used")
    );
    let old = "MSI_ENDPOINT=http://localhost:1/x MSI_SECRET";
    assert!(description(object(), old).contains("object_id cannot be used"));
    assert!(description(client(), old).contains("client_id c"));
}

#[test]
fn the_arc_agents_program_identifies_an_arc_machine() {
    let mut options = options(IdentityOrigin::Instance(ManagedIdentity::System), "");
    options.endpoints.arc_agent = "/proc/self/exe".into();
    assert_eq!(select_source(&options).unwrap().selected.describe(), "Arc agent");
}

#[test]
fn each_skipped_source_has_a_reason() {
    let options = options(IdentityOrigin::Environment, "AZURE_TENANT_ID AZURE_CLIENT_ID AZURE_FEDERATED_TOKEN_FILE");
    let skipped = select_source(&options).unwrap().skipped;
    let description: Vec<String> = skipped.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    assert_eq!(
        description,
        [
            "client secret: AZURE_CLIENT_SECRET is not set",
            "client certificate: AZURE_CLIENT_CERTIFICATE_PATH is not set",
            "managed identity: it has the lowest precedence",
        ]
    );
}

/// azure-sdk-for-go, identity bindings: the proxy's variables are whole, or an error that names one.
#[test]
fn incomplete_variables_of_the_token_proxy_are_errors_that_name_one() {
    let who = "AZURE_TENANT_ID=t AZURE_CLIENT_ID=c AZURE_FEDERATED_TOKEN_FILE=/f";
    let check = |variables: &str, expected: &str| {
        let description = description(IdentityOrigin::Environment, &format!("{who} {variables}"));
        assert!(description.contains(expected), "{variables}: {description}");
    };
    let proxy = "AZURE_KUBERNETES_TOKEN_PROXY=https://10.0.0.1:6443/token";
    check(
        proxy,
        "workload identity (client_id c in tenant t at login.microsoftonline.com) by the token proxy 10.0.0.1:6443",
    );
    check(&format!("{proxy} AZURE_KUBERNETES_SNI_NAME=a.example AZURE_KUBERNETES_CA_FILE=/ca"), "by the token proxy");
    for name in ["SNI_NAME", "CA_FILE", "CA_DATA"] {
        check(
            &format!("AZURE_KUBERNETES_{name}=x"),
            &format!("error: AZURE_KUBERNETES_{name} is set, but AZURE_KUBERNETES_TOKEN_PROXY is missing"),
        );
    }
    check(
        &format!("{proxy} AZURE_KUBERNETES_CA_FILE=/ca AZURE_KUBERNETES_CA_DATA=x"),
        "error: AZURE_KUBERNETES_CA_FILE and AZURE_KUBERNETES_CA_DATA are both set",
    );
    check(&format!("{proxy} AZURE_KUBERNETES_SNI_NAME=a/b"), "error: AZURE_KUBERNETES_SNI_NAME is not a host name");
    for url in ["http://a/", "https://u@a/", "https://u:p@a/", "https://a/?b", "https://a/#b", "nonsense"] {
        check(
            &format!("AZURE_KUBERNETES_TOKEN_PROXY={url}"),
            "error: AZURE_KUBERNETES_TOKEN_PROXY is not an https URL of only host, port and path",
        );
    }
    let description = |variables: &str| description(IdentityOrigin::Environment, variables);
    assert!(
        description(proxy).contains("but AZURE_FEDERATED_TOKEN_FILE is missing"),
        "another identity must not take its place"
    );
    let secret = format!("{who} AZURE_CLIENT_SECRET=s AZURE_KUBERNETES_CA_FILE=/ca");
    assert!(description(&secret).starts_with("client secret"), "no exchange is made");
}
