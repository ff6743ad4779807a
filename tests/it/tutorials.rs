//! The guides for people: their commands run, their configurations pass the check, and the files that they name exist.

mod expected_output;

use std::path::Path;
use std::process::Command;

use crate::harness::binary::run;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The fenced blocks of this language in a document, without their fences.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    let text = read(document);
    let rest = text.split(start.as_str()).skip(1);
    let blocks: Vec<_> = rest.map(|rest| rest.split_once("```").unwrap().0.to_owned()).collect();
    assert!(!blocks.is_empty(), "{document} has no block of {language}");
    blocks
}

#[expect(
    clippy::disallowed_methods,
    reason = "the shell needs the path to the system's programs; the developer says what to write"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A line that the script prints before each block.
const MARK: &str = "@@ block";

/// Runs the shell blocks of a tutorial in order, in an empty folder, and compares the output of each with the block of text under it;
/// returns their output. With INSTA_UPDATE=always it writes outputs that differ into the tutorial.
fn follow(document: &str) -> String {
    follow_in(document, tempfile::tempdir().unwrap().path())
}

/// The same in this folder, which is empty.
fn follow_in(document: &str, folder: &Path) -> String {
    let script = folder.join("tutorial.sh");
    let commands: Vec<String> = blocks(document, "sh").iter().map(|block| format!("echo '{MARK}'\n{block}")).collect();
    std::fs::write(&script, commands.concat()).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_keyward")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), variable("PATH").unwrap());
    let printed = folder.join("printed.txt");
    let output = std::fs::File::create(&printed).unwrap();
    // To a file, since a server in the background would keep a pipe open; when a step fails, the trap ends that server.
    let status = Command::new("sh")
        .args(["-euc", "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT; . ./tutorial.sh"])
        .current_dir(folder)
        .env_clear()
        .envs([("PATH", path.as_str()), ("HOME", folder.to_str().unwrap())])
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .status()
        .unwrap();
    let output = std::fs::read_to_string(&printed).unwrap();
    let log = std::fs::read_to_string(folder.join("acl.log")).unwrap_or_default();
    assert!(status.success(), "{document}: {status}\n{output}\n{log}");
    expected_output::compare(document, &output, folder);
    output.replace(&format!("{MARK}\n"), "")
}

#[test]
fn the_commands_of_the_tutorial_of_the_acl_server_run_one_after_the_other() {
    let output = follow("docs/tutorials/acl-server.md");
    assert!(output.contains("web dashboards") && output.contains("team-1"), "{output}");
    assert!(
        output.contains("lacks acl:read [KW-1612]\nexit code 6\n"),
        "a namespace's token has no rights in another: {output}"
    );
}

#[test]
fn the_commands_of_the_tutorial_for_users_of_vault_agent_run_one_after_the_other() {
    let output = follow("docs/tutorials/from-vault-agent.md");
    assert!(output.contains("logs in to the vault server"), "{output}");
    assert!(output.contains("the packaged systemd unit needs no drop-in\n"), "{output}");
}

#[test]
fn the_commands_of_the_tutorials_that_set_up_a_machine_or_a_pod_run_and_write_what_passes_the_check() {
    let output = follow("docs/tutorials/vm-with-systemd.md");
    assert!(output.contains("logs in to the vault server") && output.contains("SupplementaryGroups=app\n"), "{output}");
    assert!(output.contains("az vm identity assign --resource-group web --name web-1\n"), "{output}");
    let output = follow("docs/tutorials/terraform.md");
    assert!(output.contains("wrote image/etc/keyward/keyward.toml\n"), "{output}");
}

#[test]
fn the_configurations_of_the_tutorials_pass_the_check() {
    for document in ["vm-with-systemd", "aks-sidecar", "terraform"] {
        for block in blocks(&format!("docs/tutorials/{document}.md"), "toml") {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("keyward.toml");
            std::fs::write(&file, block).unwrap();
            let (code, output, error) = run(&["check", "-c", file.to_str().unwrap()], &[]);
            assert_eq!(code, 0, "{document}: {output}{error}");
        }
    }
}

#[test]
fn the_configuration_of_the_tutorial_of_terraform_gives_programs_the_address_and_the_local_token() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let config = blocks("docs/tutorials/terraform.md", "toml").concat();
    let config = config.replace("/var/lib/keyward", place).replace("/run/keyward", place);
    std::fs::write(folder.path().join("keyward.toml"), config).unwrap();
    let local_token = "0123456789abcdef0123456789abcdef";
    std::fs::write(folder.path().join("gateway.token"), local_token).unwrap();
    let file = format!("{place}/keyward.toml");
    let variables = [("PATH", variable("PATH").unwrap()), ("HOME", place.to_owned())];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (code, output, error) = run(&["exec", "-c", &file, "--", "env"], &variables);
    assert_eq!(code, 0, "{error}");
    for line in ["TFE_ADDRESS=http://127.0.0.1:8800".to_owned(), format!("TFE_TOKEN={local_token}")] {
        assert!(output.lines().any(|variable| variable == line), "{line} is not in the environment: {output}");
    }
}

#[test]
fn the_tutorial_of_aks_writes_a_manifest_with_the_configuration_that_it_shows() {
    let (document, folder) = ("docs/tutorials/aks-sidecar.md", tempfile::tempdir().unwrap());
    let output = follow_in(document, folder.path());
    for subject in ["--subject system:serviceaccount:default:web", "--subject system:serviceaccount:default:report"] {
        assert!(output.contains(subject), "{output}");
    }
    let manifest = std::fs::read_to_string(folder.path().join("keyward.yaml")).unwrap();
    let lines: Vec<&str> = manifest.lines().map(str::trim).collect();
    for line in blocks(document, "toml").concat().lines() {
        assert!(lines.contains(&line), "the manifest lacks {line:?}: {manifest}");
    }
}

#[test]
fn each_place_that_the_architecture_names_exists() {
    let text = read("ARCHITECTURE.md");
    let (_, places) = text.split_once("## Where is ...").unwrap();
    let places: Vec<&str> = places.split('`').filter(|part| part.starts_with("src/")).collect();
    assert!(places.len() > 30, "{places:?}");
    for place in places {
        assert!(Path::new(ROOT).join(place).exists(), "ARCHITECTURE.md names {place}, which does not exist");
    }
}

/// Targets of the links of a document: in the text, and of the names that its last lines define.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let named = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: ").map(|(_, target)| target));
    inline.chain(named).filter(|target| !target.contains("://"))
}

/// Targets of the relative links of a document, without their anchors.
fn links(text: &str) -> Vec<&str> {
    let relative = targets(text).filter(|target| !target.starts_with('#'));
    relative.map(|target| target.split('#').next().unwrap()).collect()
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let slug = heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|each| each.is_alphanumeric() || " -_".contains(*each))
        .collect::<String>();
    slug.replace(' ', "-")
}

#[test]
fn every_link_between_documents_leads_to_a_file_and_a_heading() {
    let mut pending = vec![Path::new(ROOT).join("docs")];
    let mut documents: Vec<_> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "packaging/README.md"]
            .map(|name| Path::new(ROOT).join(name))
            .to_vec();
    while let Some(folder) = pending.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                documents.push(path);
            }
        }
    }
    let mut broken = Vec::new();
    for document in &documents {
        let text = std::fs::read_to_string(document).unwrap();
        for target in links(&text) {
            if !document.parent().unwrap().join(target).exists() {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
        for link in targets(&text) {
            let Some((file, fragment)) = link.split_once('#') else { continue };
            let target = if file.is_empty() { document.clone() } else { document.parent().unwrap().join(file) };
            let Ok(text) = std::fs::read_to_string(&target) else { continue };
            let mut headings =
                text.lines().filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#')));
            if !headings.any(|heading| heading == fragment) {
                broken.push(format!("{}: no heading for {link}", document.display()));
            }
        }
    }
    assert!(documents.len() > 20, "the documents were not found");
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}
