//! Two sides of QUIC, over quinn's own sockets and over ours.
#![allow(dead_code, reason = "no file of tests uses all of it")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quinn::rustls::{ClientConfig as TlsConfig, RootCertStore};
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime};
use quoit_async::{Config, EngineChoice, EngineKind, QuinnRuntime};

use crate::bulk::patience;

/// Runs a scenario over quinn's own sockets, and over ours on both engines.
pub(crate) fn everywhere(scenario: impl AsyncFn(Arc<dyn Runtime>) + Clone + Send + Sync + 'static) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            tokio::time::timeout(patience(), scenario(Arc::new(TokioRuntime)))
                .await
                .expect("quinn's own sockets hang");
        });
    for engine in [EngineKind::Uring, EngineKind::Epoll] {
        let config = quoit_async::ServerConfig {
            loops: 1,
            config: Config {
                engine: EngineChoice::Require(engine),
                ..Config::default()
            },
            ..quoit_async::ServerConfig::default()
        };
        let scenario = scenario.clone();
        quoit_async::serve(config, move |_| {
            let scenario = scenario.clone();
            async move {
                tokio::time::timeout(patience(), scenario(Arc::new(QuinnRuntime)))
                    .await
                    .unwrap_or_else(|_| panic!("{engine} hangs"));
                Ok(())
            }
        })
        .unwrap();
    }
}

/// The two sides' configurations, of which one trusts the other.
pub(crate) fn configs() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate: CertificateDer<'static> = made.cert.into();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let tls = TlsConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let server = ServerConfig::with_single_cert(vec![certificate], key).unwrap();
    (server, client)
}

pub(crate) fn bind(address: &str) -> UdpSocket {
    UdpSocket::bind(address).unwrap()
}

pub(crate) fn endpoint(
    runtime: &Arc<dyn Runtime>,
    server: Option<ServerConfig>,
    socket: UdpSocket,
) -> Endpoint {
    Endpoint::new(EndpointConfig::default(), server, socket, Arc::clone(runtime)).unwrap()
}

/// Two connected sides, with their endpoints.
pub(crate) async fn pair(
    runtime: &Arc<dyn Runtime>,
    server: &str,
    asked: &str,
) -> (Endpoint, Endpoint, Connection, Connection) {
    let (server_config, client_config) = configs();
    let server = endpoint(runtime, Some(server_config), bind(server));
    let client = endpoint(runtime, None, bind("127.0.0.1:0"));
    let to = SocketAddr::new(asked.parse().unwrap(), server.local_addr().unwrap().port());
    let connecting = client.connect_with(client_config, to, "localhost").unwrap();
    let accepting = async { server.accept().await.unwrap().await.unwrap() };
    let (there, here) = tokio::join!(connecting, accepting);
    (server, client, there.unwrap(), here)
}
