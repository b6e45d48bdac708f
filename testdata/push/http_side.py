"""The receiver's HTTP server: OTLP's and Pyroscope's routes, and `POST /answers`, which changes the script."""

import gzip
import json
import socket
import ssl
import struct
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

PUSH = "/push.v1.PusherService/Push"
# Connect's names of errors, by HTTP status.
CODES = {400: "invalid_argument", 401: "unauthenticated", 413: "resource_exhausted", 429: "resource_exhausted", 503: "unavailable"}
TYPES = {"otlp": ("application/x-protobuf", "application/protobuf"), "pyroscope": ("application/proto",)}


class Server(ThreadingHTTPServer):
    """Listens on a port of the system's choice, with TLS if there is a certificate."""

    daemon_threads = True

    def __init__(self, judge, otlp_path, prefix, certificate):
        super().__init__(("127.0.0.1", 0), Handler)
        self.judge = judge
        self.protocols = {otlp_path: "otlp", prefix + PUSH: "pyroscope"}
        self.context = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
            self.context.set_alpn_protocols(["http/1.1"])

    def finish_request(self, request, client_address):
        # Here it is the connection's own thread that waits for the handshake.
        if self.context:
            with self.context.wrap_socket(request, server_side=True) as request:
                super().finish_request(request, client_address)
        else:
            super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        # Clients that go, or turn away at a certificate, are part of the tests.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def start(self):
        """Begins to answer, and returns the port."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self.server_address[1]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_POST(self):
        path = self.path.split("?")[0]
        body = self.body()
        if path == "/answers":
            self.server.judge.answers.replace(body.decode())
            self.reply(200, {}, b"")
            return
        protocol = self.server.protocols.get(path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        if protocol is None:
            self.server.judge.turn_away(path, headers, "no such route")
            self.reply(404, {}, b"no such route")
            return
        if headers.get("content-type") not in TYPES[protocol]:
            self.server.judge.turn_away(path, headers, "a wrong content type")
            self.reply(415, {}, b"another type of content is expected")
            return
        data = decompressed(body, headers.get("content-encoding", "identity"))
        answer, why = self.server.judge.take(protocol, "HTTP", path, headers, len(body), data)
        self.give(protocol, answer, why)

    def body(self):
        """The body, whole or in chunks."""
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def give(self, protocol, answer, why):
        """Gives an answer of the script."""
        if answer.action == "hang":
            self.close_connection = True
            # The sender sends no more: this returns when it has gone.
            self.connection.recv(1)
        elif answer.action == "reset":
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif answer.action == "status":
            text = {"code": CODES.get(answer.number, "unknown"), "message": why}
            headers = {"Content-Type": "application/json"}
            if answer.retry_after is not None:
                headers["Retry-After"] = f"{answer.retry_after:g}"
            self.reply(answer.number, headers, json.dumps(text).encode())
        else:
            response = profiles_service_pb2.ExportProfilesServiceResponse()
            if answer.action == "partial" and protocol == "otlp":
                response.partial_success.rejected_profiles = answer.number
                response.partial_success.error_message = "rejected by the script"
            headers = {"Content-Type": self.headers["content-type"]}
            self.reply(200, headers, response.SerializeToString(), answer.action)

    def reply(self, status, headers, body, how="ok"):
        """Sends an answer: all of it, half of it, or byte by byte."""
        lines = [f"HTTP/1.1 {status} {self.responses.get(status, ('Unknown',))[0]}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        answer = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
        if how == "close":
            self.close_connection = True
            answer = answer[: len(answer) // 2]
        if how != "slow":
            self.wfile.write(answer)
            return
        for place in range(len(answer)):
            self.wfile.write(answer[place : place + 1])
            time.sleep(1)


def decompressed(body, encoding):
    """The body without its compression, or None if it is broken or the compression is not known."""
    if encoding != "gzip":
        return body if encoding == "identity" else None
    try:
        return gzip.decompress(body)
    except (OSError, EOFError, zlib.error):
        return None
