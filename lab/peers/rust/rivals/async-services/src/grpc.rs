//! gRPC: one method that is called and answers once. `protoc` would make this from:
//!
//! ```proto
//! message Number { uint64 value = 1; }
//! service Numbers { rpc Square(Number) returns (Number); }
//! ```

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::serve::Listener;
use futures_util::stream;
use http::uri::PathAndQuery;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::Service;

const PATH: &str = "/numbers.Numbers/Square";

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct Number {
    #[prost(uint64, tag = "1")]
    value: u64,
}

/// The service.
#[derive(Clone)]
pub(crate) struct Numbers;

impl NamedService for Numbers {
    const NAME: &'static str = "numbers.Numbers";
}

async fn square(request: Request<Number>) -> Result<Response<Number>, Status> {
    let value = request.into_inner().value;
    let square = value.checked_mul(value);
    let value = square.ok_or_else(|| Status::out_of_range("it is too large to be squared"))?;
    Ok(Response::new(Number { value }))
}

impl Service<http::Request<Body>> for Numbers {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(Status::unimplemented("there is no such method").into_http());
            }
            let mut server = tonic::server::Grpc::new(ProstCodec::default());
            Ok(server.unary(tower::service_fn(square), request).await)
        })
    }
}

pub(crate) async fn serve<L, S>(listener: L, service: S) -> io::Result<()>
where
    L: Listener,
    L::Io: Connected,
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let incoming = stream::unfold(listener, |mut listener| async move {
        let (stream, _) = listener.accept().await;
        Some((Ok::<_, io::Error>(stream), listener))
    });
    Server::builder()
        .add_service(service)
        .serve_with_incoming(incoming)
        .await
        .map_err(io::Error::other)
}

/// A connection on which one call is out at a time.
pub(crate) struct Asking {
    client: tonic::client::Grpc<Channel>,
    value: u64,
}

impl Asking {
    pub(crate) async fn connect(to: SocketAddr) -> io::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{to}")).map_err(io::Error::other)?;
        let channel = endpoint.connect().await.map_err(io::Error::other)?;
        Ok(Self {
            client: tonic::client::Grpc::new(channel),
            value: 0,
        })
    }

    pub(crate) async fn ask(&mut self) -> io::Result<()> {
        self.value = (self.value + 1) % 1000;
        let value = self.value;
        self.client.ready().await.map_err(io::Error::other)?;
        let codec = ProstCodec::<Number, Number>::default();
        let path = PathAndQuery::from_static(PATH);
        let answer = self
            .client
            .unary(Request::new(Number { value }), path, codec)
            .await
            .map_err(io::Error::other)?;
        let square = answer.into_inner().value;
        if square != value * value {
            return Err(io::Error::other(format!("{value} squared is not {square}")));
        }
        Ok(())
    }
}
