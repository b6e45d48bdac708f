"""Answers requests of HTTP: /work/N works for N rounds and says what came of it; there is no other path."""

try:
    from componentize_py_types import Ok
except ImportError:  # Older releases have it among what they generate.
    from wit_world.types import Ok
from wit_world import exports
from wit_world.imports.types import Fields, OutgoingBody, OutgoingResponse, ResponseOutparam


def one_round(value):
    return sum(value * step % 7 for step in range(1000))


def work(rounds):
    value = 1
    for _ in range(rounds):
        value = one_round(value)
    return value


def answer(path):
    path, _, _ = path.partition("?")
    if path.startswith("/work/"):
        return 200, f"{work(int(path.removeprefix('/work/')))}\n"
    return 404, f"there is no {path}\n"


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request, response_out):
        status, text = answer(request.path_with_query() or "")
        response = OutgoingResponse(Fields())
        response.set_status_code(status)
        body = response.body()
        ResponseOutparam.set(response_out, Ok(response))
        with body.write() as stream:
            stream.blocking_write_and_flush(text.encode())
        OutgoingBody.finish(body, None)
