"""The script of a receiver's answers.

Each line is the answer to a message, in the order in which messages come. After the last line every message is taken.

    ok
    status CODE [retry-after SECONDS]
    partial COUNT           the answer of OTLP that so many profiles were rejected
    hang                    no answer
    slow                    an answer of one byte a second
    close                   the connection ends in the middle of the answer
    reset                   the connection is reset
    unavailable, resource_exhausted [retry-after SECONDS], invalid_argument, unauthenticated
    too large               what gRPC servers say of a message beyond their limit
    always ANSWER           the answer to this message and to all that follow, until the script changes
"""

import threading

# What gRPC says, in HTTP's words.
STATUSES = {"unavailable": 503, "resource_exhausted": 429, "invalid_argument": 400, "unauthenticated": 401, "too large": 413}
ACTIONS = ("ok", "hang", "slow", "close", "reset", "partial", "status")


class Answer:
    """An answer: what is done, the HTTP status, and after how many seconds the sender may come again."""

    def __init__(self, text):
        self.text = text
        self.retry_after = None
        words, _, seconds = text.partition(" retry-after ")
        if seconds:
            self.retry_after = float(seconds)
        self.number = None
        if words in STATUSES:
            self.action, self.number = "status", STATUSES[words]
        else:
            self.action, _, number = words.partition(" ")
            self.number = int(number) if number else None
        if self.action not in ACTIONS:
            raise ValueError(f"no such answer: {text}")

    @property
    def is_final_refusal(self):
        """Whether the sender must not send the message again, so that its contents may come in parts."""
        return self.action == "status" and 400 <= self.number < 500 and self.number not in (408, 429)


class Answers:
    """The answers that are still to be given."""

    def __init__(self, text=""):
        self.lock = threading.Lock()
        self.replace(text)

    def replace(self, text):
        """Forgets the script for another one."""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        always = None
        if lines and lines[-1].startswith("always "):
            always = Answer(lines.pop().removeprefix("always "))
        answers = [Answer(line) for line in lines]
        with self.lock:
            self.answers, self.always = answers, always

    def next(self):
        with self.lock:
            if self.answers:
                return self.answers.pop(0)
            return self.always or Answer("ok")
