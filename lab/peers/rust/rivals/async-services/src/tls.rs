//! HTTPS: hyper over tokio-rustls, TLS 1.3, a certificate on the curve P-256 that signs itself.

use std::io;
use std::sync::Arc;

use axum::serve::Listener;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rival_hyper::{http, respond};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const ASK: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\n\r\n";

pub(crate) async fn serve(mut listener: impl Listener) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(Arc::new(certificate().map_err(io::Error::other)?));
    let http = http();
    loop {
        let (stream, _) = listener.accept().await;
        let (acceptor, http) = (acceptor.clone(), http.clone());
        tokio::spawn(async move {
            // A connection that breaks ends alone; its peer knows.
            if let Ok(stream) = acceptor.accept(stream).await {
                let _ = http
                    .serve_connection(TokioIo::new(stream), service_fn(respond))
                    .await;
            }
        });
    }
}

fn certificate() -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    Ok(ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.into()], key)?)
}

/// Takes every certificate: the server has made its own just now.
#[derive(Debug)]
struct Any;

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Shakes hands.
#[derive(Clone)]
pub(crate) struct Client(TlsConnector);

impl Client {
    /// `again`: connections that follow may go on where others ended.
    pub(crate) fn new(again: bool) -> Self {
        let mut config = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Any))
            .with_no_client_auth();
        if !again {
            // It would cost the server less than the handshakes that are to be measured.
            config.resumption = Resumption::disabled();
        }
        Self(TlsConnector::from(Arc::new(config)))
    }

    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<Asking> {
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        Ok(Asking {
            stream: self.0.connect(name, stream).await?,
            answer: Vec::new(),
        })
    }
}

/// A connection on which one request is out at a time.
pub(crate) struct Asking {
    stream: TlsStream<TcpStream>,
    /// Room for an answer, once the first has told how long they are.
    answer: Vec<u8>,
}

impl Asking {
    pub(crate) async fn ask(&mut self) -> io::Result<()> {
        self.stream.write_all(ASK).await?;
        if self.answer.is_empty() {
            return self.read_first().await;
        }
        self.stream.read_exact(&mut self.answer).await?;
        check(&self.answer).map(drop)
    }

    async fn read_first(&mut self) -> io::Result<()> {
        let mut answer = Vec::new();
        loop {
            if self.stream.read_buf(&mut answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if check(&answer)? == Some(answer.len()) {
                self.answer = answer;
                return Ok(());
            }
        }
    }

    /// Ends the connection as TLS has it.
    pub(crate) async fn close(mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }
}

/// How long the response is that begins there, once its head is whole. One that is none, or no success, is an error.
fn check(answer: &[u8]) -> io::Result<Option<usize>> {
    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(answer).map_err(io::Error::other)?;
    let httparse::Status::Complete(head) = parsed else {
        return Ok(None);
    };
    let length = response.headers.iter().find_map(|field| {
        let is_length = field.name.eq_ignore_ascii_case("content-length");
        is_length.then(|| str::from_utf8(field.value).ok()?.parse::<usize>().ok())?
    });
    match (response.code, length) {
        (Some(200), Some(length)) => Ok(Some(head + length)),
        (code, length) => Err(io::Error::other(format!(
            "a response has status {code:?} and length {length:?}"
        ))),
    }
}
