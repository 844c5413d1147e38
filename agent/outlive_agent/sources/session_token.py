"""A session token as AWS and Alibaba want it: fetched when needed, renewed before it ends and after a 401."""

import time
from collections.abc import Callable

from outlive_agent.sources.metadata_http import Answer, Metadata, NoAnswer, refusal

PATH = "/latest/api/token"
TTL_SECONDS = 21600
RENEW_AFTER_SECONDS = TTL_SECONDS * 0.8
_LONGEST = 4096


class Token:
    """``optional``: a server that knows no tokens is asked without. No repr and no log holds the token."""

    def __init__(
        self,
        server: Metadata,
        *,
        ask: str,
        use: str,
        hint: str = "",
        optional: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._ask = ask
        self._use = use
        self._hint = hint
        self._optional = optional
        self._clock = clock
        self._token: str | None = None
        self._fetched_at = 0.0

    def get(self, path: str) -> Answer:
        """What lies at ``path``. A 401 is answered with one new token."""
        answer = self._server.get(path, headers=self._headers())
        if answer.status == 401:
            self._token = None
            answer = self._server.get(path, headers=self._headers())
            if answer.status == 401:
                self._token = None
        return answer

    def _headers(self) -> dict[str, str]:
        if self._token is None or self._clock() - self._fetched_at >= RENEW_AFTER_SECONDS:
            self._token = self._fetch()
            self._fetched_at = self._clock()
        return {self._use: self._token} if self._token else {}

    def _fetch(self) -> str:
        try:
            answer = self._server.ask("PUT", PATH, headers={self._ask: str(TTL_SECONDS)}, body=b"")
        except NoAnswer as error:
            raise NoAnswer(f"no session token: {error}", hint=self._hint) from None
        if answer.status in {403, 404, 405} and self._optional:
            return ""
        text = answer.text
        if answer.status != 200:
            raise NoAnswer(f"no session token: {refusal(answer)}", hint=self._hint)
        if not text or len(text) > _LONGEST or not text.isascii() or not text.isprintable():
            raise NoAnswer("no session token: what it says can't be one")
        return text
