//! TLS by tokio-rustls: what a program sees over tokio's streams, it sees over ours, on both engines and in both ways.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::sync::{Arc, LazyLock};

use rcgen::generate_simple_self_signed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use support::bulk::{self, Pattern};

/// Someone with a certificate that signs itself.
struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn new() -> Self {
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Self {
            key: PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()),
            certificate: made.cert.into(),
        }
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }

    /// Those who trust this one.
    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }
}

static SERVER: LazyLock<Identity> = LazyLock::new(Identity::new);
static CLIENT: LazyLock<Identity> = LazyLock::new(Identity::new);

/// A server that asks its clients for a certificate, or does not, and speaks these protocols.
fn acceptor(asks: bool, protocols: &[&str]) -> TlsAcceptor {
    let builder = ServerConfig::builder();
    let builder = if asks {
        let verifier = WebPkiClientVerifier::builder(Arc::new(CLIENT.roots()))
            .build()
            .unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder
        .with_single_cert(SERVER.chain(), SERVER.key.clone_key())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// A client that shows a certificate, or none, and offers these protocols.
fn connector(shows: bool, protocols: &[&str]) -> TlsConnector {
    let builder = ClientConfig::builder().with_root_certificates(SERVER.roots());
    let mut config = if shows {
        builder
            .with_client_auth_cert(CLIENT.chain(), CLIENT.key.clone_key())
            .unwrap()
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

fn localhost() -> ServerName<'static> {
    "localhost".try_into().unwrap()
}

/// Two ends that have shaken hands.
macro_rules! secured {
    ($connector:expr, $acceptor:expr) => {{
        let (client, server) = pair().await;
        let (connector, acceptor) = ($connector, $acceptor);
        let (client, server) = tokio::join!(connector.connect(localhost(), client), acceptor.accept(server));
        (client.unwrap(), server.unwrap())
    }};
}

scenario! {
    /// What the two agree on, and whom they know each other by.
    fn protocols_and_certificates(says) {
        for (offered, spoken) in [(&["h2", "http/1.1"][..], &["http/1.1"][..]), (&["h2"], &["h2", "http/1.1"])] {
            let (client, server) = secured!(connector(true, offered), acceptor(true, spoken));
            for (end, session) in [
                ("client", (client.get_ref().1.alpn_protocol(), client.get_ref().1.peer_certificates())),
                ("server", (server.get_ref().1.alpn_protocol(), server.get_ref().1.peer_certificates())),
            ] {
                let (protocol, certificates) = session;
                let whose = certificates.map(|chain| {
                    (chain.len(), chain[0] == CLIENT.certificate, chain[0] == SERVER.certificate)
                });
                says.note(format!("{end}: {:?} {whose:?}", protocol.map(String::from_utf8_lossy)));
            }
        }
    }
}

scenario! {
    fn a_client_without_a_certificate_is_refused(says) {
        let (client, server) = pair().await;
        let (connector, acceptor) = (connector(false, &[]), acceptor(true, &[]));
        let refused = async {
            let mut stream = connector.connect(localhost(), client).await?;
            stream.read(&mut [0; 10]).await
        };
        let (client, server) = tokio::join!(refused, async {
            acceptor.accept(server).await.map(|_| ())
        });
        says.told_kind("client", client);
        says.told_kind("server", server);
    }
}

scenario! {
    fn a_server_that_is_not_trusted_is_refused(says) {
        let (client, server) = pair().await;
        let config = ClientConfig::builder().with_root_certificates(CLIENT.roots()).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let acceptor = acceptor(false, &[]);
        let (client, server) = tokio::join!(
            async { connector.connect(localhost(), client).await.map(|_| ()) },
            async { acceptor.accept(server).await.map(|_| ()) }
        );
        says.told_kind("client", client);
        says.told_kind("server", server);
    }
}

scenario! {
    /// An end that is told (close_notify) is an end, and one that is not is an error.
    fn ends_are_told(says) {
        for tells in [true, false] {
            let (mut client, mut server) = secured!(connector(false, &[]), acceptor(false, &[]));
            // Also what the server has to say after the handshake, so that nothing is left unread.
            client.write_all(b"there").await.unwrap();
            server.write_all(b"and back").await.unwrap();
            server.flush().await.unwrap();
            client.flush().await.unwrap();
            client.read_exact(&mut [0; 8]).await.unwrap();
            if tells {
                says.told("shutdown", client.shutdown().await);
                let mut text = Vec::new();
                says.told("server reads", server.read_to_end(&mut text).await);
                says.note(format!("{text:?}"));
                // The other direction goes on.
                server.write_all(b"farewell").await.unwrap();
                says.told("shutdown", server.shutdown().await);
                let mut text = String::new();
                says.told("client reads", client.read_to_string(&mut text).await);
                says.note(text);
            } else {
                drop(client);
                let mut text = Vec::new();
                says.told_kind("server reads", server.read_to_end(&mut text).await);
                says.note(format!("{text:?}"));
            }
        }
    }
}

scenario! {
    fn much_goes_both_ways(says) {
        let (client, mut server) = secured!(connector(false, &[]), acceptor(false, &[]));
        let (mut from, mut to) = tokio::io::split(client);
        let echo = async {
            let mut buffer = vec![0; 32_768];
            loop {
                let count = server.read(&mut buffer).await.unwrap();
                if count == 0 {
                    server.shutdown().await.unwrap();
                    return;
                }
                server.write_all(&buffer[..count]).await.unwrap();
            }
        };
        let total = bulk::bytes();
        let send = async {
            let mut pattern = Pattern::default();
            while pattern.count() < total {
                to.write_all(pattern.next(30_001, total)).await.unwrap();
            }
            to.shutdown().await.unwrap();
        };
        let receive = async {
            let (mut pattern, mut buffer) = (Pattern::default(), vec![0; 20_000]);
            loop {
                let count = from.read(&mut buffer).await.unwrap();
                if count == 0 {
                    return pattern.count();
                }
                pattern.check(&buffer[..count]);
            }
        };
        let ((), (), count) = tokio::join!(echo, send, receive);
        assert_eq!(count, total);
        says.note(format!("{count}"));
    }
}
