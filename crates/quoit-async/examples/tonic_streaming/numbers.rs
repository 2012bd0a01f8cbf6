//! The service and its messages. A program with `protoc` has all of this made from the description by `tonic-prost-build`:
//!
//! ```proto
//! syntax = "proto3";
//! package numbers;
//!
//! message SquareRequest { uint64 value = 1; }
//! message CountRequest { uint64 from = 1; uint64 to = 2; }
//! message Number { uint64 value = 1; }
//!
//! service Numbers {
//!   rpc Square(SquareRequest) returns (Number);
//!   rpc Count(CountRequest) returns (stream Number);
//! }
//! ```

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio_stream::Stream;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct SquareRequest {
    #[prost(uint64, tag = "1")]
    pub(crate) value: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct CountRequest {
    #[prost(uint64, tag = "1")]
    pub(crate) from: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) to: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Number {
    #[prost(uint64, tag = "1")]
    pub(crate) value: u64,
}

/// What a server does.
pub(crate) trait Numbers: Send + Sync + 'static {
    type CountStream: Stream<Item = Result<Number, Status>> + Send + 'static;

    fn square(
        &self,
        request: Request<SquareRequest>,
    ) -> impl Future<Output = Result<Response<Number>, Status>> + Send;

    fn count(
        &self,
        request: Request<CountRequest>,
    ) -> impl Future<Output = Result<Response<Self::CountStream>, Status>> + Send;
}

/// Makes a service of what does it.
pub(crate) struct NumbersServer<T>(Arc<T>);

impl<T> NumbersServer<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self(Arc::new(inner))
    }
}

impl<T> Clone for NumbersServer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> NamedService for NumbersServer<T> {
    const NAME: &'static str = "numbers.Numbers";
}

impl<T: Numbers> Service<http::Request<Body>> for NumbersServer<T> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        match request.uri().path() {
            "/numbers.Numbers/Square" => Box::pin(async move {
                let square = tower::service_fn(move |request| {
                    let inner = Arc::clone(&inner);
                    async move { inner.square(request).await }
                });
                Ok(Grpc::new(ProstCodec::default()).unary(square, request).await)
            }),
            "/numbers.Numbers/Count" => Box::pin(async move {
                let count = tower::service_fn(move |request| {
                    let inner = Arc::clone(&inner);
                    async move { inner.count(request).await }
                });
                Ok(Grpc::new(ProstCodec::default())
                    .server_streaming(count, request)
                    .await)
            }),
            _ => Box::pin(async { Ok(Status::unimplemented("there is no such method").into_http()) }),
        }
    }
}
