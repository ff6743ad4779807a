//! Commands that `keyward init` prints, and values that it refuses: nothing of the machine is taken from others.

use super::init::{MachineKind, VM};

fn template(destination: &str) -> String {
    format!("{VM} --group app --template /etc/keyward/a.tmpl --destination {destination}")
}

#[test]
fn a_folder_that_exists_keeps_its_owner_and_mode_and_a_missing_one_is_made() {
    let machine = MachineKind::new();
    std::fs::create_dir_all(machine.path("etc/app")).unwrap();
    let (code, output, error) = machine.init(&template("/etc/app/a.conf"));
    assert_eq!(code, 0, "{error}");
    assert!(output.contains("\nsudo setfacl -m u:keyward:rwx /etc/app "), "{output}");
    assert!(!output.contains("install -d"), "{output}");
    let machine = MachineKind::new();
    let (_, output, _) = machine.init(&template("/etc/app/a.conf"));
    // Somebody may make the folder later: of an image a package, which is not installed yet.
    let command = "\nif test -d /etc/app; then sudo setfacl -m u:keyward:rwx /etc/app; else sudo install -d -m 750 -o keyward -g app /etc/app; fi ";
    assert!(output.contains(command), "{output}");
    let (_, output, _) = MachineKind::new().init(&format!("{} --dry-run", template("/etc/app/a.conf")));
    assert!(output.contains(command), "{output}");
    // The folder of another user stays that user's.
    let (_, output, _) = MachineKind::new().init("terraform --upstream https://tfe.example.com --user ci");
    let commands = "\nsudo -u ci mkdir -p /home/ci/.terraform.d\nsudo setfacl -m u:keyward:rwx /home/ci/.terraform.d ";
    assert!(output.contains(commands) && !output.contains("install -d"), "{output}");
}

#[test]
fn a_destination_directly_in_a_folder_of_the_system_is_refused() {
    for destination in ["/etc/app.conf", "/usr/lib/app.conf", "/home/ci/app.conf", "/run/app.conf"] {
        let machine = MachineKind::new();
        let (code, output, error) = machine.init(&template(destination));
        assert_eq!((code, output.as_str()), (3, ""), "{destination}: {error}");
        let folder = destination.strip_suffix("/app.conf").unwrap();
        let expected = format!("error: template.app.destination: keyward would have to write all of {folder}, ");
        assert!(error.contains(&expected) && error.contains("nothing is written"), "{error}");
        assert_eq!(machine.files(), Vec::<String>::new());
    }
}

#[test]
fn a_token_does_not_go_to_a_folder_of_others() {
    let machine = MachineKind::new();
    std::fs::create_dir_all(machine.path("srv/app")).unwrap();
    let (code, output, error) = machine.init(&format!("{VM} --token-file /srv/app/token"));
    assert_eq!((code, output.as_str()), (3, ""), "{error}");
    assert!(error.contains("sink.token.path: /srv/app exists and is not user keyward's"), "{error}");
    let (code, output, error) = machine.init(&format!("{VM} --token-file /srv/new/token"));
    assert_eq!(code, 0, "{error}");
    assert!(output.contains("sudo install -d -m 750 -o keyward -g keyward /srv/new; fi"), "{output}");
}

#[test]
fn a_group_reaches_the_key_of_the_tcp_listener() {
    let (code, output, error) = MachineKind::new().init(&format!("{VM} --tcp-port 8300 --group app"));
    assert_eq!(code, 0, "{error}");
    assert!(output.contains("\nsudo setfacl -m g:app:x /etc/keyward "), "{output}");
    let (_, output, _) = MachineKind::new().init(&format!("{VM} --tcp-port 8300"));
    assert!(!output.contains("setfacl"), "{output}");
}

#[test]
fn the_platform_token_is_not_in_a_folder_that_a_stop_of_the_service_empties() {
    let machine = MachineKind::new();
    let (code, output, error) = machine.init("terraform --upstream https://tfe.example.com");
    assert_eq!(code, 0, "{error}");
    let config = machine.read("etc/keyward/keyward.toml");
    assert!(config.contains("token_file = \"/etc/keyward/platform.token\"\n"), "{config}");
    assert!(output.contains("sudo tee /etc/keyward/platform.token "), "{output}");
}

#[test]
fn names_of_the_acl_server_have_no_dots() {
    let machine = MachineKind::new();
    let (code, output, error) =
        machine.init("acl --tenant 77777777-7777-7777-7777-777777777777 --role web.prod --subscription 88888888-8888-8888-8888-888888888888 --resource-group web");
    assert_eq!((code, output.as_str()), (3, ""), "{error}");
    assert!(error.contains("\"web.prod\" is not a name"), "{error}");
    for (role, mount, flag) in [("web.prod", "azure", "--role web.prod"), ("web", "a.b", "--mount a.b")] {
        let flags = format!("azure-vm --server https://a.example --server-kind keyward --role {role} --mount {mount}");
        let (code, output, error) = machine.init(&flags);
        assert_eq!((code, output.as_str()), (1, ""), "{flags}");
        assert!(error.contains(&format!("error: {flag}: not a name of the ACL server")), "{error}");
    }
    // The auth methods of Vault and OpenBao are no tables.
    let (code, _, error) = machine.init("azure-vm --server https://a.example --role web.prod --mount a.b");
    assert_eq!(code, 0, "{error}");
}
