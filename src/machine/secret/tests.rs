use super::*;

#[test]
fn a_secret_file_has_one_line_which_is_trimmed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let check = |content: &[u8], expected: Result<&str, &str>| {
        std::fs::write(&path, content).unwrap();
        match (read_file(&path), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.expose_secret(), expected),
            (Err(found), Err(expected)) => assert!(format!("{:?}", found.reason).contains(expected), "{found:?}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    };
    check(b"abc", Ok("abc"));
    check(b" abc\r\n", Ok("abc"));
    check(b"", Err("Empty"));
    check(b" \n", Err("Empty"));
    check(b"a\nb", Err("ManyLines"));
    check(b"\xef\xbb\xbfa", Err("ByteOrderMark"));
    check(b"a\xef\xbb\xbf", Ok("a\u{feff}"));
    check(&[0xff, 0xfe], Err("NotText"));
    check(&vec![b'a'; 64 * 1024], Ok(&"a".repeat(64 * 1024)));
    check(&vec![b'a'; 64 * 1024 + 1], Err("TooLarge"));
    assert!(matches!(read_file(folder.path()).unwrap_err().reason, Reason::NotRegular));
}

#[test]
fn a_text_of_many_lines_may_be_a_mebibyte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle");
    for (length, fits) in [(64 * 1024 + 1, true), (1 << 20, true), ((1 << 20) + 1, false)] {
        std::fs::write(&path, vec![b'\n'; length]).unwrap();
        match read_text(&path) {
            Ok(text) => assert!(fits && text.expose_secret().len() == length, "{length}"),
            Err(error) => {
                assert!(!fits && matches!(error.reason, Reason::TooLarge(1_048_576)), "{length}: {error:?}");
            }
        }
    }
}

#[test]
fn a_file_of_several_secrets_gives_its_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let check = |content: &[u8], expected: Result<&[&str], &str>| {
        std::fs::write(&path, content).unwrap();
        match (read_lines(&path), expected) {
            (Ok(found), Ok(expected)) => {
                assert_eq!(found.iter().map(SecretString::expose_secret).collect::<Vec<_>>(), expected);
            }
            (Err(found), Err(expected)) => assert!(format!("{:?}", found.reason).contains(expected), "{found:?}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    };
    check(b"abc", Ok(&["abc"]));
    check(b"\n abc\r\n\nde\n", Ok(&["abc", "de"]));
    check(b" \n\n", Err("Empty"));
    check(&[0xff, 0xfe], Err("NotText"));
    check(&vec![b'a'; 64 * 1024 + 1], Err("TooLarge"));
}

#[test]
fn secrets_are_compared_whole() {
    assert!(ct_eq(&SecretString::from("abc"), b"abc"));
    assert!(!ct_eq(&SecretString::from("abc"), b"abd"));
    assert!(!ct_eq(&SecretString::from("abc"), b"ab"));
}
