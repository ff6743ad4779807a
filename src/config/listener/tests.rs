use super::*;

#[test]
fn an_address_to_listen_on_has_three_forms() {
    let check = |text: &str, expected: Result<&str, &str>| {
        let found = endpoint(text).map(|endpoint| endpoint.to_string()).map_err(|error| error.message);
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
    };
    check("unix:///run/keyward/api.sock", Ok("unix:///run/keyward/api.sock"));
    check("tcp://127.0.0.1:8300", Ok("tcp://127.0.0.1:8300"));
    check("tcp://[::1]:8300/", Ok("tcp://[::1]:8300"));
    check("systemd:api", Ok("systemd:api"));
    check("unix://api.sock", Err("is not an absolute path"));
    check(&format!("unix:///{}", "a".repeat(107)), Err("is too long for a socket"));
    check("tcp://localhost:8300", Err("is not a TCP address"));
    check("tcp://127.0.0.1", Err("is not a TCP address"));
    check("systemd:", Err("is not an address to listen on"));
    check("systemd:a:b", Err("is not an address to listen on"));
    check("127.0.0.1:8300", Err("is not an address to listen on"));
}
