//! `keyward init aks`: the manifest, its configuration, and a sidecar that runs with both.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyward_emulators::secrets::{Bounds, Role};
use serde_json::json;

use super::init::{assert_checked, run_line};
use crate::harness::binary::{Binary, eventually, run};
use crate::harness::world::{World, run_in_network_namespace};

const AKS: &str = "init aks --server https://bao.example.com:8200 --server-kind openbao --role shop";
const IDS: &str = "--client-id 11111111-1111-1111-1111-111111111111 --tenant 33333333-3333-3333-3333-333333333333";
/// The identifiers of the packaged manifests.
const NO_IDS: &str = "--client-id 00000000-0000-0000-0000-000000000000 --tenant 00000000-0000-0000-0000-000000000000";

/// A folder with files for the command and with what it writes.
struct Setup(tempfile::TempDir);

impl Setup {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file; returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    /// Runs the command, which must succeed; returns what it prints and the manifest.
    #[track_caller]
    fn written(&self, line: &str) -> (String, String) {
        // Before the flags of the line, which may end with the application's command.
        let out = format!("init aks --force --out {}", self.0.path().display());
        let (code, output, error) = run_line(&line.replacen("init aks", &out, 1));
        assert_eq!(code, 0, "{line}: {output}{error}");
        (output, std::fs::read_to_string(self.path("keyward.yaml")).unwrap())
    }

    /// Puts the files of the manifest's `ConfigMap` into a folder as the kubelet does; returns it.
    fn mount_config(&self, manifest: &str, edit: impl Fn(&str) -> String) -> PathBuf {
        let volume = self.path("volume");
        let data = volume.join("..2026");
        std::fs::create_dir_all(&data).unwrap();
        for (key, text) in config_map(manifest) {
            std::fs::write(data.join(&key), edit(&text)).unwrap();
            std::fs::set_permissions(data.join(&key), std::fs::Permissions::from_mode(0o644)).unwrap();
            symlink(Path::new("..data").join(&key), volume.join(&key)).unwrap();
        }
        symlink("..2026", volume.join("..data")).unwrap();
        volume
    }
}

/// Files of the `ConfigMap` in a manifest.
fn config_map(manifest: &str) -> Vec<(String, String)> {
    let (_, rest) = manifest.split_once("\ndata:\n").unwrap();
    let (block, _) = rest.split_once("\n---\n").unwrap();
    let mut files: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("    ") {
            None if line.is_empty() => files.last_mut().unwrap().1.push('\n'),
            None => files.push((line.trim().strip_suffix(": |").expect("a block").to_owned(), String::new())),
            Some(text) => files.last_mut().unwrap().1.extend([text, "\n"]),
        }
    }
    files
}

fn parts<'a>(manifest: &'a str, kind: &str) -> Vec<&'a str> {
    manifest.split("\n---\n").filter(|part| part.contains(&format!("\nkind: {kind}\n"))).collect()
}

#[test]
fn the_packaged_manifests_are_what_it_writes() {
    let setup = Setup::new();
    for (name, role, flags) in [
        ("sidecar", "web", ""),
        ("sidecar-job", "report", " --kind job --name report --app-image registry.example.com/report:1.0.0"),
    ] {
        let line = format!(
            "init aks --server https://secrets.example.com:8200 --server-kind openbao --role {role} {NO_IDS}{flags}"
        );
        let (_, manifest) = setup.written(&line);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/kubernetes").join(format!("{name}.yaml"));
        let packaged = std::fs::read_to_string(&path).unwrap();
        assert!(
            packaged == manifest,
            "packaging/kubernetes/{name}.yaml is not what this writes: keyward {line}\n{manifest}"
        );
    }
}

#[test]
fn names_identifiers_and_images_are_the_given_ones_and_the_configuration_passes_the_check() {
    let setup = Setup::new();
    for (more, image) in [
        ("", "registry.example.com/keyward:0.1.0"),
        ("--image r.example/k:1 --app-image r.example/a:2", "r.example/k:1"),
    ] {
        let (output, manifest) = setup.written(&format!("{AKS} {IDS} --name shop --namespace sales {more}"));
        let advice = "put your images into keyward.yaml in place of registry.example.com, or run this again with --image and --app-image";
        assert_eq!(output.contains(advice), more.is_empty(), "{output}");
        let config = setup.mount_config(&manifest, str::to_owned).join("keyward.toml");
        assert_checked(&config);
        std::fs::remove_dir_all(setup.path("volume")).unwrap();
        let count = |text: &str| manifest.matches(text).count();
        assert_eq!(
            (
                count("11111111-1111-1111-1111-111111111111"),
                count("33333333-3333-3333-3333-333333333333"),
                count(&format!("image: {image}\n")),
                count("namespace: sales\n"),
                count("name: shop-keyward\n"),
                count("https://bao.example.com:8200"),
            ),
            (2, 1, 1, 3, 2, 1),
            "{manifest}"
        );
        assert!(!manifest.contains(": web\n"), "{manifest}");
        for command in [
            "az identity federated-credential create",
            "system:serviceaccount:sales:shop",
            "bao auth enable -path=azure azure",
            "kubectl apply -f keyward.yaml",
            "kubectl rollout status --namespace sales deployment/shop",
            "kubectl logs --namespace sales deployment/shop --container keyward",
        ] {
            assert!(output.contains(command), "{command}: {output}");
        }
        // The role is bound to the identity, so that the server asks Azure nothing.
        assert!(!output.contains("client_secret") && output.contains("bound_service_principal_ids="), "{output}");
    }
}

#[test]
fn the_application_is_given_nothing_but_its_files() {
    let setup = Setup::new();
    let template = setup.file("a.tmpl", "x");
    let (_, manifest) = setup.written(&format!("{AKS} {IDS} --template {template} --destination /etc/app/a.conf"));
    let (_, rest) = manifest.split_once("\n      containers:\n").unwrap();
    let (application, _) = rest.split_once("\n      volumes:\n").unwrap();
    let keys: Vec<&str> = application.lines().map(str::trim).filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "- name: web",
        "image: registry.example.com/web:1.0.0",
        "volumeMounts:",
        "- name: keyward-run",
        "mountPath: /run/keyward",
        "readOnly: true",
        "- name: keyward-folder-1",
        "mountPath: /etc/app",
        "readOnly: true",
    ];
    assert_eq!(keys, expected);
    assert!(!manifest.contains("fsGroup"), "{manifest}");
    let (pod, _) = manifest.split_once("\n      initContainers:\n").unwrap();
    assert!(!pod.contains("runAsNonRoot"), "the pod decides for every container: {pod}");
}

#[test]
fn templates_and_the_ca_go_into_the_config_map_without_a_key_or_a_path_of_this_machine() {
    let setup = Setup::new();
    let block = |kind: &str, text: &str| format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n");
    let ca = setup.file("ca.crt", &(block("CERTIFICATE", "QUFB") + &block("PRIVATE KEY", "QkJC")));
    let one = "{{ with secret \"secret/data/shop/db\" }}\n  password = {{ .Data.data.password }}\n{{ end }}\n";
    let (first, second) = (setup.file("one.tmpl", one), setup.file("two.tmpl", " {{ \"two\" }}\t\u{2028}"));
    let line = format!(
        "{AKS} {IDS} --ca-file {ca} --template {first} --destination app.conf --template {second} --destination /vault/secrets/db/app.conf"
    );
    let (output, manifest) = setup.written(&line);
    assert!(!manifest.contains("PRIVATE") && !manifest.contains(&setup.0.path().display().to_string()), "{manifest}");
    assert!(output.contains("-- ls -l /vault/secrets/db/app.conf\n"), "{output}");
    assert!(manifest.contains("\n  app-conf-2.tmpl: \" {{ \\\"two\\\" }}\\U00000009\\U00002028\"\n"), "{manifest}");
    let manifest = manifest.replace("\n  app-conf-2.tmpl: \" {{ \\\"two\\\" }}\\U00000009\\U00002028\"\n", "\n");
    let files = config_map(&manifest);
    let keys: Vec<&str> = files.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["keyward.toml", "ca.pem", "app-conf.tmpl"]);
    assert_eq!((files[1].1.as_str(), files[2].1.as_str()), (block("CERTIFICATE", "QUFB").as_str(), one));
    for text in [
        "ca_file = \"/etc/keyward/ca.pem\"\n",
        "[template.app-conf]\nsource = \"/etc/keyward/app-conf.tmpl\"\ndestination = \"/run/keyward/app.conf\"\n",
        "[template.app-conf-2]\nsource = \"/etc/keyward/app-conf-2.tmpl\"\ndestination = \"/vault/secrets/db/app.conf\"\n",
    ] {
        assert!(files[0].1.contains(text), "{text}: {}", files[0].1);
    }
    assert!(!files[0].1.contains("[sink."), "nobody asked for the token: {}", files[0].1);
    let (_, with_token) = setup.written(&format!("{line} --token-file token"));
    assert!(with_token.contains("    [sink.token]\n    path = \"/run/keyward/token\"\n"), "{with_token}");
}

#[test]
fn a_changed_template_changes_the_pods_of_a_deployment_and_a_job_ends_and_revokes() {
    let setup = Setup::new();
    let hash = |text: &str| {
        let template = setup.file("a.tmpl", text);
        let (_, manifest) = setup.written(&format!("{AKS} {IDS} --template {template} --destination a"));
        manifest.lines().find_map(|line| line.trim().strip_prefix("keyward.dev/config-hash: ")).unwrap().to_owned()
    };
    assert_eq!(hash("one"), hash("one"));
    assert_ne!(hash("one"), hash("two"));
    let (output, manifest) = setup.written(&format!("{AKS} {IDS} --kind job --name report -- /bin/sh -c true"));
    let [job] = parts(&manifest, "Job")[..] else { panic!("{manifest}") };
    for text in [
        "restartPolicy: OnFailure\n",
        "restartPolicy: Always\n",
        "backoffLimit: 3\n",
        "command: [\"/bin/sh\", \"-c\", \"true\"]\n",
    ] {
        assert!(job.contains(text), "{text}: {job}");
    }
    assert!(!job.contains("config-hash") && manifest.contains("    revoke_on_exit = true\n"), "{manifest}");
    assert!(output.contains("kubectl wait --namespace default --for=condition=complete job/report"), "{output}");
}

#[test]
fn a_token_of_the_service_account_logs_in_without_azure() {
    let setup = Setup::new();
    for (method, audience, command) in [
        ("jwt", "openbao", "bound_subject=system:serviceaccount:default:shop-account"),
        (
            "kubernetes",
            "vault",
            "bound_service_account_names=shop-account bound_service_account_namespaces=default audience=vault",
        ),
    ] {
        let audience_flag = if audience == "vault" { "--audience vault" } else { "" };
        let (output, manifest) = setup
            .written(&format!("{AKS} --method {method} {audience_flag} --name shop --service-account shop-account"));
        assert!(output.contains(command) && output.contains(&format!("write auth/{method}/role/shop")), "{output}");
        assert!(manifest.contains(&format!("audience: {audience}\n")) && !manifest.contains("AZURE_"), "{manifest}");
        let config = setup.mount_config(&manifest, str::to_owned).join("keyward.toml");
        assert_checked(&config);
        let text = std::fs::read_to_string(&config).unwrap();
        let table = format!("[session.main.{method}]\nrole = \"shop\"\nfile = \"/var/run/secrets/keyward/token\"\n");
        assert!(text.contains(&table) && text.contains(&format!("mount = \"{method}\"\n")), "{text}");
        std::fs::remove_dir_all(setup.path("volume")).unwrap();
    }
}

#[test]
fn an_identity_binding_leaves_the_token_to_azure_and_the_application_without_one() {
    let (output, manifest) =
        Setup::new().written(&format!("{AKS} {IDS} --identity-binding --name shop --namespace sales"));
    for text in [
        "azure.workload.identity/use: \"true\"\n",
        "azure.workload.identity/use-identity-binding: \"true\"\n",
        "azure.workload.identity/skip-containers: shop\n",
        "resources: [\"11111111-1111-1111-1111-111111111111\"]\n",
        "verbs: [\"use-managed-identity\"]\n",
    ] {
        assert!(manifest.contains(text), "{text}: {manifest}");
    }
    assert!(!manifest.contains("AZURE_FEDERATED_TOKEN_FILE") && !manifest.contains("keyward-identity\n"), "{manifest}");
    assert!(output.contains("az aks identity-binding create") && !output.contains("federated-credential"), "{output}");
}

#[test]
fn values_that_no_pod_can_have_are_errors_that_name_their_flag() {
    let setup = Setup::new();
    let good = setup.file("good.tmpl", "x");
    let bad = setup.file("bad.tmpl", "{{ with secret \"a\" }}\n{{ nonsense }}{{ end }}");
    let none = setup.file("none.pem", "none");
    let cases = [
        ("--name Shop".to_owned(), "--name"),
        ("--name shop.prod".to_owned(), "--name"),
        ("--name keyward".to_owned(), "--name keyward: the sidecar's container has this name"),
        ("--namespace sales_eu".to_owned(), "--namespace"),
        ("--service-account=-a".to_owned(), "--service-account"),
        ("--image Registry/Keyward:1".to_owned(), "--image"),
        ("--file-mode 0999".to_owned(), "--file-mode"),
        ("--resource-group a$b".to_owned(), "--resource-group"),
        (format!("--template {good}"), "--template is given 1 times and --destination 0 times"),
        (
            format!("--template {good} --destination /etc/app.conf"),
            "--destination /etc/app.conf: a volume would hide the folder /etc",
        ),
        (format!("--template {good} --destination ../a"), "--destination ../a: name a file by its path"),
        (format!("--template {good} --destination a --token-file a"), "--destination /run/keyward/a: another file"),
        ("--template /none --destination a".to_owned(), "--template /none: No such file"),
        (format!("--template {bad} --destination a"), "bad.tmpl: line 2, column 4: "),
        (format!("--ca-file {none}"), "none.pem: holds no certificate"),
        ("--ca-file /none".to_owned(), "--ca-file /none: No such file"),
        ("--audience vault".to_owned(), "--audience is for --method jwt and kubernetes"),
        ("--method jwt".to_owned(), "--client-id is for --method azure"),
    ];
    for (flags, expected) in cases {
        let (code, output, error) = run_line(&format!("{AKS} {IDS} {flags} --out {}", setup.0.path().display()));
        assert_eq!((code, output.as_str()), (1, ""), "{flags}: {error}");
        assert!(error.contains(expected), "{flags}: {error}");
    }
    for ids in ["--client-id shop-identity", "--tenant contoso.example"] {
        let (code, _, error) = run_line(&format!("{AKS} {ids} --dry-run"));
        assert!(code == 1 && error.contains("invalid value"), "{error}");
    }
    assert!(!setup.path("keyward.yaml").exists());
}

/// The sidecar of a manifest, in folders in place of the pod's.
#[test]
fn the_sidecar_of_the_manifest_ends_with_a_secret_in_a_file() {
    run_in_network_namespace(|| {
        let world = World::with(
            |_| (),
            |cloud, secrets| {
                let bounds = Bounds {
                    service_principal_ids: vec![cloud.identities().workload.object_id.clone()],
                    ..Bounds::default()
                };
                secrets
                    .roles
                    .insert("shop".to_owned(), Role { policies: vec!["web".to_owned()], bounds, ..Role::default() });
            },
        );
        world.put("web/db", &json!({"password": "correct horse"}));
        let setup = Setup::new();
        let template = setup
            .file("app.tmpl", "password={{ with secret \"secret/data/web/db\" }}{{ .Data.data.password }}{{ end }}\n");
        let server = world.secrets.url();
        let line = format!(
            "init aks --server {server} --role shop {IDS} --template {template} --destination db/app.conf --token-file token --name shop"
        );
        let (_, manifest) = setup.written(&line);
        let root = setup.0.path().display().to_string();
        let edit = |text: &str| {
            text.replace("/etc/keyward/", &format!("{root}/volume/"))
                .replace("/run/keyward/", &format!("{root}/run/"))
                .replace("/var/lib/keyward/", &format!("{root}/"))
        };
        let config = setup.mount_config(&manifest, edit).join("keyward.toml");
        // As an emptyDir is: everybody may write.
        std::fs::create_dir(setup.path("run")).unwrap();
        std::fs::set_permissions(setup.path("run"), std::fs::Permissions::from_mode(0o777)).unwrap();
        let mut variables: Vec<(String, String)> = world.cloud.variables_for_workload_identity().into_iter().collect();
        variables.push(("SSL_CERT_FILE".to_owned(), world.cloud.ca_file().display().to_string()));
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let sidecar = Binary::start(&["run", "--config", config.to_str().unwrap()], &variables, setup.0.path());
        let file = setup.path("run/db/app.conf");
        let text = eventually(Duration::from_secs(30), || {
            std::fs::read_to_string(&file).map_err(|error| format!("{error}: {}", sidecar.output()))
        });
        assert_eq!(text, "password=correct horse\n");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        sidecar.logs("agent.ready");
        // As the pod of `helm test` asks, by an address that is not loopback; nothing else may be asked there.
        let address = "http://169.254.169.254:8301";
        let (code, output, error) = run(&["wait", "--address", address], &[]);
        assert_eq!(code, 0, "{output}{error}");
        let (code, output, error) = run(&["token", "--address", address], &[]);
        assert!(code == 1 && output.is_empty() && error.contains("not on this machine"), "{output}{error}");
        // As `kubectl exec` asks.
        let (code, output, error) = run(&["status", "--config", config.to_str().unwrap()], &[]);
        assert!(code == 0 && output.contains("main"), "{output}{error}");
        assert!(!sidecar.output().contains("correct horse"));
    });
}
