//! `[session.NAME.cloud]`: the `cloud` method, with the parameters and rules of its specification.

use keyward_agent::identity::{
    CloudEndpoints, CloudIdentityOptions, IdentityError, IdentityOrigin, LoginFields, ManagedIdentity,
    ProviderVariables,
};
use keyward_machine::clock::Clock;
use keyward_telemetry::error_code::ErrorCode;

use super::reader::Reader;

/// Reads the method's parameters. Returns the role, if the method has one, and the identity source.
pub(super) fn read(mut reader: Reader<'_>, wants_role: bool) -> (String, CloudIdentityOptions) {
    let role = role(&mut reader, wants_role);
    let meaning = "the resource to request an identity token for, such as \"https://management.azure.com/\"";
    let resource = reader.required("resource", meaning).map(|text| text.value).unwrap_or_default();
    let scope = reader.text("scope");
    let from_environment = reader.flag("authenticate_from_environment", false);
    let from = identity(&mut reader, from_environment);
    let overrides = LoginFields {
        subscription_id: reader.value("subscription_id"),
        resource_group_name: reader.value("resource_group_name"),
        vm_name: reader.value("vm_name"),
        vmss_name: reader.value("vmss_name"),
        resource_id: reader.value("resource_id"),
    };
    let mut options = CloudIdentityOptions {
        resource,
        scope: None,
        from,
        overrides,
        variables: ProviderVariables::of_azure(reader.scope.environment.variables.clone()),
        endpoints: CloudEndpoints::provider(),
    };
    if let Some(scope) = scope.as_ref().filter(|scope| !scope.unknown)
        && !from_environment
        && !options.resource.is_empty()
        && scope.value != options.environment_scope()
    {
        let message = "ignored: a managed identity is requested for resource";
        let advice = "leave it out, or set authenticate_from_environment = true";
        reader.scope.diagnostics.warning(scope.at, &scope.key, (ErrorCode::SettingIgnored, message), advice);
    }
    options.scope = scope.map(|scope| scope.value);
    report_variables(&reader, options.build(Clock::System).map(drop));
    reader.finish();
    (role, options)
}

/// Reads an identity for tools, whose resource is that of each token.
pub(super) fn read_for_tools(mut reader: Reader<'_>) -> CloudIdentityOptions {
    let from_environment = reader.flag("authenticate_from_environment", false);
    let from = identity(&mut reader, from_environment);
    let options = CloudIdentityOptions {
        resource: String::new(),
        scope: None,
        from,
        overrides: LoginFields::default(),
        variables: ProviderVariables::of_azure(reader.scope.environment.variables.clone()),
        endpoints: CloudEndpoints::provider(),
    };
    report_variables(&reader, options.build(Clock::System).map(drop));
    reader.finish();
    options
}

/// Reports variables of the machine from which no identity can be built.
pub(super) fn report_variables(reader: &Reader<'_>, built: Result<(), IdentityError>) {
    if let Err(error) = built {
        let advice = "fix it on the machine that runs the agent";
        reader.scope.diagnostics.missing_on_host(reader.at, &reader.path, error.to_string(), advice);
    }
}

/// The role; a server that binds by rules has none.
pub(super) fn role(reader: &mut Reader<'_>, is_required: bool) -> String {
    if is_required {
        let role = reader.required("role", "the role to log in as");
        return role.map(|text| text.value).unwrap_or_default();
    }
    if let Some(at) = reader.locate("role") {
        let message = "not allowed for a server of the kind consul, whose binding rules decide the rights of a login";
        reader.error(at, "role", message, "leave it out");
    }
    String::new()
}

fn identity(reader: &mut Reader<'_>, from_environment: bool) -> IdentityOrigin {
    let object_id = reader.text("object_id");
    let client_id = reader.text("client_id");
    if let (Some(object), Some(client)) = (&object_id, &client_id) {
        let second = if object.at > client.at { object } else { client };
        let message = "set only one of object_id and client_id";
        reader.scope.diagnostics.error(second.at, &second.key, message, "keep the one that names the managed identity");
    }
    if from_environment {
        for ignored in [&object_id, &client_id].into_iter().flatten() {
            let message = "ignored, because authenticate_from_environment is true";
            let advice = "leave it out, or name the identity by the variable AZURE_CLIENT_ID";
            reader.scope.diagnostics.warning(ignored.at, &ignored.key, (ErrorCode::SettingIgnored, message), advice);
        }
        return IdentityOrigin::Environment;
    }
    IdentityOrigin::Instance(match (object_id, client_id) {
        (Some(id), _) => ManagedIdentity::ObjectId(id.value),
        (None, Some(id)) => ManagedIdentity::ClientId(id.value),
        (None, None) => ManagedIdentity::System,
    })
}
