"""The receiver's gRPC server: OTLP's Export and Parca's WriteRaw."""

import concurrent.futures
import math
import time

import grpc
from google.protobuf import any_pb2
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

from messages import RetryInfo, Status

EXPORT = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
WRITE_RAW = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw"
PROTOCOLS = {EXPORT: "otlp", WRITE_RAW: "parca"}
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class Calls(grpc.GenericRpcHandler):
    """Takes messages as bytes, so that those that do not parse are judged, too."""

    def __init__(self, judge):
        self.judge = judge

    def service(self, call):
        protocol = PROTOCOLS.get(call.method)
        if protocol is None:
            return None
        headers = {name: value for name, value in call.invocation_metadata if isinstance(value, str)}
        take = lambda data, context: self.take(protocol, call.method, headers, data, context)
        return grpc.unary_unary_rpc_method_handler(take)

    def take(self, protocol, path, headers, data, context):
        answer, why = self.judge.take(protocol, "gRPC", path, headers, len(data), data)
        # What ends a connection of HTTP is a server that does not answer here.
        if answer.action in ("hang", "slow"):
            while context.is_active():
                time.sleep(0.05)
        elif answer.action in ("close", "reset"):
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was closed")
        elif answer.action == "status":
            if answer.number == 413:
                why = f"grpc: received message larger than max ({len(data)} vs. {len(data) - 1})"
            code = CODES.get(answer.number, grpc.StatusCode.UNKNOWN)
            if answer.retry_after is not None:
                context.set_trailing_metadata([("grpc-status-details-bin", details(code, why, answer.retry_after))])
            context.abort(code, why)
        response = profiles_service_pb2.ExportProfilesServiceResponse()
        if answer.action == "partial" and protocol == "otlp":
            response.partial_success.rejected_profiles = answer.number
            response.partial_success.error_message = "rejected by the script"
        return response.SerializeToString()


def details(code, why, seconds):
    """The details of an error that say when the sender may come again."""
    info = RetryInfo()
    fraction, whole = math.modf(seconds)
    info.retry_delay.seconds, info.retry_delay.nanos = int(whole), round(fraction * 1e9)
    detail = any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=info.SerializeToString())
    return Status(code=code.value[0], message=why, details=[detail]).SerializeToString()


def start(judge, certificate):
    """Begins to answer, and returns the server and its port."""
    # The judge has a limit of its own, which it prints.
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)]
    )
    server.add_generic_rpc_handlers((Calls(judge),))
    if certificate:
        chain, key = (open(path, "rb").read() for path in certificate)
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port
