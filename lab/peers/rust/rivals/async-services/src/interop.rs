//! `grpc.testing.TestService`, for the clients of gRPC's interoperability tests (doc/interop-test-descriptions.md of grpc/grpc):
//! the messages with the fields that their cases use, and the methods.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, stream};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

/// What a client wants to have back at the beginning, and behind the messages.
const ECHO_INITIAL: &str = "x-grpc-test-echo-initial";
const ECHO_TRAILING: &str = "x-grpc-test-echo-trailing-bin";

/// Messages that are made ahead of a client that reads slowly.
const AHEAD: usize = 4;

#[derive(Clone, PartialEq, prost::Message)]
struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
struct Payload {
    #[prost(bytes = "vec", tag = "2")]
    body: Vec<u8>,
}

impl Payload {
    fn of(size: i32) -> Result<Self, Status> {
        let size = usize::try_from(size)
            .map_err(|_| Status::invalid_argument(format!("a payload cannot have {size} bytes")))?;
        Ok(Self { body: vec![0; size] })
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct EchoStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// The status that a client asks for.
fn asked_for(status: Option<&EchoStatus>) -> Result<(), Status> {
    match status {
        Some(status) if status.code != 0 => Err(Status::new(Code::from_i32(status.code), &*status.message)),
        _ => Ok(()),
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct SimpleRequest {
    #[prost(int32, tag = "2")]
    response_size: i32,
    #[prost(message, optional, tag = "3")]
    payload: Option<Payload>,
    #[prost(message, optional, tag = "7")]
    response_status: Option<EchoStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SimpleResponse {
    #[prost(message, optional, tag = "1")]
    payload: Option<Payload>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct InputRequest {
    #[prost(message, optional, tag = "1")]
    payload: Option<Payload>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct InputResponse {
    #[prost(int32, tag = "1")]
    aggregated_payload_size: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResponseParameters {
    #[prost(int32, tag = "1")]
    size: i32,
    #[prost(int32, tag = "2")]
    interval_us: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct OutputRequest {
    #[prost(message, repeated, tag = "2")]
    response_parameters: Vec<ResponseParameters>,
    #[prost(message, optional, tag = "3")]
    payload: Option<Payload>,
    #[prost(message, optional, tag = "7")]
    response_status: Option<EchoStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct OutputResponse {
    #[prost(message, optional, tag = "1")]
    payload: Option<Payload>,
}

async fn empty(_: Request<Empty>) -> Result<Response<Empty>, Status> {
    Ok(Response::new(Empty {}))
}

async fn unary(request: Request<SimpleRequest>) -> Result<Response<SimpleResponse>, Status> {
    let request = request.into_inner();
    asked_for(request.response_status.as_ref())?;
    Ok(Response::new(SimpleResponse {
        payload: Some(Payload::of(request.response_size)?),
    }))
}

async fn input(request: Request<Streaming<InputRequest>>) -> Result<Response<InputResponse>, Status> {
    let mut incoming = request.into_inner();
    let mut size = 0;
    while let Some(message) = incoming.message().await? {
        size += message.payload.map_or(0, |payload| payload.body.len());
    }
    Ok(Response::new(InputResponse {
        aggregated_payload_size: i32::try_from(size)
            .map_err(|_| Status::out_of_range("too much was sent to be counted"))?,
    }))
}

type Outgoing = mpsc::Sender<Result<OutputResponse, Status>>;

/// Sends what one request asks for. An error is for the client.
async fn respond(request: &OutputRequest, to: &Outgoing) -> Result<(), Status> {
    asked_for(request.response_status.as_ref())?;
    for wanted in &request.response_parameters {
        let pause = u64::try_from(wanted.interval_us).unwrap_or(0);
        if pause > 0 {
            tokio::time::sleep(Duration::from_micros(pause)).await;
        }
        let payload = Some(Payload::of(wanted.size)?);
        // A client that has gone is told of by the stream of its requests, or wants nothing more.
        let _ = to.send(Ok(OutputResponse { payload })).await;
    }
    Ok(())
}

fn outgoing(
    receiver: mpsc::Receiver<Result<OutputResponse, Status>>,
) -> impl Stream<Item = Result<OutputResponse, Status>> + Send {
    stream::unfold(receiver, |mut receiver| async move {
        let next = receiver.recv().await?;
        Some((next, receiver))
    })
}

async fn output(
    request: Request<OutputRequest>,
) -> Result<Response<impl Stream<Item = Result<OutputResponse, Status>> + Send>, Status> {
    let request = request.into_inner();
    let (to, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        if let Err(status) = respond(&request, &to).await {
            let _ = to.send(Err(status)).await;
        }
    });
    Ok(Response::new(outgoing(receiver)))
}

async fn duplex(
    request: Request<Streaming<OutputRequest>>,
) -> Result<Response<impl Stream<Item = Result<OutputResponse, Status>> + Send>, Status> {
    let mut incoming = request.into_inner();
    let (to, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let ended = async {
            while let Some(request) = incoming.message().await? {
                respond(&request, &to).await?;
            }
            Ok(())
        };
        if let Err(status) = ended.await {
            let _ = to.send(Err(status)).await;
        }
    });
    Ok(Response::new(outgoing(receiver)))
}

/// The service.
#[derive(Clone)]
pub(crate) struct TestService;

impl NamedService for TestService {
    const NAME: &'static str = "grpc.testing.TestService";
}

async fn answer(request: http::Request<Body>) -> http::Response<Body> {
    let (_, method) = request.uri().path().rsplit_once('/').unwrap_or_default();
    match method {
        "EmptyCall" => {
            Grpc::new(ProstCodec::default())
                .unary(service_fn(empty), request)
                .await
        }
        "UnaryCall" => {
            Grpc::new(ProstCodec::default())
                .unary(service_fn(unary), request)
                .await
        }
        "StreamingInputCall" => {
            let mut grpc = Grpc::new(ProstCodec::default());
            grpc.client_streaming(service_fn(input), request).await
        }
        "StreamingOutputCall" => {
            let mut grpc = Grpc::new(ProstCodec::default());
            grpc.server_streaming(service_fn(output), request).await
        }
        "FullDuplexCall" => {
            Grpc::new(ProstCodec::default())
                .streaming(service_fn(duplex), request)
                .await
        }
        _ => Status::unimplemented("there is no such method").into_http(),
    }
}

/// Adds what a client wants to have back behind the messages.
fn with_trailing(body: Body, value: HeaderValue) -> Body {
    Body::new(body.map_frame(move |mut frame| {
        if let Some(trailers) = frame.trailers_mut() {
            HeaderMap::insert(trailers, ECHO_TRAILING, value.clone());
        }
        frame
    }))
}

impl Service<http::Request<Body>> for TestService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let initial = request.headers().get(ECHO_INITIAL).cloned();
            let trailing = request.headers().get(ECHO_TRAILING).cloned();
            let mut response = answer(request).await;
            if let Some(value) = initial {
                response.headers_mut().insert(ECHO_INITIAL, value);
            }
            Ok(match trailing {
                Some(value) => response.map(|body| with_trailing(body, value)),
                None => response,
            })
        })
    }
}
