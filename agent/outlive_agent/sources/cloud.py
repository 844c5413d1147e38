"""The provider as one source: finds out which it is, says so, and runs what hears it."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from outlive.errors import ConfigError
from outlive_agent.journal import Journal
from outlive_agent.notice import Notice, Tell
from outlive_agent.settings.values import ReclaimSettings
from outlive_agent.sources.interface import Source
from outlive_agent.units import duration_text


class Cloud:
    """``standing``, ``acted_on``: what an earlier agent was told here.

    Imports late: ``provider: none`` costs nothing.
    """

    name = "provider"

    def __init__(
        self,
        settings: ReclaimSettings,
        environ: Mapping[str, str],
        *,
        journal: Journal,
        standing: Iterable[Notice] = (),
        acted_on: Iterable[Notice] = (),
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._journal = journal
        self._standing = tuple(standing)
        self._acted_on = tuple(acted_on)
        self._azure: object = None

    def run(self, tell: Tell, closing: threading.Event) -> None:
        """Find out, then listen. Several at once where a job of Slurm runs on a cloud's machine."""
        if self._settings.provider == "none":
            return
        for source in self._sources():
            threading.Thread(target=source.run, args=(tell, closing), name=source.name, daemon=True).start()

    def handled(self) -> None:
        """What was announced was acted on, and all is durable. Takes seconds at most, and never raises."""
        from outlive_agent.sources.azure import Azure
        from outlive_agent.sources.metadata_http import NoAnswer

        if isinstance(self._azure, Azure):
            try:
                self._azure.handled()
            except NoAnswer as error:  # the event comes at its own time then
                self._journal.problem("azure: the event could not be approved", error)

    def _sources(self) -> Sequence[Source]:
        from outlive_agent.sources.detect import by_environment, detect
        from outlive_agent.sources.slurm import Slurm

        settings = self._settings
        sources: list[Source] = []
        around = by_environment(self._environ)
        if settings.provider == "auto":
            found = detect(endpoint=settings.endpoint)
            names, how = [*around, *([found.provider] if found.provider else [])], found.how
        else:
            names, how = [settings.provider], "as configured"
        for name in dict.fromkeys(names):
            self._say(name, "by its environment" if name in around and how != "as configured" else how)
            if name == "slurm":
                sources.append(Slurm(self._environ))
            elif (server := self._server(name)) is not None:
                sources.append(server)
        if not names:
            self._journal.info(
                f"provider: none ({how}); a reclaim shows as SIGTERM, flag file or inbox request"
            )
        return sources

    def _server(self, name: str) -> Source | None:
        from outlive_agent.sources import aws, azure, gcp, termination_time
        from outlive_agent.sources.polling import Polling, Server

        url = self._settings.endpoint
        server: Server
        if name == "aws":
            server = aws.Aws(url or aws.URL)
        elif name == "gcp":
            server = gcp.Gcp(url or gcp.URL)
        elif name == "azure":
            server = azure.Azure(url or azure.URL, acknowledge=self._settings.acknowledge)
            self._azure = server
        elif name == "alibaba":
            server = termination_time.alibaba(url or termination_time.ALIBABA_URL)
        elif name == "tencent":
            server = termination_time.tencent(url or termination_time.TENCENT_URL)
        elif name == "byteplus":
            server = termination_time.byteplus(url or termination_time.BYTEPLUS_URL)
        elif name == "digitalocean" and self._settings.token_file is not None:
            return self._digitalocean(self._settings.token_file, url)
        else:
            return None
        mine = [notice for notice in self._standing if notice.source == name]
        done = [notice.id for notice in self._acted_on if notice.source == name]
        return Polling(server, journal=self._journal, standing=mine, acted_on=done)

    def _digitalocean(self, token_file: Path, url: str | None) -> Source | None:
        from outlive_agent.settings.credentials import private_line
        from outlive_agent.sources import digitalocean
        from outlive_agent.sources.polling import Polling

        try:
            token = private_line(token_file)
        except ConfigError as error:  # training is worth more than this watch
            self._journal.problem("digitalocean: the Droplet is not watched", error)
            return None
        server = digitalocean.DigitalOcean(
            url or digitalocean.URL, token=token, api_url=url or digitalocean.API_URL
        )
        return Polling(server, journal=self._journal)

    def _say(self, name: str, how: str) -> None:
        from outlive_agent.sources.providers import PROVIDERS

        provider = PROVIDERS[name]
        window = provider.window_seconds
        if window is None:
            ahead = "how long a reclaim is announced ahead is not known"
        else:
            ahead = f"a reclaim is announced about {duration_text(window)} ahead" if window else "no notice"
        self._journal.info(f"provider: {provider.title} ({how}): {ahead} ({provider.note})")
