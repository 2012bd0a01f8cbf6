//! gRPC by tonic, on a loop and a runtime per thread: one method that answers once, and one that answers with a stream.
//!
//!     cargo run --example tonic_streaming -- --listen 127.0.0.1:50051

#[path = "../common/mod.rs"]
mod common;
mod numbers;

use std::io;

use clap::Parser;
use numbers::{CountRequest, Number, Numbers, NumbersServer, SquareRequest};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Numbers that are made ahead of a client that reads slowly.
const AHEAD: usize = 16;

struct Arithmetic;

impl Numbers for Arithmetic {
    type CountStream = ReceiverStream<Result<Number, Status>>;

    async fn square(&self, request: Request<SquareRequest>) -> Result<Response<Number>, Status> {
        let value = request.into_inner().value;
        let square = value
            .checked_mul(value)
            .ok_or_else(|| Status::out_of_range(format!("{value} is too large to be squared")))?;
        Ok(Response::new(Number { value: square }))
    }

    async fn count(&self, request: Request<CountRequest>) -> Result<Response<Self::CountStream>, Status> {
        let CountRequest { from, to } = request.into_inner();
        let (sender, receiver) = mpsc::channel(AHEAD);
        tokio::spawn(async move {
            for value in from..=to {
                if sender.send(Ok(Number { value })).await.is_err() {
                    // The client has what it wants, or has gone.
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

fn main() -> io::Result<()> {
    common::Arguments::parse().serve(|mut context| async move {
        let draining = context.draining();
        Server::builder()
            .add_service(NumbersServer::new(Arithmetic))
            .serve_with_incoming_shutdown(context.listener()?.incoming(), draining)
            .await
            .map_err(io::Error::other)
    })
}
