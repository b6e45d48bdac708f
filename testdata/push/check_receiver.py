"""Sends a receiver right and wrong messages, and fails if a right one is refused or a wrong one passes."""

import contextlib
import gzip
import json
import pathlib
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

import grpc

import samples_to_send as right
from grpc_side import EXPORT, WRITE_RAW
from http_side import PUSH

FOLDER = pathlib.Path(__file__).parent


class Receiver:
    """A receiver that runs beside this program."""

    def __init__(self, *options):
        program = [sys.executable, str(FOLDER / "receiver.py"), *options]
        self.process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        words = self.process.stdout.readline().split()
        self.http, self.grpc = (int(word.split("=")[1]) for word in words[1:])
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.grpc}")

    def post(self, path, kind, data, encoding="gzip"):
        """Posts a body: the status and the headers of the answer."""
        headers = {"Content-Type": kind}
        if encoding == "gzip":
            headers["Content-Encoding"], data = "gzip", gzip.compress(data)
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers)

    def call(self, method, data):
        """Calls a method: the status's name and the details of an error."""
        try:
            self.channel.unary_unary(method)(data, timeout=60)
            return "OK", b""
        except grpc.RpcError as error:
            return error.code().name, dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")

    def send(self, message):
        """Sends a message of any protocol, and returns the answer and the line that the receiver prints."""
        data, kind = message.SerializeToString(), type(message).__name__
        if kind == "WriteRawRequest":
            answer, _ = self.call(WRITE_RAW, data)
        elif kind == "PushRequest":
            answer, _ = self.post(PUSH, "application/proto", data)
        else:
            answer, _ = self.post("/v1development/profiles", "application/x-protobuf", data)
        return answer, self.line()

    def line(self):
        return json.loads(self.process.stdout.readline())

    def answers(self, script):
        self.post("/answers", "text/plain", script.encode(), "identity")

    def end(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


# What is wrong with a message: the message, what breaks it, and a part of the violation.
def broken_pprof(change, violation):
    for wrap in (right.pyroscope, right.parca):
        profile = right.pprof()
        change(profile)
        yield wrap(profile), violation


def broken_otlp(change, violation):
    request = right.otlp()
    change(request, request.dictionary, request.resource_profiles[0].scope_profiles[0].profiles[0])
    yield request, violation


def broken_series(change, violation):
    request = right.pyroscope()
    change(request.series[0])
    yield request, violation


def cases():
    """Yields messages that break a rule each."""
    yield from broken_pprof(lambda p: p.sample.extend([p.sample[1]] * 15_999), "16001 samples")
    yield from broken_pprof(lambda p: p.sample.add(location_id=[9], value=[1, 1]), "a location that there is none of")
    yield from broken_pprof(lambda p: p.sample.add(location_id=[1], value=[1]), "a value for each sample type")
    yield from broken_pprof(lambda p: p.sample[1].location_id.extend([1] * 1000), "deeper than 1000")
    yield from broken_pprof(lambda p: [p.sample[0].label.add(key=7, num=n) for n in range(100)], "more than 100 labels")
    yield from broken_pprof(lambda p: p.string_table.append("x" * 65_536), "longer than 65535 bytes")
    yield from broken_pprof(lambda p: p.string_table.__setitem__(3, "cpu-time"), "hyphen")
    yield from broken_pprof(lambda p: setattr(p, "time_nanos", time.time_ns() - 3700 * 10**9), "s old")
    yield from broken_pprof(lambda p: setattr(p, "time_nanos", time.time_ns() + 700 * 10**9), "s old")
    yield from broken_pprof(lambda p: setattr(p.function[0], "name", 99), "a string that there is none of")
    yield from broken_pprof(lambda p: setattr(p.location[1], "id", 1), "not unique")
    yield from broken_pprof(lambda p: p.string_table.__setitem__(0, "x"), "the first string")
    yield from broken_pprof(lambda p: p.string_table.append("é" * 2_200_000), "bytes, of 4194304 at most")
    yield from broken_pprof(lambda p: setattr(p.sample[0].label[0], "num", 1), "a text and a number")
    profile = right.pprof()
    profile.location[0].id, profile.location[1].id = 2, 1
    yield right.parca(profile), "do not count from 1"
    request = right.parca()
    request.normalized = False
    yield request, "normalized"
    request = right.parca()
    request.series[0].labels.labels.add(name="service.name", value="x")
    yield request, "wrong name of a label"
    yield from broken_series(lambda s: s.labels.pop(0), "without __name__")
    yield from broken_series(lambda s: s.labels.pop(1), "without service_name")
    yield from broken_series(lambda s: [s.labels.add(name=f"l{n}", value="x") for n in range(29)], "31 labels")
    yield from broken_series(lambda s: s.labels.add(name="a-b", value="x"), "wrong name of a label")
    yield from broken_series(lambda s: s.labels.add(name="service_name", value="x"), "comes twice")
    yield from broken_series(lambda s: s.labels.add(name="x", value="x" * 2049), "too long")
    yield from broken_series(lambda s: setattr(s.samples[0], "raw_profile", b"\x1f\x8bnothing"), "does not parse")
    yield from broken_otlp(lambda r, d, p: d.function_table.add(name_strindex=3, start_line=9), "used nowhere")
    yield from broken_otlp(lambda r, d, p: d.string_table.append("orphan"), "used nowhere")
    yield from broken_otlp(lambda r, d, p: d.string_table.append("main"), "in its table twice")
    yield from broken_otlp(lambda r, d, p: p.samples.add(stack_index=9, values=[1]), "the stack 9 of 3")
    yield from broken_otlp(lambda r, d, p: p.samples.add(stack_index=2, values=[1]), "two samples of one stack")
    yield from broken_otlp(lambda r, d, p: p.samples.add(stack_index=2), "0 values and 0 times")
    yield from broken_otlp(lambda r, d, p: p.samples[0].values.append(1), "2 values and 0 times")
    yield from broken_otlp(lambda r, d, p: p.samples.add(timestamps_unix_nano=[p.time_unix_nano]), "samples of one profile are")
    yield from broken_otlp(lambda r, d, p: p.samples[0].timestamps_unix_nano.append(1), "outside its profile's")
    yield from broken_otlp(lambda r, d, p: p.ClearField("profile_id"), "not 16 bytes, or zero")
    yield from broken_otlp(lambda r, d, p: r.resource_profiles[0].scope_profiles[0].profiles.append(p), "comes again")
    yield from broken_otlp(lambda r, d, p: setattr(d.attribute_table[0], "unit_strindex", 1), "first attribute is not")
    yield from broken_otlp(lambda r, d, p: d.ClearField("mapping_table"), "the mapping 0 of 0")
    yield from broken_otlp(lambda r, d, p: setattr(d.attribute_table[1].value, "string_value_strindex", 3), "do not look up")
    yield from broken_otlp(lambda r, d, p: p.samples[0].attribute_indices.append(1), "comes twice in a set")
    yield from broken_otlp(lambda r, d, p: d.mapping_table[1].ClearField("attribute_indices"), "without a build id")
    yield from broken_otlp(lambda r, d, p: r.resource_profiles[0].ClearField("resource"), "no resource")
    yield from broken_otlp(lambda r, d, p: r.resource_profiles[0].scope_profiles[0].ClearField("scope"), "no scope")
    yield from broken_otlp(
        lambda r, d, p: setattr(r.resource_profiles[0].resource.attributes[0], "key_strindex", 3), "refers to a string"
    )
    # A sample of proto 1.9: other fields, under the same numbers.
    yield from broken_otlp(lambda r, d, p: p.samples[0].MergeFromString(b"\x20\x02"), "2 values and 0 times")
    yield from broken_otlp(lambda r, d, p: p.MergeFromString(b"\x60\x01"), "unknown field 12")


def check_rules(receiver):
    for message in (right.pyroscope(), right.parca(), right.otlp()):
        answer, line = receiver.send(message)
        assert answer in (200, "OK") and line["violations"] == [], line
        for profile in line["profiles"]:
            assert profile["total"]["cpu/nanoseconds"] == 40, line
            assert profile["leaves"]["cpu/nanoseconds"] == {"work": 30, "main": 10}, line
            assert profile["functions"]["cpu/nanoseconds"] == {"work": 30, "main": 40}, line
            assert {"request": "GET /"} in profile["label_sets"] and profile["series"] == 2, line
    assert line["profiles"][0]["links"] == [[bytes(range(16)).hex(), bytes(range(8)).hex()]], line
    count = 0
    for message, violation in cases():
        _, line = receiver.send(message)
        assert any(violation in each for each in line["violations"]), (violation, line["violations"])
        count += 1
    # A profile of the same id with other contents is found in another message, too, except after a refusal.
    message = right.otlp()
    profile = message.resource_profiles[0].scope_profiles[0].profiles[0]
    profile.profile_id = bytes(15) + b"\x01"
    receiver.answers("status 413")
    assert receiver.send(message)[0] == 413
    profile.samples[1].values[0] = 11
    for _ in range(2):
        assert receiver.send(message)[1]["violations"] == []
    profile.samples[1].values[0] = 12
    assert "comes again" in str(receiver.send(message)[1]["violations"])
    return count


def check_answers(receiver):
    push = lambda: receiver.send(right.pyroscope())
    receiver.answers("status 503\nstatus 429 retry-after 2\nok\nunavailable")
    assert [push()[0] for _ in range(5)] == [503, 429, 200, 503, 200]
    receiver.answers("resource_exhausted retry-after 1.5\nresource_exhausted\ninvalid_argument\ntoo large\nunavailable\nok")
    data = right.parca().SerializeToString()
    answers = [receiver.call(WRITE_RAW, data) for _ in range(6)]
    exhausted = "RESOURCE_EXHAUSTED"
    assert [name for name, _ in answers] == [exhausted, exhausted, "INVALID_ARGUMENT", exhausted, "UNAVAILABLE", "OK"]
    assert b"google.rpc.RetryInfo" in answers[0][1] and answers[1][1] == b""
    receiver.answers("always status 400")
    assert receiver.call(EXPORT, right.otlp().SerializeToString())[0] == "INVALID_ARGUMENT"
    assert push()[0] == 400
    for script in ("close", "reset"):
        receiver.answers(script)
        head = f"POST {PUSH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\nContent-Length: 0\r\n\r\n"
        heard = b""
        with socket.create_connection(("127.0.0.1", receiver.http)) as stream, contextlib.suppress(ConnectionResetError):
            stream.sendall(head.encode())
            while part := stream.recv(1000):
                heard += part
        # Half of the answer ends within its head.
        assert b"\r\n\r\n" not in heard and bool(heard) == (script == "close"), (script, heard)
        receiver.line()
    receiver.answers("")
    assert receiver.post(PUSH, "application/json", b"{}")[0] == 415
    assert receiver.post("/elsewhere", "application/json", b"{}")[0] == 404


def check_limit():
    receiver = Receiver("--max-bytes", "100", "--prefix", "/below")
    assert receiver.send(right.pyroscope())[0] == 404
    data = right.pyroscope().SerializeToString()
    assert receiver.post(f"/below{PUSH}", "application/proto", data)[0] == 413
    assert receiver.send(right.parca())[0] == "RESOURCE_EXHAUSTED"
    receiver.end()


def check_tls():
    """The certificates are what they are called: one of this host, and one of another."""
    authority = FOLDER / "tls/ca.pem"
    context = ssl.create_default_context(cafile=authority)
    credentials = grpc.ssl_channel_credentials(authority.read_bytes())
    for name, is_right in (("server", True), ("elsewhere", False)):
        receiver = Receiver("--tls", str(FOLDER / f"tls/{name}.pem"), str(FOLDER / f"tls/{name}.key"))
        url, data = f"https://127.0.0.1:{receiver.http}{PUSH}", right.pyroscope().SerializeToString()
        request = urllib.request.Request(url, data, {"Content-Type": "application/proto"})
        try:
            assert urllib.request.urlopen(request, timeout=60, context=context).status == 200 and is_right
        except urllib.error.URLError as error:
            assert isinstance(error.reason, ssl.SSLCertVerificationError) and not is_right, error
        receiver.channel = grpc.secure_channel(f"127.0.0.1:{receiver.grpc}", credentials)
        assert receiver.call(WRITE_RAW, right.parca().SerializeToString())[0] == ("OK" if is_right else "UNAVAILABLE")
        receiver.end()


receiver = Receiver()
count = check_rules(receiver)
check_answers(receiver)
receiver.end()
check_limit()
check_tls()
print(f"{count} broken messages were found out")
