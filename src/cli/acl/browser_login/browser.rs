//! Opens a page in the person's browser.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use url::Url;

/// Opens a page, if that is possible. The person can open it too, so that nothing depends on it.
pub(super) fn open(url: &Url, variables: &BTreeMap<String, String>) {
    for words in commands(url.as_str(), variables) {
        let Some((program, arguments)) = words.split_first() else { continue };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A browser may outlive this command by days, and has no use for its secrets. Signals of the terminal are not for it.
        command.env_remove("KEYWARD_ACL_TOKEN").process_group(0);
        if command.spawn().is_ok() {
            return;
        }
    }
}

/// Returns the commands to try: those of `BROWSER`, separated by colons, with `%s` for the page; else that of the desktop, where
/// there is one. Without a desktop, `xdg-open` starts a browser in the terminal, over this command's output.
fn commands(url: &str, variables: &BTreeMap<String, String>) -> Vec<Vec<String>> {
    let variable = |name: &str| variables.get(name).map(String::as_str).filter(|value| !value.is_empty());
    match variable("BROWSER") {
        Some(browsers) => browsers.split(':').map(|command| with_page(command, url)).collect(),
        None if ["DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(|name| variable(name).is_some()) => {
            vec![with_page("xdg-open", url)]
        }
        None => Vec::new(),
    }
}

fn with_page(command: &str, url: &str) -> Vec<String> {
    let mut words: Vec<String> = command.split_whitespace().map(|word| word.replace("%s", url)).collect();
    if !words.is_empty() && !command.contains("%s") {
        words.push(url.to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_browser_is_that_of_the_variable_or_of_the_desktop() {
        let check = |variables: &[(&str, &str)], expected: &[&[&str]]| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(commands("https://a/?b", &variables), expected, "{variables:?}");
        };
        check(&[], &[]);
        check(&[("DISPLAY", "")], &[]);
        check(&[("DISPLAY", ":0")], &[&["xdg-open", "https://a/?b"]]);
        check(&[("WAYLAND_DISPLAY", "wayland-0")], &[&["xdg-open", "https://a/?b"]]);
        let two = "firefox --new-window %s:w3m";
        check(
            &[("BROWSER", two), ("DISPLAY", ":0")],
            &[&["firefox", "--new-window", "https://a/?b"], &["w3m", "https://a/?b"]],
        );
    }
}
