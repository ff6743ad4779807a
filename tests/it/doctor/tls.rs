//! Certificates: how long they are valid, and those that cannot be trusted.

use keyward_emulators::secrets::SecretsOptions;

use super::site::{DoctorFixture, FOLDER, problems};
use crate::harness::certificates::{Authority, Presented};
use crate::harness::world::run_in_network_namespace;

#[test]
fn the_days_left_of_a_certificate_are_told_and_a_bad_one_is_found() {
    run_in_network_namespace(|| {
        let authority = Authority::new();
        let presented = Presented::new(authority.issue("localhost", 2099));
        let site = DoctorFixture::with(|_, options: &mut SecretsOptions| options.tls = Some(presented.server()));
        let ca = format!("{FOLDER}/ca.pem");
        std::fs::write(&ca, &authority.pem).unwrap();
        let url = site.world.secrets.url().replace("127.0.0.1", "localhost");
        let text = site.text.replace(site.world.secrets.url(), &url);
        site.write(&text.replace("kind = \"vault\"", &format!("kind = \"vault\"\nca_file = \"{ca}\"")));
        let codes = || problems(&site.doctor(&[]).1).into_iter().map(|(code, _)| code).collect::<Vec<_>>();
        let (code, report) = site.doctor(&[]);
        assert_eq!((code, problems(&report)), (0, Vec::new()), "{report:#}");
        let tls = report["checks"].as_array().unwrap().iter().find(|check| check["step"] == "tls").unwrap();
        assert!(tls["found"].as_str().unwrap().contains("more days, until 2099-01-01"), "{tls}");

        presented.swap(authority.issue("localhost", 2020));
        assert_eq!(codes(), ["KW-1203"], "an expired certificate");
        let soon = time::OffsetDateTime::now_utc() + time::Duration::days(5);
        presented.swap(authority.issue_until("localhost", soon));
        assert_eq!(codes(), ["KW-1909"], "a certificate that ends soon");
        presented.swap(authority.issue("other.example", 2099));
        assert_eq!(codes(), ["KW-1203"], "a certificate for another name");
        presented.swap(Authority::new().issue("localhost", 2099));
        assert_eq!(codes(), ["KW-1203"], "an authority that is not trusted");
    });
}
