"""DigitalOcean: no key in the guest tells of a reclaim, but its API shows a Droplet that is being destroyed.

Optional, since it needs a token of the account. The two hours' notice comes by mail; ``outlive reclaim``
brings it to the run.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence

from outlive_agent.notice import Notice
from outlive_agent.sources.findings import Findings
from outlive_agent.sources.metadata_http import Answer, Metadata, NoAnswer, refusal
from outlive_agent.sources.polling import Key

URL = "http://169.254.169.254"
API_URL = "https://api.digitalocean.com"


class DigitalOcean:
    """Asks the API about this Droplet. The token is in no repr and no log."""

    name = "digitalocean"
    period = 30.0
    longest_wait = 300.0

    def __init__(
        self,
        url: str = URL,
        *,
        token: str,
        api_url: str = API_URL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guest = Metadata(url)
        self._api = Metadata(api_url, headers={"Authorization": f"Bearer {token}"})
        self._findings = Findings(self.name, clock=clock)
        self._droplet: int | None = None
        self._seen = False
        self.keys = (Key(look=self.droplet),)

    def close(self) -> None:
        """Hang up."""
        self._guest.close()
        self._api.close()

    def droplet(self) -> Sequence[Notice]:
        """Whether the account still has this Droplet, and running."""
        number = self._number()
        answer = self._api.get(f"/v2/droplets/{number}")
        if answer.status == 404 and self._seen:
            return [self._findings.within("reclaim", f"{number}:gone", seconds=None)]
        if answer.status in {401, 403, 404}:
            raise NoAnswer(f"HTTP {answer.status} from the API", hint="check the token in reclaim.token_file")
        if answer.status != 200:
            raise refusal(answer)
        status = _status(answer)
        self._seen = True
        if status in {"off", "archive"}:
            return [self._findings.within("reclaim", f"{number}:{status}", seconds=None)]
        return []

    def _number(self) -> int:
        if self._droplet is None:
            answer = self._guest.get("/metadata/v1/id")
            if answer.status != 200:
                raise refusal(answer)
            if not answer.text.isdecimal() or len(answer.text) > 20:
                raise NoAnswer("what it says is no Droplet's number")
            self._droplet = int(answer.text)
        return self._droplet


def _status(answer: Answer) -> str:
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise NoAnswer("what the API says is not JSON") from None
    droplet = document.get("droplet") if isinstance(document, Mapping) else None
    status = droplet.get("status") if isinstance(droplet, Mapping) else None
    if not isinstance(status, str):
        raise NoAnswer("what the API says names no status")
    return status
