//! Who is answered, and over what: a token, TLS, and seats for those who have something to ask.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use profiler::serve::{Security, Store};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use crate::client::{serve, serve_securely};
use crate::samples::shop;

const TOKEN: &str = "a-token-of-the-tests";

/// Check that those who do not know the token get nothing but a challenge, that both forms of it are known, and that probes need none.
#[test]
fn only_those_who_know_the_token_are_answered() {
    let server = serve_securely(shop(), &Security::new().token(TOKEN));
    for path in ["/", "/api/profile", "/stats", "/debug/pprof/profile?seconds=1", "/nowhere"] {
        for header in ["", "Authorization: Bearer a-token-of-the-testz\r\n", "Authorization: Basic bWU6d3Jvbmc=\r\n"] {
            let answer = server.send("GET", path, header);
            assert_eq!((answer.status, answer.text().contains("token is needed")), (401, true), "{path} {header}");
            assert!(answer.header("www-authenticate").unwrap().starts_with("Basic realm="));
        }
    }
    // `me:a-token-of-the-tests`.
    for header in [
        format!("Authorization: Bearer {TOKEN}\r\n"),
        "Authorization: Basic bWU6YS10b2tlbi1vZi10aGUtdGVzdHM=\r\n".into(),
    ] {
        assert_eq!(server.send("GET", "/stats", &header).status, 200, "{header}");
    }
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get(&format!("/stats?token={TOKEN}")).status, 401, "a token in an address would stand in logs");
}

/// Check that with a certificate the server speaks TLS and nothing else, and that one who says nothing holds up nobody.
#[test]
fn a_certificate_makes_it_tls() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile();
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let server = serve_securely(shop(), &Security::new().token(TOKEN).tls(&certificate, &key));
    assert_eq!(server.url, format!("https://{}", server.address));
    assert_eq!(serve(shop()).url.split_once("//").unwrap().0, "http:");
    let silent = server.connect();
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = encrypted(server.connect(), made.cert.der().clone(), request);
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let mut plain = server.connect();
    plain.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // An alert of TLS, or the end.
    drop(plain.read_to_end(&mut answer));
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    drop(silent);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A folder of this test's own.
fn tempfile() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("profiler-serve-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What is answered to a request over TLS.
fn encrypted(mut stream: TcpStream, trusted: CertificateDer<'static>, request: &str) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut tls = Stream::new(&mut client, &mut stream);
    tls.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // Whoever closes without a word of TLS has said all before.
    drop(tls.read_to_string(&mut answer));
    answer
}

/// Check that connections that are only held open lock nobody out, and that of those who asked something lately none is closed.
#[test]
fn idle_connections_lock_nobody_out() {
    let server = serve(Store::default());
    let mut idle: Vec<TcpStream> = (0..200).map(|_| server.connect()).collect();
    // Each of these takes the seat of one that is idle: were it not so, they would wait for all of those to time out, one after another.
    for _ in 0..100 {
        assert_eq!(server.get("/healthz").status, 200);
    }
    let mut end = Vec::new();
    idle[0].read_to_end(&mut end).unwrap();
    assert_eq!(end, b"");
}
