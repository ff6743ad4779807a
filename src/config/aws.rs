//! `[session.NAME.aws]`: the `aws` method, a signed request for the caller's identity.

use keyward_agent::identity::{
    AwsCredentialOrigin, AwsEndpoints, AwsIdentityOptions, ProviderVariables, is_aws_region,
};
use keyward_machine::clock::Clock;

use super::PathUse;
use super::reader::Reader;
use super::values::{self, ValueError, invalid};

/// Reads the method's parameters. Returns the role, if the method has one, and the identity source.
pub(super) fn read(mut reader: Reader<'_>) -> (String, AwsIdentityOptions) {
    let role = super::cloud::role(&mut reader, true);
    let options = AwsIdentityOptions {
        origin: origin(&mut reader),
        server_id: reader.parse_text("server_id", server_id),
        region: reader.parse_text("region", region),
        variables: ProviderVariables::of_aws(reader.scope.environment.variables.clone()),
        endpoints: AwsEndpoints::provider(),
    };
    if let Err(error) = options.build(Clock::System) {
        let advice = "fix it on the machine that runs the agent";
        reader.scope.diagnostics.missing_on_host(reader.at, &reader.path, error.to_string(), advice);
    }
    reader.finish();
    (role, options)
}

/// Keyword of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Automatic,
    Environment,
    WebIdentity,
    Container,
    Instance,
}

const ORIGINS: [(&str, Origin); 5] = [
    ("automatic", Origin::Automatic),
    ("environment", Origin::Environment),
    ("web_identity", Origin::WebIdentity),
    ("container", Origin::Container),
    ("instance", Origin::Instance),
];

impl Origin {
    const fn to_credentials(self) -> AwsCredentialOrigin {
        match self {
            Self::Automatic => AwsCredentialOrigin::Automatic,
            Self::Environment => AwsCredentialOrigin::Environment,
            Self::WebIdentity => AwsCredentialOrigin::WebIdentity,
            Self::Container => AwsCredentialOrigin::Container,
            Self::Instance => AwsCredentialOrigin::Instance,
        }
    }
}

fn origin(reader: &mut Reader<'_>) -> AwsCredentialOrigin {
    let chosen = reader.choice("credentials", &ORIGINS);
    let profile = reader.value("profile");
    let file = reader.text("credentials_file").and_then(|text| {
        let path = reader.parse(&text, values::secret_file_path)?;
        reader.record_path(&text, &path, PathUse::ReadSecret);
        reader.warn_if_readable_by_others(&text, &path);
        Some(path)
    });
    let Some(file) = file else {
        if reader.locate("profile").is_some() && reader.locate("credentials_file").is_none() {
            reader.missing("credentials_file", "the file with the profile: a service has no home folder to search");
        }
        return chosen.map(Origin::to_credentials).unwrap_or_default();
    };
    if chosen.is_some() {
        reader.conflict("credentials", "credentials_file", "the credentials come from the profile of the file");
    }
    AwsCredentialOrigin::Profile { file, name: profile.unwrap_or_else(|| "default".to_owned()) }
}

pub(super) fn region(text: &str) -> Result<String, ValueError> {
    if is_aws_region(text) {
        return Ok(text.to_owned());
    }
    invalid("is not the name of a region", "write a region such as \"eu-west-1\"")
}

fn server_id(text: &str) -> Result<String, ValueError> {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    invalid("does not fit into a header", "write iam_server_id_header_value of the server's method, without spaces")
}
