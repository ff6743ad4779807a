//! Files that `writeToFile` writes beside that of its template.

use super::*;

fn file(bench: &Bench<'_>, name: &str) -> String {
    bench.path(name).display().to_string()
}

#[tokio::test(start_paused = true)]
async fn files_are_written_as_a_whole_with_their_mode() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "password": "p1" })).await;
    let mut bench = Bench::new(&world, &session);
    let (key, both) = (file(&bench, "tls/key"), file(&bench, "both"));
    let text = format!(
        "{{{{ with secret \"secret/data/app\" }}}}{{{{ .Data.data.password | writeToFile \"{key}\" \"\" \"\" \"0400\" }}}}\
         {{{{ .Data.data.password | writeToFile \"{both}\" \"\" \"\" \"0644\" \"newline\" }}}}\
         {{{{ \"end\" | writeToFile \"{both}\" \"\" \"\" \"0640\" \"append,newline\" }}}}{{{{ end }}}}done"
    );
    bench.start("app", &text);
    sleep(Duration::from_secs(5)).await;
    let read = |name: &str| bench.read(name).unwrap_or_default();
    assert_eq!([read("app"), read("tls/key"), read("both")], ["done", "p1", "p1\nend\n"], "{}", bench.reason("app"));
    let mode = |name: &str| std::fs::metadata(bench.path(name)).unwrap().mode() & 0o7777;
    assert_eq!([mode("tls/key"), mode("both")], [0o400, 0o640]);
    let inode = std::fs::metadata(bench.path("both")).unwrap().ino();
    sleep(MINUTE * 10).await;
    assert_eq!(std::fs::metadata(bench.path("both")).unwrap().ino(), inode, "nothing has changed");
    // Only a file beside its own changes.
    put(&world, "app", json!({ "password": "p2" })).await;
    sleep(MINUTE * 6).await;
    assert_eq!([read("tls/key"), read("both")], ["p2", "p2\nend\n"]);
}

#[tokio::test]
async fn the_command_runs_once_all_files_are_written() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let (key, seen) = (file(&bench, "tls/key"), file(&bench, "seen"));
    let command = format!("PATH=/usr/bin:/bin; cat {key} {} >> {seen}", file(&bench, "app"));
    let text = format!("{{{{ \"a\" | writeToFile \"{key}\" \"\" \"\" \"0400\" }}}}b");
    bench.start_with("app", &text, Some(&command));
    until(|| bench.reason("app").is_empty()).await;
    assert_eq!(bench.read("seen").as_deref(), Some("ab"));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_written_is_the_failure_of_its_template() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "password": "p1" })).await;
    let mut bench = Bench::new(&world, &session);
    std::fs::create_dir(bench.path("folder")).unwrap();
    let computed = |path: &str| format!("{{{{ \"x\" | writeToFile (print \"{path}\") \"\" \"\" \"0600\" }}}}text");
    let own = file(&bench, "own");
    let user =
        format!("{{{{ \"x\" | writeToFile \"{}\" \"nobody-has-this-name\" \"\" \"0600\" }}}}", file(&bench, "file"));
    for (name, text, expected) in [
        ("outside", computed("/tmp/other"), "below none of the template's write_folders"),
        ("above", computed(&file(&bench, "../other")), "or has .. in it"),
        ("own", computed(&own), "writeToFile names the template's own destination"),
        ("taken", computed(&file(&bench, "folder")), "folder"),
        ("user", user, "there is no user nobody-has-this-name"),
    ] {
        bench.start(name, &text);
        sleep(Duration::from_secs(1)).await;
        let reason = bench.reason(name);
        assert!(
            !world.health.components()[&format!("template/{name}")].ready && reason.contains(expected),
            "{name}: {reason}"
        );
        assert_eq!(bench.read(name), None, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_symlink_below_a_write_folder_leads_no_file_and_no_new_folder_out_of_it() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), bench.path("link")).unwrap();
    for (name, path) in [("file", "link/x"), ("folder", "link/new/x")] {
        let text = format!("{{{{ \"x\" | writeToFile \"{}\" \"\" \"\" \"0600\" }}}}text", file(&bench, path));
        bench.start(name, &text);
        sleep(Duration::from_secs(1)).await;
        let reason = bench.reason(name);
        assert!(reason.contains("leads through a symlink below"), "{name}: {reason}");
        assert_eq!(bench.read(name), None, "{name}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}
