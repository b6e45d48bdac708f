// Answers requests of HTTP as app.py does: /work/N works for N rounds and says what came of it; there is no other path.
import { Fields, OutgoingBody, OutgoingResponse, ResponseOutparam } from "wasi:http/types@0.2.0";

function oneRound(value) {
  let sum = 0;
  for (let step = 0; step < 1000; step++) sum += (value * step) % 7;
  return sum;
}

function work(rounds) {
  let value = 1;
  for (let round = 0; round < rounds; round++) value = oneRound(value);
  return value;
}

function answer(path) {
  const [plain] = path.split("?");
  if (plain.startsWith("/work/")) return [200, `${work(Number(plain.slice("/work/".length)))}\n`];
  return [404, `there is no ${plain}\n`];
}

export const incomingHandler = {
  handle(request, responseOut) {
    const [status, text] = answer(request.pathWithQuery() ?? "");
    const response = new OutgoingResponse(new Fields());
    response.setStatusCode(status);
    const body = response.body();
    ResponseOutparam.set(responseOut, { tag: "ok", val: response });
    const stream = body.write();
    stream.blockingWriteAndFlush(new TextEncoder().encode(text));
    stream[Symbol.dispose]();
    OutgoingBody.finish(body, undefined);
  },
};
