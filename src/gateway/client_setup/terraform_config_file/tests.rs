use std::time::SystemTime;

use keyward_credentials::credential_watch::credential_channel;
use keyward_machine::clock::TestClock;

use super::*;

fn options(folder: &Path, token_kind: ClientTokenKind) -> TerraformConfigFileOptions {
    TerraformConfigFileOptions {
        file: folder.join("zz-keyward.tfrc.json"),
        attributes: Attributes { mode: 0o600, owner: None, group: None },
        host: ServiceHost::parse("app.terraform.io").unwrap(),
        token_kind,
    }
}

fn local(token: &str, host: &ServiceHost) -> String {
    let (publisher, watch) = credential_channel("none");
    let accepted = AcceptedTokens { current: SecretString::from(token), created: SystemTime::now(), previous: None };
    publisher.publish(Availability::Available(accepted.into()), None);
    ClientTokenSource::Local(watch, "http://127.0.0.1:8800".to_owned()).render(host).unwrap()
}

fn platform(token: &str, host: &ServiceHost) -> String {
    let (publisher, watch) = credential_channel("none");
    let taken = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
    let token = PlatformToken::parse(SecretString::from(token), taken).unwrap();
    publisher.publish(Availability::Available(token.into()), None);
    ClientTokenSource::Platform(watch).render(host).unwrap()
}

#[test]
fn only_files_of_keyward_are_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), ClientTokenKind::LocalToken);
    let read = || -> Value { serde_json::from_str(&std::fs::read_to_string(&options.file).unwrap()).unwrap() };
    for token in ["one", "two"] {
        write(&options, &local(token, &options.host)).unwrap();
        assert_eq!(read()["credentials"]["app.terraform.io"]["token"], token);
    }
    for host in ["app.terraform.io", "localterraform.com"] {
        assert_eq!(read()["host"][host]["services"]["tfe.v2"], "http://127.0.0.1:8800/api/v2/");
    }
    assert_eq!(read()["credentials"].as_object().unwrap().len(), 1);
    // A file of an earlier version has one host.
    let mut earlier = read();
    earlier["host"].as_object_mut().unwrap().remove("localterraform.com");
    std::fs::write(&options.file, earlier.to_string()).unwrap();
    write(&options, &local("two", &options.host)).unwrap();
    let other = TerraformConfigFileOptions { host: ServiceHost::parse("tfe.example.com").unwrap(), ..options.clone() };
    write(&other, &local("three", &other.host)).unwrap();
    write(&options, &platform("four", &options.host)).unwrap();
    assert_eq!(read_token(&options.file, &options.host).unwrap().expose_secret(), "four");
    assert!(matches!(read_token(&options.file, &other.host), Err(TerraformConfigFileError::Missing { .. })));
    for not_managed in [
        r#"{"credentials":{"app.terraform.io":{"token":"mine"}}}"#,
        r#"{"host":{"a":{"services":{}}},"credentials":{"b":{"token":"mine"}}}"#,
        r#"{"host":{"a":{"services":{}}},"credentials":{"a":{"token":"mine"},"b":{"token":"mine"}}}"#,
        r#"{"host":{"localterraform.com":{"services":{}}},"credentials":{"a":{"token":"mine"}}}"#,
        r#"{"host":{"a":{"services":{}},"b":{"services":{}}},"credentials":{"a":{"token":"mine"}}}"#,
        r#"{"//":"my own","credentials":{"app.terraform.io":{"token":"mine"}}}"#,
        "plugin_cache_dir = \"x\"",
        "",
    ] {
        std::fs::write(&options.file, not_managed).unwrap();
        for result in [write(&options, "{}"), remove(&options), read_token(&options.file, &options.host).map(drop)] {
            let error = result.unwrap_err();
            assert!(matches!(error, TerraformConfigFileError::NotManaged { .. }), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&options.file).unwrap(), not_managed);
    }
}

#[test]
fn a_file_with_the_platform_token_has_no_services_and_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), ClientTokenKind::PlatformToken);
    write(&options, &platform("a-token", &options.host)).unwrap();
    let text = std::fs::read_to_string(&options.file).unwrap();
    assert!(text.contains("a-token") && !text.contains("services"), "{text}");
    remove(&options).unwrap();
    assert!(!options.file.exists());
    remove(&options).unwrap();
}
