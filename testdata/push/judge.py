"""Judges messages by the rules of their protocol, decides on the answer, and prints a line for each."""

import json
import sys
import threading
import time

import otlp_rules
import series_rules
from answers import Answer

READERS = {"otlp": otlp_rules.read, "pyroscope": series_rules.read_pyroscope, "parca": series_rules.read_parca}
# The limits that servers have by default, in bytes of a message.
LIMITS = {"otlp over HTTP": 20 << 20, "pyroscope over HTTP": 256 << 20, "otlp over gRPC": 4 << 20, "parca over gRPC": 4 << 20}


class Judge:
    def __init__(self, answers, max_bytes):
        self.answers = answers
        self.max_bytes = max_bytes
        self.lock = threading.Lock()
        self.contents_of_ids = {}
        self.messages = 0

    def take(self, protocol, transport, path, headers, sent, data):
        """The answer to a message: `sent` is its size on the wire, `data` is it uncompressed, or None if it does not decompress."""
        with self.lock:
            answer = self.answers.next()
            profiles, violations, refusals = [], ["the body does not decompress"], ["a broken body"]
            if data is not None:
                profiles, violations, refusals = READERS[protocol](data, self.contents_of_ids)
            limit = self.max_bytes or LIMITS[f"{protocol} over {transport}"]
            if answer.action == "ok":
                if max(sent, len(data or b"")) > limit:
                    answer = Answer("too large")
                elif refusals:
                    answer = Answer("invalid_argument")
            if not answer.is_final_refusal:
                self.contents_of_ids.update({each["id"]: each["digest"] for each in profiles if each.get("digest")})
            self.write({
                "protocol": protocol,
                "transport": transport,
                "path": path,
                "headers": headers,
                "sent_bytes": sent,
                "bytes": len(data or b""),
                "answer": answer.text,
                "is_taken": answer.action in ("ok", "partial"),
                "violations": sorted(set(violations)),
                "refusals": sorted(set(refusals)),
                "profiles": profiles,
            })
        return answer, "; ".join(refusals) or f"the script says {answer.text}"

    def turn_away(self, path, headers, why):
        """Prints a line for a request that is none of a protocol."""
        with self.lock:
            self.write({
                "protocol": "",
                "path": path,
                "headers": headers,
                "answer": why,
                "is_taken": False,
                "violations": [why],
                "refusals": [why],
                "profiles": [],
            })

    def write(self, line):
        self.messages += 1
        sys.stdout.write(json.dumps({"message": self.messages, "seconds": time.monotonic()} | line) + "\n")
        sys.stdout.flush()
