"""A server that profiles are pushed to, which checks them by the rules of Pyroscope, Parca and OpenTelemetry collectors.

Its first line is `listening http=PORT grpc=PORT`. After that it prints a line of JSON for each message: headers, violations of the rules,
and each profile's labels and sums by function. It ends with its standard input.
"""

import argparse
import os
import pathlib
import sys

import grpc_side
import http_side
from answers import Answers
from judge import Judge


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--answers", type=pathlib.Path, help="script of answers, see answers.py; POST /answers replaces it")
    options.add_argument("--max-bytes", type=int, help="answer messages of more bytes as too large")
    options.add_argument("--otlp-path", default="/v1development/profiles")
    options.add_argument("--prefix", default="", help="of Pyroscope's route")
    options.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
    options = options.parse_args()
    judge = Judge(Answers(options.answers.read_text() if options.answers else ""), options.max_bytes)
    http_port = http_side.Server(judge, options.otlp_path, options.prefix, options.tls).start()
    server, grpc_port = grpc_side.start(judge, options.tls)
    print(f"listening http={http_port} grpc={grpc_port}", flush=True)
    sys.stdin.read()
    sys.stdout.flush()
    # Messages that hang would be waited for.
    os._exit(0)


main()
