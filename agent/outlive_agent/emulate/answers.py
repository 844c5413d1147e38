"""What each provider's metadata server answers, in every state, by its documentation."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Final
from urllib.parse import parse_qs, urlsplit

from outlive_agent.emulate.stage import Stage

NOT_FOUND = b"<?xml version='1.0'?><html><head><title>404 - Not Found</title></head></html>"
TOKEN = "emulated-token"  # noqa: S105 - no secret: the emulator gives it to everyone
OWN_NAME = "vmss_vm1"
DROPLET = 4242


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``headers`` in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def place(self) -> str:
        """The path without what follows the question mark."""
        return urlsplit(self.path).path

    @property
    def query(self) -> Mapping[str, list[str]]:
        """What follows it."""
        return parse_qs(urlsplit(self.path).query)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """``notice``: whether it answered the question of notices, which is where faults strike."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    notice: bool = False


Answering = Callable[[Request, Stage, threading.Event], Response]


def aws(request: Request, stage: Stage, closing: threading.Event) -> Response:
    """IMDSv2 only."""
    ttl = "x-aws-ec2-metadata-token-ttl-seconds"
    if request.method == "PUT":
        text = request.headers.get(ttl, "")
        if request.place != "/latest/api/token" or not text.isdecimal() or not 1 <= int(text) <= 21600:
            return Response(status=400)
        return Response(body=TOKEN.encode(), headers={ttl: text})
    key = request.place.removeprefix("/latest/meta-data/")
    mine = key in {"spot/instance-action", "spot/termination-time", "events/recommendations/rebalance"}
    if request.headers.get("x-aws-ec2-metadata-token") != TOKEN:
        return Response(status=401, body=b"<html>401 - Unauthorized</html>", notice=mine)
    if key == "events/maintenance/scheduled":
        return Response(body=json.dumps(_maintenance(stage)).encode())
    if key == "instance-life-cycle":
        return Response(body=b"spot")
    if key == "spot/instance-action" and stage.override is not None:
        return Response(body=stage.override, notice=True)
    if stage.deadline is None or stage.kind == "maintenance":
        return _nothing(mine)
    moment = _iso(stage.deadline)
    if stage.kind == "rebalance":
        said = json.dumps({"noticeTime": moment}) if key.endswith("rebalance") else None
    elif key == "spot/instance-action":
        said = json.dumps({"action": stage.kind or "terminate", "time": moment})
    else:
        said = moment if key == "spot/termination-time" else None
    return _nothing(mine) if said is None else Response(body=said.encode(), notice=mine)


def _maintenance(stage: Stage) -> list[object]:
    if stage.deadline is None or stage.kind != "maintenance":
        return []
    begins = stage.deadline.strftime("%d %b %Y %H:%M:%S GMT").lstrip("0")
    return [
        {
            "NotBefore": begins,
            "Code": "system-reboot",
            "Description": "scheduled reboot",
            "EventId": "instance-event-0d59937288b749b32",
            "State": "active",
        }
    ]


def gcp(request: Request, stage: Stage, closing: threading.Event) -> Response:
    """Holds a question until the value changes, where that is asked for."""
    if request.headers.get("metadata-flavor") != "Google":
        return Response(status=403)
    flavor = {"Metadata-Flavor": "Google"}
    key = request.place.removeprefix("/computeMetadata/v1/instance/")
    if key == "preempted":
        query = request.query
        if "wait_for_change" in query and query.get("last_etag", ["0"])[0] == _etag(stage):
            seconds = float(query.get("timeout_sec", ["60"])[0])
            stage.wait_change(stage.version, seconds=seconds, closing=closing)
        said = b"TRUE" if stage.announced and stage.kind in {"", "preempted"} else b"FALSE"
        body = said if stage.override is None else stage.override
        return Response(body=body, headers={**flavor, "ETag": _etag(stage)}, notice=True)
    if key == "maintenance-event":
        ends = stage.announced and stage.kind in {"migrate", "terminate"}
        said = f"{stage.kind.upper()}_ON_HOST_MAINTENANCE".encode() if ends else b"NONE"
        return Response(body=said, headers=flavor)
    if key == "upcoming-maintenance":
        if stage.deadline is None or stage.kind not in {"terminate", "maintenance"}:
            error = {"error": "no notifications have been received yet, try again later"}
            return Response(status=503, body=json.dumps(error).encode(), headers=flavor)
        said = json.dumps(
            {"window_start_time": _iso(stage.deadline), "maintenance_status": "PENDING"}
        ).encode()
        return Response(body=said, headers=flavor)
    return Response(status=404, body=NOT_FOUND, headers=flavor)


def _etag(stage: Stage) -> str:
    return f"{stage.version:016x}"


def azure(request: Request, stage: Stage, closing: threading.Event) -> Response:
    """Scheduled Events. ``kind`` is an EventType, or ``other`` for a Preempt of another machine."""
    if request.headers.get("metadata") != "true" or "api-version" not in request.query:
        return Response(status=400, body=b"Bad Request")
    if request.place == "/metadata/instance/compute/name":
        return Response(body=OWN_NAME.encode())
    if request.place != "/metadata/scheduledevents":
        return Response(status=404)
    if request.method == "POST":
        return _approve(request, stage)
    if stage.override is not None:
        return Response(body=stage.override, notice=True)
    document = {"DocumentIncarnation": stage.version, "Events": _azure_events(stage)}
    return Response(body=json.dumps(document).encode(), notice=True)


def _azure_events(stage: Stage) -> list[object]:
    if stage.deadline is None or stage.over:
        return []
    other = stage.kind == "other"
    return [
        {
            "EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
            "EventStatus": "Started" if stage.started else "Scheduled",
            "EventType": "Preempt" if other else stage.kind or "Preempt",
            "ResourceType": "VirtualMachine",
            "Resources": ["vmss_vm2" if other else OWN_NAME],
            # Wrong on purpose: the documentation's own sample names the wrong day of the week.
            "NotBefore": "" if stage.started else stage.deadline.strftime("Mon, %d %b %Y %H:%M:%S GMT"),
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
    ]


def _approve(request: Request, stage: Stage) -> Response:
    try:
        wanted = [event["EventId"] for event in json.loads(request.body)["StartRequests"]]
    except (ValueError, KeyError, TypeError):
        return Response(status=400)
    stage.approved.extend(wanted)
    stage.start()
    return Response()


def alibaba(request: Request, stage: Stage, closing: threading.Event) -> Response:
    """Hardened: without a token there is nothing."""
    if request.method == "PUT" and request.place == "/latest/api/token":
        return Response(body=TOKEN.encode())
    mine = request.place == "/latest/meta-data/instance/spot/termination-time"
    if request.headers.get("x-aliyun-ecs-metadata-token") != TOKEN:
        return Response(status=401, notice=mine)
    return _time(stage, mine, _iso)


def tencent(request: Request, stage: Stage, closing: threading.Event) -> Response:
    """Its clock is China's."""
    if request.place == "/latest/meta-data/instance-id":
        return Response(body=b"ins-emulated")
    pattern = "%d/%m/%Y %H:%M:%S" if stage.kind == "reversed" else "%Y-%m-%d %H:%M:%S"
    china = timezone(timedelta(hours=8))
    mine = request.place == "/latest/meta-data/spot/termination-time"
    return _time(stage, mine, lambda moment: moment.astimezone(china).strftime(pattern))


def byteplus(request: Request, stage: Stage, closing: threading.Event) -> Response:
    """BytePlus and Volcengine."""
    return _time(stage, request.place == "/latest/spot_instance_termination_time", _iso)


def digitalocean(request: Request, stage: Stage, closing: threading.Event) -> Response:
    """The guest sees no difference; the API sees the Droplet go."""
    if request.place == "/metadata/v1/id":
        return Response(body=str(DROPLET).encode())
    if request.place == "/metadata/v1.json":
        return Response(body=json.dumps({"droplet_id": DROPLET, "region": "nyc2"}).encode())
    if request.place != f"/v2/droplets/{DROPLET}" or stage.over:
        return Response(status=404, notice=True)
    if not request.headers.get("authorization", "").startswith("Bearer "):
        return Response(status=401, notice=True)
    status = "off" if stage.started else "active"
    return Response(body=json.dumps({"droplet": {"id": DROPLET, "status": status}}).encode(), notice=True)


def _time(stage: Stage, mine: bool, text: Callable[[datetime], str]) -> Response:
    if not mine:
        return Response(status=404, body=NOT_FOUND)
    if stage.override is not None:
        return Response(body=stage.override, notice=True)
    if stage.deadline is None:
        return Response(status=404, body=NOT_FOUND, notice=True)
    return Response(body=text(stage.deadline).encode(), notice=True)


def _nothing(notice: bool) -> Response:
    return Response(status=404, body=NOT_FOUND, notice=notice)


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


ANSWERS: Final[Mapping[str, Answering]] = {
    "aws": aws,
    "gcp": gcp,
    "azure": azure,
    "alibaba": alibaba,
    "tencent": tencent,
    "byteplus": byteplus,
    "digitalocean": digitalocean,
}
