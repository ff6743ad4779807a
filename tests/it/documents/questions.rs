//! Questions that readers have, and the section that answers each: two links lead there from the README.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::{cells, read};

/// A question, the section with its answer, and a text that the answer has.
const QUESTIONS: &[(&str, &str, &str)] = &[
    ("How do I try it without Azure and Vault?", "README.md#try-it", "cargo run -- dev"),
    ("How long does the first command take?", "README.md#try-it", "two minutes"),
    ("How do I install it on Debian?", "docs/installation.md#debian-and-ubuntu", "apt install"),
    ("How do I install it on Fedora?", "docs/installation.md#rhel-and-fedora", "dnf install"),
    ("How large is it, and what does it need?", "docs/installation.md#what-you-need-to-build", "3 MB"),
    ("How do I set up a VM?", "docs/tutorials/vm-with-systemd.md", "keyward init azure-vm"),
    ("How do I set up a pod?", "docs/tutorials/aks-sidecar.md", "keyward init aks"),
    ("How do pods get secrets by annotations?", "docs/kubernetes-injector.md", "keyward.dev/inject"),
    ("How do my Terraform runs survive a new token?", "docs/tutorials/terraform.md", "keyward gateway serve"),
    ("How do I replace Vault Agent?", "docs/tutorials/from-vault-agent.md", "keyward migrate"),
    ("What replaces this setting of Vault Agent?", "docs/moving-over.md", "auto_auth"),
    ("What does keyward have that Vault Agent has not?", "README.md#beside-other-agents", "Vault Agent"),
    ("Which example do I begin with?", "docs/examples.md", "agent-vm.toml"),
    ("Which keys does a session have?", "docs/reference/configuration.md", "session.NAME"),
    ("What does lease mean here?", "docs/concepts.md#glossary", "lease"),
    ("When is my token renewed?", "docs/concepts.md#the-life-of-a-token", "renewal"),
    ("Who may read the token?", "docs/concepts.md#who-may-get-the-token", "group"),
    ("How do I write secrets into a file?", "docs/templates.md", "destination"),
    ("How does my web server get its certificates?", "docs/certificates.md", "fullchain.pem"),
    ("How do tools call Vault without a token?", "docs/api-proxy.md", "VAULT_ADDR"),
    ("How do reads survive an outage of Vault?", "docs/api-proxy.md#the-cache", "stale_if_error"),
    ("How do I give each process its own rights?", "docs/callers.md", "caller"),
    ("It does not start. What now?", "docs/troubleshooting.md", "exit code 78"),
    ("The login fails. What now?", "docs/troubleshooting.md", "KW-1103"),
    ("What does KW-1203 mean?", "docs/errors.md", "KW-1203"),
    ("What happens in an outage, and for how long?", "docs/operations/failures.md#failures", "retries"),
    ("How many calls can it cost my server?", "docs/operations/failures.md#the-request-budget", "200"),
    ("How do I change the configuration without a restart?", "docs/configuration.md#reload", "SIGHUP"),
    ("What happens to the token at a restart?", "docs/operations/restart.md#saved-state", "seal_key_file"),
    ("What does this alert want from me?", "docs/operations/monitoring.md#alerts", "KeywardNotReady"),
    ("How do I upgrade, and go back?", "docs/operations/upgrade.md", "Going back"),
    ("How do I back up the ACL server?", "docs/operations/backup.md", "keyward acl backup"),
    ("How do I run several ACL servers?", "docs/operations/etcd.md", "etcd"),
    ("Where is the log, and how do I filter it?", "docs/operations/monitoring.md#log", "journalctl"),
    ("What can an attacker do?", "docs/security.md", "T1"),
    ("What does it limit itself to?", "docs/sandbox.md", "Landlock"),
    ("How fast is it?", "docs/internals/performance.md", "nginx"),
];

/// Path and fragment of each link of a document to another one, or to itself, from the root of the repository.
fn links(document: &str) -> BTreeSet<(String, String)> {
    let text = read(document);
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let named = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: ").map(|(_, target)| target));
    let targets = inline.chain(named).filter(|target| !target.contains("://"));
    targets
        .map(|target| {
            let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { document.to_owned() } else { resolve(document, path) };
            (path, fragment.to_owned())
        })
        .collect()
}

/// A path that is relative to the folder of a document, from the root.
fn resolve(document: &str, path: &str) -> String {
    let mut resolved = PathBuf::new();
    for part in Path::new(document).parent().unwrap().join(path).components() {
        match part {
            Component::ParentDir => assert!(resolved.pop(), "{document}: {path} leaves the repository"),
            Component::Normal(name) => resolved.push(name),
            _ => {}
        }
    }
    resolved.display().to_string()
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars().filter(|each| each.is_alphanumeric() || " -_".contains(*each)).collect::<String>().replace(' ', "-")
}

/// The text from a heading to the next one of its level; without a fragment the whole document.
fn section(document: &str, fragment: &str) -> Option<String> {
    let text = read(document);
    if fragment.is_empty() {
        return Some(text);
    }
    let level = |line: &str| line.bytes().take_while(|byte| *byte == b'#').count();
    let mut lines =
        text.lines().skip_while(|line| level(line) == 0 || anchor(line.trim_start_matches('#')) != fragment);
    let heading = lines.next()?;
    let inside = lines.take_while(|line| level(line) == 0 || level(line) > level(heading));
    Some(inside.collect::<Vec<_>>().join("\n"))
}

#[test]
fn two_links_lead_from_the_readme_to_the_answer_of_each_question() {
    let first = links("README.md");
    let mut reached = first.clone();
    reached.insert(("README.md".to_owned(), String::new()));
    let is_document = |path: &str| Path::new(path).extension().is_some_and(|extension| extension == "md");
    for (path, _) in first.iter().filter(|(path, _)| is_document(path)) {
        reached.extend(links(path));
    }
    let mut wrong = Vec::new();
    for (question, target, text) in QUESTIONS {
        let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
        // A page that the README links has its headings in sight.
        let is_near = path == "README.md" || first.iter().any(|(linked, _)| linked == path);
        let is_reached = is_near || reached.contains(&(path.to_owned(), fragment.to_owned()));
        match section(path, fragment) {
            Some(answer) if is_reached && answer.contains(text) => {}
            Some(_) if !is_reached => wrong.push(format!("{question} No link leads to {target}")),
            Some(_) => wrong.push(format!("{question} {target} does not have {text:?}")),
            None => wrong.push(format!("{question} {target} has no such heading")),
        }
    }
    assert!(QUESTIONS.len() >= 30);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_question_of_the_index_has_one_answer() {
    let index = read("docs/README.md");
    let (_, questions) = index.split_once("\n## Questions\n").unwrap();
    let questions: Vec<Vec<String>> =
        questions.split("\n## ").next().unwrap().lines().filter_map(cells).skip(1).collect();
    assert!(questions.len() >= 30, "the questions were not found");
    let mut asked = BTreeSet::new();
    for row in &questions {
        let [question, answer] = row.as_slice() else { panic!("{row:?}") };
        assert!(question.ends_with('?') && asked.insert(question), "{question} is no question, or is asked twice");
        assert_eq!(answer.matches("](").count(), 1, "{question} {answer}");
    }
}
