//! What the server says, to clients that write each byte themselves.

use super::server::Bounds;
use super::{ListenAddress, Server, for_firefox_profiler};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::IntoResponse;
use axum::routing::get;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than anything here takes on the busiest machine.
const LONG: Duration = Duration::from_secs(60);

const CONTENTS: &str = "There is:\n  /page   a page\n";

const FRONT_END: &str = "https://profiler.firefox.com";

fn pages() -> Router {
    let own_policy = [("content-security-policy", "script-src 'unsafe-inline'")];
    Router::new()
        .route("/page", get("the page"))
        .route("/scripts", get(async move || (own_policy, "scripts").into_response()))
        .route("/profile.json", for_firefox_profiler(get("{}")))
}

fn server_of(pages: Router, bounds: Bounds) -> Server {
    let listener = ListenAddress::ANY_LOOPBACK_PORT.bind().unwrap();
    Server::start_within(bounds, listener, pages, CONTENTS).unwrap()
}

fn server() -> Server {
    server_of(pages(), Bounds::default())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// What the server at `address` answers to these bytes, until it closes the connection.
fn answer(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// What it answers to one request with these lines, besides which it has a `Host` of the server's.
fn ask(server: &Server, first_line: &str, lines: &[&str]) -> String {
    let address = server.address();
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    answer(address, &format!("{first_line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{lines}\r\n"))
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let (head, _) = answer.split_once("\r\n\r\n").unwrap();
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn pages_are_read_with_headers_that_keep_others_out() {
    let server = server();
    let page = ask(&server, "GET /page", &[]);
    assert_eq!((status(&page), body(&page)), ("200", "the page"));
    assert_eq!(header(&page, "x-content-type-options"), Some("nosniff"));
    assert_eq!(header(&page, "cache-control"), Some("no-store"));
    assert_eq!(header(&page, "cross-origin-resource-policy"), Some("same-origin"));
    assert_eq!(header(&page, "referrer-policy"), Some("no-referrer"));
    assert!(header(&page, "content-security-policy").unwrap().starts_with("default-src 'none'; "));
    assert_eq!(header(&page, "access-control-allow-origin"), None);
    let scripts = ask(&server, "GET /scripts", &[]);
    assert_eq!(header(&scripts, "content-security-policy"), Some("script-src 'unsafe-inline'"));
    let head = ask(&server, "HEAD /page", &[]);
    assert_eq!((status(&head), header(&head, "content-length"), body(&head)), ("200", Some("8"), ""));
}

#[test]
fn what_is_not_there_is_answered_with_what_is() {
    let server = server();
    let none = ask(&server, "GET /nonsense", &[]);
    assert_eq!((status(&none), header(&none, "x-content-type-options")), ("404", Some("nosniff")));
    assert_eq!(body(&none), format!("there is no such page here\n\n{CONTENTS}"));
}

#[test]
fn nothing_but_reading_is_answered() {
    let server = server();
    for first_line in ["POST /page", "PUT /nonsense", "DELETE /profile.json", "TRACE /page", "OPTIONS /page", "X /page"]
    {
        let refused = ask(&server, first_line, &["Content-Length: 0"]);
        assert_eq!((status(&refused), header(&refused, "allow")), ("405", Some("GET, HEAD")), "{first_line}");
        assert_eq!(body(&refused), "only GET and HEAD are answered here\n");
    }
}

#[test]
fn another_name_of_this_machine_is_not_answered_to() {
    let server = server();
    let asked_as = |host: &str| answer(server.address(), &format!("GET /page HTTP/1.0\r\n{host}\r\n\r\n"));
    assert_eq!(status(&asked_as("Host: localhost")), "200");
    for host in ["Host: evil.example", "Host: evil.example:80", "X: y", "Host: localhost\r\nHost: localhost"] {
        let refused = asked_as(host);
        assert_eq!(status(&refused), "421", "{host}");
        assert!(!refused.contains("the page"));
    }
}

#[test]
fn only_the_firefox_profiler_may_read_profiles_from_elsewhere() {
    let server = server();
    let asked_from = |path: &str, origin: &str| ask(&server, &format!("GET {path}"), &[&format!("Origin: {origin}")]);
    let allowed = "access-control-allow-origin";
    let profile = asked_from("/profile.json", FRONT_END);
    assert_eq!((status(&profile), header(&profile, allowed), body(&profile)), ("200", Some(FRONT_END), "{}"));
    assert_eq!(header(&profile, "vary"), Some("origin"));
    for origin in
        ["https://evil.example", "http://profiler.firefox.com", "https://profiler.firefox.com.evil.example", "null"]
    {
        assert_eq!(header(&asked_from("/profile.json", origin), allowed), None, "{origin}");
    }
    assert_eq!(header(&asked_from("/page", FRONT_END), allowed), None);
    assert_eq!(header(&ask(&server, "GET /profile.json", &[]), allowed), None);
}

#[test]
fn browsers_that_ask_first_are_told() {
    let server = server();
    let lines = ["Access-Control-Request-Method: GET", "Access-Control-Request-Private-Network: true"];
    let preflight = |path: &str, origin: &str| {
        let origin = format!("Origin: {origin}");
        ask(&server, &format!("OPTIONS {path}"), &[lines[0], lines[1], &origin])
    };
    let told = preflight("/profile.json", FRONT_END);
    assert_eq!((status(&told), body(&told)), ("204", ""));
    assert_eq!(header(&told, "access-control-allow-origin"), Some(FRONT_END));
    assert_eq!(header(&told, "access-control-allow-methods"), Some("GET, HEAD"));
    assert_eq!(header(&told, "access-control-allow-private-network"), Some("true"));
    for (path, origin, expected) in
        [("/profile.json", "https://evil.example", "403"), ("/page", FRONT_END, "405"), ("/none", FRONT_END, "404")]
    {
        let refused = preflight(path, origin);
        assert_eq!(status(&refused), expected, "{path} {origin}");
        assert!(!refused.contains("access-control-allow"), "{refused}");
    }
}

#[test]
fn what_is_no_request_is_answered_so() {
    let server = server();
    let address = server.address();
    assert_eq!(status(&answer(address, "\x16\x03\x01\x02\r\n\r\n")), "400");
    let long = format!("GET /page HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    let mut stream = connect(address);
    // The server may have closed before it has read all.
    let _ = stream.write_all(long.as_bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    assert!(!String::from_utf8_lossy(&bytes).contains("the page"));
}

/// Many requests one after another on one connection, as browsers and scrapers send them.
#[test]
fn a_connection_serves_request_after_request() {
    let server = server();
    let mut stream = connect(server.address());
    for _ in 0..1000 {
        write!(stream, "GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        read_until(&mut stream, "the page");
    }
}

fn read_until(stream: &mut TcpStream, end: &str) {
    let mut read = Vec::new();
    let mut chunk = [0; 4096];
    while !read.ends_with(end.as_bytes()) {
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&chunk[..count]);
    }
}

/// Reads until the server closes. That it has reset the connection is as good.
fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes,
    }
}

#[test]
fn who_says_nothing_is_left() {
    let bounds = Bounds { head: Duration::from_millis(50), ..Bounds::default() };
    let server = server_of(pages(), bounds);
    for beginning in ["", "GET /page HTTP/1.1\r\nHost: local"] {
        let mut stream = connect(server.address());
        stream.write_all(beginning.as_bytes()).unwrap();
        read_to_end(stream);
    }
    // One that has been answered before. On a busy machine it may be left before it has said anything.
    assert!((0..100).any(|_| {
        let mut stream = connect(server.address());
        let _ = write!(stream, "GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n");
        read_to_end(stream).ends_with(b"the page")
    }));
}

/// Says through the channel that it is gone.
struct Gone(mpsc::Sender<()>);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn who_reads_nothing_of_an_answer_is_left() {
    let bounds = Bounds { write: Duration::from_millis(50), ..Bounds::default() };
    let (sender, receiver) = mpsc::channel();
    let sender = Arc::new(Mutex::new(Some(sender)));
    // More than the buffers of both ends take, and gone when nobody writes it any more.
    let large = get(async move || {
        let owner = (vec![b'x'; 64 << 20], sender.lock().unwrap().take().map(Gone));
        Body::from(Bytes::from_owner(Large(owner)))
    });
    let server = server_of(Router::new().route("/large", large), bounds);
    let mut stream = connect(server.address());
    write!(stream, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    receiver.recv_timeout(LONG).unwrap();
    assert!(read_to_end(stream).len() < 64 << 20);
}

struct Large((Vec<u8>, Option<Gone>));

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

/// A page that is never there: says that it was asked for, and that nobody waits for it any more.
fn endless(asked: mpsc::Sender<()>, gone: mpsc::Sender<()>) -> Router {
    let channels = Arc::new(Mutex::new((asked, gone)));
    let page = get(async move || {
        let gone = {
            let (asked, gone) = &*channels.lock().unwrap();
            asked.send(()).unwrap();
            Gone(gone.clone())
        };
        std::future::pending::<()>().await;
        drop(gone);
    });
    Router::new().route("/endless", page)
}

#[test]
fn work_for_a_client_that_has_left_is_given_up() {
    let (asked, was_asked) = mpsc::channel();
    let (gone, is_gone) = mpsc::channel();
    let server = server_of(endless(asked, gone), Bounds::default());
    let mut stream = connect(server.address());
    write!(stream, "GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    was_asked.recv_timeout(LONG).unwrap();
    drop(stream);
    is_gone.recv_timeout(LONG).unwrap();
}

#[test]
fn the_server_ends_though_a_client_waits() {
    let (asked, was_asked) = mpsc::channel();
    let (gone, is_gone) = mpsc::channel();
    let bounds = Bounds { stop: Duration::from_millis(50), ..Bounds::default() };
    let server = server_of(endless(asked, gone), bounds);
    let address = server.address();
    let mut stream = connect(address);
    write!(stream, "GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    was_asked.recv_timeout(LONG).unwrap();
    let idle = connect(address);
    server.stop();
    is_gone.recv_timeout(LONG).unwrap();
    assert_eq!(read_to_end(stream), b"");
    assert_eq!(read_to_end(idle), b"");
    assert!(TcpStream::connect(address).is_err());
}

/// Stopping lets answers be finished that were begun.
#[test]
fn an_answer_that_was_begun_is_given_before_the_end() {
    let (asked, was_asked) = mpsc::channel();
    let asked = Arc::new(Mutex::new(asked));
    let slow = get(async move || {
        asked.lock().unwrap().send(()).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        "slow"
    });
    let bounds = Bounds { stop: LONG, ..Bounds::default() };
    let server = server_of(Router::new().route("/slow", slow), bounds);
    let mut stream = connect(server.address());
    write!(stream, "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    was_asked.recv_timeout(LONG).unwrap();
    server.stop();
    assert!(read_to_end(stream).ends_with(b"slow"));
}

#[test]
fn no_more_clients_are_served_at_a_time_than_may_be() {
    const AT_A_TIME: usize = 2;
    let (served, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let page = get(async move || {
        let now = served.fetch_add(1, Ordering::SeqCst) + 1;
        seen.fetch_max(now, Ordering::SeqCst);
        // Time for others to come, if they are let in.
        let began = Instant::now();
        while served.load(Ordering::SeqCst) <= AT_A_TIME && began.elapsed() < Duration::from_millis(200) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        served.fetch_sub(1, Ordering::SeqCst);
        "served"
    });
    let bounds = Bounds { connections: AT_A_TIME, ..Bounds::default() };
    let server = server_of(Router::new().route("/", page), bounds);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..6).map(|_| scope.spawn(|| ask(&server, "GET /", &[]))).collect();
        for client in clients {
            assert_eq!(body(&client.join().unwrap()), "served");
        }
    });
    assert!(most.load(Ordering::SeqCst) <= AT_A_TIME);
}
