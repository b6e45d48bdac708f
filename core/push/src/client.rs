//! Sends a request and reads its answer: HTTP/1.1, or HTTP/2 for gRPC, with TLS or without. Each request has a connection of its own: there is
//! one every some seconds.

use crate::answer::Answer;
use crate::headers::Headers;
use crate::request::Request;
use crate::target::Target;
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long is waited for one of a server's addresses before the next is tried.
const MAX_CONNECT: Duration = Duration::from_secs(3);

/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;

/// Sends requests to a server.
pub(crate) struct Client {
    target: Target,
    headers: Headers,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Client {
    /// Prepares requests to `target`. `roots` is a file with the certificates of those that may have signed the server's; without it they are
    /// Mozilla's.
    ///
    /// # Errors
    /// What is wrong with the certificates or the server's name, in words for the user.
    pub(crate) fn new(target: Target, headers: Headers, roots: Option<&Path>) -> Result<Self, String> {
        let tls = if target.is_tls { Some(tls(&target, roots)?) } else { None };
        Ok(Self { target, headers, tls })
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Sends `request`.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) async fn send(&self, request: &Request) -> Result<Answer, String> {
        let stream = self.connected().await.map_err(|error| format!("no connection: {error}"))?;
        match &self.tls {
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                self.send_over(stream.map_err(|error| format!("no connection: {error}"))?, request).await
            }
            None => self.send_over(stream, request).await,
        }
    }

    /// Connects to the first address of the server that answers.
    async fn connected(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in lookup_host((&*self.target.host, self.target.port)).await? {
            match timeout(MAX_CONNECT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }

    async fn send_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: &Request,
    ) -> Result<Answer, String> {
        let failed = |error: hyper::Error| format!("no answer: {}", with_sources(&error));
        let message = self.message(request).map_err(|error| error.to_string())?;
        let io = TokioIo::new(stream);
        // A connection goes when its task is dropped, with the runtime at the latest.
        let answer = if self.target.protocol.is_grpc() {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.map_err(failed)?;
            tokio::spawn(connection);
            sender.send_request(message).await.map_err(failed)?
        } else {
            let (mut sender, connection) = http1::handshake(io).await.map_err(failed)?;
            tokio::spawn(connection);
            sender.send_request(message).await.map_err(failed)?
        };
        let (head, body) = answer.into_parts();
        let answer = Answer { status: head.status, headers: head.headers, ..Answer::default() };
        match Limited::new(body, MAX_ANSWER).collect().await {
            Ok(body) => {
                let trailers = body.trailers().cloned().unwrap_or_default();
                Ok(Answer { body: body.to_bytes().to_vec(), trailers, ..answer })
            }
            // What it says is known without its words.
            Err(error) if error.is::<LengthLimitError>() && !self.target.protocol.is_grpc() => Ok(answer),
            Err(error) => Err(format!("no answer: {error}")),
        }
    }

    fn message(&self, Request { body, is_gzipped }: &Request) -> http::Result<http::Request<Full<Bytes>>> {
        let Self { target, headers, .. } = self;
        let is_grpc = target.protocol.is_grpc();
        let mut message = http::Request::post(match is_grpc {
            true => format!("{}://{}{}", if target.is_tls { "https" } else { "http" }, target.authority(), target.path),
            false => target.path.clone(),
        });
        message = message.header("user-agent", concat!("wlprof/", env!("CARGO_PKG_VERSION")));
        message = if is_grpc {
            let message = message.header("content-type", "application/grpc").header("te", "trailers");
            if *is_gzipped { message.header("grpc-encoding", "gzip") } else { message }
        } else {
            let media_type = if target.protocol.is_otlp() { "application/x-protobuf" } else { "application/proto" };
            let message = message.header("host", target.authority()).header("content-type", media_type);
            if *is_gzipped { message.header("content-encoding", "gzip") } else { message }
        };
        if let Some(own) = message.headers_mut() {
            own.extend(headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        message.body(Full::new(if is_grpc { prefixed(body, *is_gzipped) } else { body.clone() }))
    }
}

/// A message as gRPC frames it: whether it is compressed, and its length.
fn prefixed(message: &Bytes, is_gzipped: bool) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(is_gzipped.into());
    framed.put_u32(message.len() as u32);
    framed.put_slice(message);
    framed.freeze()
}

fn tls(target: &Target, roots: Option<&Path>) -> Result<(TlsConnector, ServerName<'static>), String> {
    let mut store = RootCertStore::empty();
    match roots {
        Some(path) => {
            let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let read = CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?;
            for certificate in read {
                let certificate = certificate.map_err(|error| failed(&error))?;
                store.add(certificate).map_err(|error| failed(&error))?;
            }
            if store.is_empty() {
                return Err(failed(&"there is no certificate in it (expected PEM)"));
            }
        }
        None => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.map_err(|error| error.to_string())?.with_root_certificates(store).with_no_client_auth();
    config.alpn_protocols = vec![if target.protocol.is_grpc() { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    let name = ServerName::try_from(target.host.clone());
    let name = name.map_err(|_| format!("{}: not a name that certificates have", target.host))?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
