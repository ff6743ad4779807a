//! Certificates of SPIFFE's Workload API, in driven time against one that sends what a test wants; `tests/clients/go-spiffe` has SPIFFE's
//! own messages, and `tests/it/app` the running agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use keyward_agent::certificates::CertificateIssuer;
use keyward_agent::identity::X509SvidOptions;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use tokio::net::UnixListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::*;

const ID: &str = "spiffe://example.org/web";

/// A part of an answer.
enum Part {
    Message(Vec<u8>),
    /// Bytes that are not framed.
    Raw(Vec<u8>),
    /// The end, with this status of gRPC.
    End(&'static str),
}

/// A Workload API whose connections share one list of parts.
struct Api {
    parts: UnboundedSender<Part>,
    connections: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl Api {
    fn start(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let (parts, mut received) = unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                // A client may have gone already.
                let Ok(mut connection) = h2::server::handshake(stream).await else { continue };
                let Some(Ok((request, mut respond))) = connection.accept().await else { continue };
                assert_eq!(request.uri().path(), "/SpiffeWorkloadAPI/FetchX509SVID");
                assert_eq!(request.headers()["workload.spiffe.io"], "true");
                let head = http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
                let mut body = respond.send_response(head, false).unwrap();
                loop {
                    let part = tokio::select! {
                        biased;
                        // The client has gone.
                        _ = connection.accept() => break,
                        part = received.recv() => part.unwrap(),
                    };
                    let sent = match part {
                        Part::Message(message) => body.send_data(frame(0, &message), false),
                        Part::Raw(bytes) => body.send_data(bytes.into(), false),
                        Part::End(status) => {
                            let trailers = [("grpc-status", status), ("grpc-message", "no%20more")]
                                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
                            body.send_trailers(trailers.into_iter().collect()).unwrap();
                            while connection.accept().await.is_some() {}
                            break;
                        }
                    };
                    sent.unwrap();
                }
            }
        });
        Self { parts, connections, _serving: serving }
    }

    fn send(&self, part: Part) {
        self.parts.send(part).unwrap_or_else(|_| panic!("the API has ended"));
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn frame(flag: u8, message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag], &length[..], message].concat().into()
}

/// A field of a message with a length (protobuf.dev, "Encoding").
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let (mut bytes, mut length) = (vec![number << 3 | 2], content.len());
    while length > 0x7f {
        bytes.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap());
    [bytes, content.to_vec()].concat()
}

/// The authority of a trust domain.
struct Domain {
    der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Domain {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { der: params.self_signed(&key).unwrap().der().to_vec(), issuer: Issuer::new(params, key) }
    }

    /// A message with a certificate of an hour, and these authorities.
    fn message(&self, now: SystemTime, key: Option<&KeyPair>, authorities: &[&Self]) -> Vec<u8> {
        let own = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.not_before = now.into();
        params.not_after = (now + HOUR).into();
        params.subject_alt_names.push(SanType::URI(ID.try_into().unwrap()));
        let leaf = params.signed_by(&own, &self.issuer).unwrap();
        let bundle: Vec<u8> = authorities.iter().flat_map(|domain| domain.der.clone()).collect();
        let key = key.unwrap_or(&own).serialize_der();
        let svid = [field(1, ID.as_bytes()), field(2, leaf.der()), field(3, &key), field(4, &bundle)].concat();
        field(1, &svid)
    }
}

fn issuer(bench: &Bench<'_>) -> CertificateIssuer {
    CertificateIssuer::WorkloadApi(X509SvidOptions { socket: bench.path("agent.sock"), spiffe_id: None })
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_the_api_does_not_replace_is_asked_for_again() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let (api, domain) = (Api::start(&bench.path("agent.sock")), Domain::new("domain"));
    api.send(Part::Message(domain.message(bench.now(), None, &[&domain])));
    bench.start_of(issuer(&bench), bench.options());
    bench.until(|bench| bench.reason().is_empty()).await;
    let first = bench.served();
    sleep(MINUTE * 44).await;
    assert_eq!((api.connections(), bench.state()), (1, 0));
    // Three quarters of its life have passed: the connection may be dead.
    sleep(MINUTE * 11).await;
    assert!((10..=14).contains(&api.connections()), "{}", api.connections());
    assert_eq!(bench.served().serial, first.serial);
    sleep(MINUTE * 6).await;
    assert_eq!(bench.state(), 3);
    assert!(bench.reason().starts_with("the certificate has ended at "), "{}", bench.reason());
    api.send(Part::Message(domain.message(bench.now(), None, &[&domain])));
    bench.until(|bench| bench.reason().is_empty()).await;
    assert_ne!(bench.served().serial, first.serial);
    let asked = api.connections();
    sleep(MINUTE * 40).await;
    assert!(api.connections() <= asked + 1, "{asked} {}", api.connections());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_used_takes_nothing_away() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let (api, domain, other) = (Api::start(&bench.path("agent.sock")), Domain::new("domain"), Domain::new("other"));
    let good = |bench: &Bench<'_>| Part::Message(domain.message(bench.now(), None, &[&domain]));
    api.send(good(&bench));
    bench.start_of(issuer(&bench), bench.options());
    bench.until(|bench| bench.reason().is_empty()).await;
    let foreign = KeyPair::generate().unwrap();
    let bad = [
        (Part::Message(b"\x0a\xff".to_vec()), "KW-1413", "not of the Workload API"),
        (Part::Message(Vec::new()), "KW-1413", "names no identity"),
        (Part::Raw(frame(1, b"x").to_vec()), "KW-1413", "compressed"),
        (Part::Raw(vec![0, 0xff, 0xff, 0xff, 0xff]), "KW-1413", "too large"),
        (Part::Message(domain.message(bench.now(), Some(&foreign), &[&domain])), "KW-1413", "another key"),
        (Part::Message(domain.message(bench.now(), None, &[&other])), "KW-1413", "the certificate's issuer"),
        (Part::Message(domain.message(bench.now() - HOUR * 2, None, &[&domain])), "KW-1413", "expired already"),
        (Part::End("7"), "KW-1121", "no registration entry has selectors"),
        (Part::End("14"), "KW-1122", "UNAVAILABLE: no more"),
        (Part::End("0"), "KW-1122", "ended its answer"),
    ];
    for (part, code, text) in bad {
        let before = bench.served();
        api.send(part);
        bench.until(|bench| !bench.warning().is_empty()).await;
        assert!(bench.warning().contains(text), "{text}: {}", bench.warning());
        let warning = world.health.statuses()["certificate/web"].warning.clone().unwrap();
        assert_eq!(warning.code.as_deref(), Some(code), "{text}");
        assert_eq!((bench.served(), bench.reason()), (before, String::new()));
        api.send(good(&bench));
        bench.until(|bench| bench.warning().is_empty()).await;
        assert_eq!(bench.state(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_sends_nothing_is_reported_and_asked_again() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let (api, domain) = (Api::start(&bench.path("agent.sock")), Domain::new("domain"));
    bench.start_of(issuer(&bench), bench.options());
    bench.until(|bench| bench.reason().contains("no response within 60 s")).await;
    sleep(HOUR).await;
    assert!((30..=62).contains(&api.connections()), "{}", api.connections());
    api.send(Part::Message(domain.message(bench.now(), None, &[&domain])));
    bench.until(|bench| bench.reason().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn an_api_that_ends_its_answer_after_each_certificate_is_not_called_in_a_loop() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let (api, domain) = (Api::start(&bench.path("agent.sock")), Domain::new("domain"));
    bench.start_of(issuer(&bench), bench.options());
    for _ in 0..2000 {
        api.send(Part::Message(domain.message(bench.now(), None, &[&domain])));
        api.send(Part::End("14"));
    }
    sleep(HOUR).await;
    assert!((100..=300).contains(&api.connections()), "{}", api.connections());
    bench.served();
}

#[tokio::test(start_paused = true)]
async fn a_process_without_the_wanted_identity_is_told_which_it_has() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let (api, domain) = (Api::start(&bench.path("agent.sock")), Domain::new("domain"));
    let spiffe_id = Some("spiffe://example.org/other".to_owned());
    let options = X509SvidOptions { socket: bench.path("agent.sock"), spiffe_id };
    bench.start_of(CertificateIssuer::WorkloadApi(options), bench.options());
    api.send(Part::Message(domain.message(bench.now(), None, &[&domain])));
    bench.until(|bench| bench.reason().contains("does not have the identity")).await;
    assert!(bench.reason().ends_with("but spiffe://example.org/web"), "{}", bench.reason());
    assert_eq!(world.health.components()["certificate/web"].code.unwrap().as_str(), "KW-1121");
}

#[tokio::test(start_paused = true)]
async fn the_issuer_stands_first_among_the_authorities() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let (api, old, new) = (Api::start(&bench.path("agent.sock")), Domain::new("old"), Domain::new("new"));
    bench.start_of(issuer(&bench), bench.options());
    for (signer, authorities) in [(&old, vec![&old]), (&old, vec![&old, &new]), (&new, vec![&old, &new])] {
        api.send(Part::Message(signer.message(bench.now(), None, &authorities)));
        bench
            .until(|bench| {
                let chain = bench.read("web/chain.pem").unwrap_or_default();
                let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
                chain.len() == authorities.len() && chain[0].as_ref() == signer.der
            })
            .await;
        let served = bench.served();
        assert_eq!(served.issuer, CertificateFacts::parse(&signer.der).unwrap().subject);
        assert_eq!(bench.read("web/fullchain.pem"), bench.read("web/cert.pem"), "roots are left out");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_not_there_is_waited_for() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.start_of(issuer(&bench), bench.options());
    bench.until(|bench| bench.reason().contains("agent.sock")).await;
    assert_eq!(bench.state(), 2);
    sleep(HOUR).await;
    let tries = bench.metric("requests_total{certificate=\"web\",outcome=\"failed\"}");
    assert!((100..=300).contains(&tries), "{tries}");
    let (api, domain) = (Api::start(&bench.path("agent.sock")), Domain::new("domain"));
    api.send(Part::Message(domain.message(bench.now(), None, &[&domain])));
    bench.until(|bench| bench.reason().is_empty()).await;
    bench.served();
    let note = world.health.statuses()["certificate/web"].note.clone().unwrap();
    assert!(note.starts_with(ID) && note.ends_with("replaced when the Workload API sends another one"), "{note}");
}
