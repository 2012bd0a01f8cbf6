//! WebSockets: messages that are sent back.

use std::io;

use axum::serve::Listener;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Bytes of a message.
const SIZE: usize = 64;

pub(crate) async fn serve(mut listener: impl Listener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await;
        tokio::spawn(async move {
            // A connection that breaks ends alone; its peer knows.
            let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else {
                return;
            };
            while let Some(Ok(message)) = socket.next().await {
                let echoed = message.is_text() || message.is_binary();
                if echoed && socket.send(message).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// A connection on which one message is out at a time.
pub(crate) struct Asking {
    socket: WebSocketStream<TcpStream>,
    message: Message,
}

impl Asking {
    pub(crate) async fn connect(stream: TcpStream) -> io::Result<Self> {
        let (socket, _) = tokio_tungstenite::client_async("ws://localhost/", stream)
            .await
            .map_err(io::Error::other)?;
        let message = Message::binary((0..SIZE).map(|at| at as u8).collect::<Vec<_>>());
        Ok(Self { socket, message })
    }

    pub(crate) async fn ask(&mut self) -> io::Result<()> {
        self.socket
            .send(self.message.clone())
            .await
            .map_err(io::Error::other)?;
        match self.socket.next().await {
            Some(Ok(answer)) if answer == self.message => Ok(()),
            Some(Ok(answer)) => Err(io::Error::other(format!("{answer:?} came back"))),
            Some(Err(error)) => Err(io::Error::other(error)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
