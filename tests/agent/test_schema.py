"""The JSON schema for editors gives every document the verdict that the agent gives it."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.errors import ConfigError
from outlive.store.layout import RUN_NAME
from outlive_agent.settings import readers
from outlive_agent.settings.checks import Problems
from outlive_agent.settings.reading import read_config
from outlive_agent.settings.values import Config, TrainingSettings

SCHEMA: dict[str, Any] = json.loads(
    resources.files("outlive_agent").joinpath("outlive.schema.json").read_text()
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
LEAST = {"run": "gpt", "store": {"location": "s3://bucket"}}

GOOD: list[dict[str, object]] = [
    {},
    {"save": None, "training": None, "reclaim": None},
    {
        "store": {
            "location": "s3://bucket/deep/er",
            "region": "RegionOne",
            "endpoint": "http://127.0.0.1:9000/",
        }
    },
    {"store": {"location": "https://nyc3.digitaloceanspaces.com/bucket/prefix"}},
    {"store": {"location": "file:///srv/outlive"}},
    {"store": {"location": "~/outlive", "credentials": None}},
    {"store": {"location": "/s", "credentials": {"env": ["A", "B"]}}},
    {"store": {"location": "/s", "credentials": {"env": ["A", "B", "C"]}}},
    {"store": {"location": "/s", "credentials": {"systemd": "outlive-store"}}},
    {"save": {"every": "auto", "keep": None}},
    {"save": {"every": "1h30m", "keep": {"last": 1, "every": "1 step", "best": "val/loss"}}},
    {"save": {"keep": {"best": "-accuracy"}}},
    {"save": {"every": "200 steps", "keep": {"last": 3.0}}},
    {"training": {"command": ["true"]}},
    {
        "training": {
            "command": ["python", 3, 0.5, True, ""],
            "user": "train",
            "restarts": 0,
            "stop_grace": "500 ms",
        }
    },
    {"reclaim": {"provider": "auto", "flag_file": None, "inbox": True}},
    {"hooks": None},
    {"hooks": {"on_notice": "echo $OUTLIVE_STEP", "on_saved": ["/opt/saved", 1, True], "on_end": None}},
    {"hooks": {"timeout": "2 min", "requeue": "never"}},
]
BAD: list[dict[str, object]] = [
    {"hooks": {"on_start": "true"}},
    {"hooks": {"on_end": ""}},
    {"hooks": {"on_end": " \t"}},
    {"hooks": {"on_end": []}},
    {"hooks": {"on_end": [""]}},
    {"hooks": {"on_end": True}},
    {"hooks": {"timeout": "0s"}},
    {"hooks": {"requeue": "slurm"}},
    {"run": ""},
    {"run": "a/b"},
    {"run": "a" * 65},
    {"run": 7},
    {"run": None},
    {"runs": "gpt"},
    {"store": None},
    {"store": "/s"},
    {"store": {}},
    {"store": {"location": "bucket/prefix"}},
    {"store": {"location": "s3://key:secret@bucket/prefix"}},
    {"store": {"location": "https://host/bucket?X-Amz-Signature=1"}},
    {"store": {"location": "https://host"}},
    {"store": {"location": "/s", "endpoint": "nyc3.digitaloceanspaces.com"}},
    {"store": {"location": "/s", "endpoint": "https://host/bucket"}},
    {"store": {"location": "/s", "region": "us east"}},
    {"store": {"location": "/s", "ca_bundle": "ca.pem"}},
    {"store": {"location": "/s", "credentials": {}}},
    {"store": {"location": "/s", "credentials": {"file": "/a", "systemd": "b"}}},
    {"store": {"location": "/s", "credentials": {"file": None}}},
    {"store": {"location": "/s", "credentials": {"env": ["A"]}}},
    {"store": {"location": "/s", "credentials": {"env": ["AKIAIOSFODNN7EXAMPLE", "B"]}}},
    {"store": {"location": "/s", "credentials": {"env": ["DO801QWERTYUIOP23456", "B"]}}},
    {"store": {"location": "/s", "credentials": {"env": "A"}}},
    {"store": {"location": "/s", "credentials": {"systemd": "../shadow"}}},
    {"store": {"location": "/s", "credentials": {"secret_key": "x"}}},
    {"save": {"every": 30}},
    {"save": {"every": "0s"}},
    {"save": {"every": "0 steps"}},
    {"save": {"every": ["auto"]}},
    {"save": {"keep": {"last": 0}}},
    {"save": {"keep": {"last": True}}},
    {"save": {"keep": {"last": 2.5}}},
    {"save": {"keep": {"last": 1e20}}},
    {"save": {"keep": {"every": "30s"}}},
    {"save": {"keep": {"best": ""}}},
    {"training": {}},
    {"training": {"command": []}},
    {"training": {"command": "python train.py"}},
    {"training": {"command": [""]}},
    {"training": {"command": ["a", None]}},
    {"training": {"command": ["a", ["b"]]}},
    {"training": {"command": ["a"], "user": "Train User"}},
    {"training": {"command": ["a"], "restarts": -1}},
    {"training": {"command": ["a"], "stop_grace": "fast"}},
    {"training": {"command": ["a"], "directory": "train"}},
    {"reclaim": {"provider": "amazon"}},
    {"reclaim": {"flag_file": "now"}},
    {"reclaim": {"inbox": "yes"}},
    {"reclaim": {"inbox": None}},
]


def accepted(document: object) -> bool:
    problems = Problems({})
    read_config(document, problems)
    try:
        problems.raise_any("the document")
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("change", GOOD, ids=str)
def test_good_documents(change: dict[str, object]) -> None:
    """A good document is good to both."""
    document = {**LEAST, **change}
    assert accepted(document)
    VALIDATOR.validate(document)


@pytest.mark.parametrize("change", BAD, ids=str)
def test_bad_documents(change: dict[str, object]) -> None:
    """A bad document is bad to both."""
    document = {**LEAST, **change}
    assert not accepted(document)
    assert not VALIDATOR.is_valid(document)


def keys(schema: Mapping[str, Any]) -> set[str]:
    return set().union(*({key, *keys(below)} for key, below in schema.get("properties", {}).items()))


WORDS = [
    "",
    "auto",
    "30s",
    "0s",
    "5 steps",
    "s3://b",
    "s3://b/p",
    "/s",
    "~/s",
    "https://h",
    "http://h/b",
    "train",
    "none",
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 10**7)
    | st.floats(-2, 9)
    | st.sampled_from(WORDS)
    | st.text(max_size=3)
)
DOCUMENTS = st.recursive(
    SCALARS | st.lists(SCALARS, max_size=3),
    lambda below: st.dictionaries(st.sampled_from([*sorted(keys(SCHEMA)), "other"]), below, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(below=DOCUMENTS, section=st.sampled_from(sorted(SCHEMA["properties"])))
def test_any_document_gets_one_verdict(below: object, section: str) -> None:
    """Whatever stands in a section, editor and agent agree about it."""
    document = {**LEAST, section: below}
    if "\n" in repr(below).encode().decode("unicode_escape", "replace"):
        return  # the one difference: Python's jsonschema lets $ match before a last line break, editors don't
    assert accepted(document) == VALIDATOR.is_valid(document)


def test_the_schema_is_one() -> None:
    """The schema itself is valid, explains every key, and its defaults are the agent's."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    sections = SCHEMA["properties"]
    for key, schema in sections.items():
        assert schema["description"], key
        assert all(below["description"] for below in schema.get("properties", {}).values()), key
    problems = Problems({})
    config = read_config(LEAST, problems)
    assert str(config.save.every) == sections["save"]["properties"]["every"]["default"]
    assert config.save.keep.last == sections["save"]["properties"]["keep"]["properties"]["last"]["default"]
    assert config.reclaim.provider == sections["reclaim"]["properties"]["provider"]["default"]
    assert str(config.reclaim.flag_file) == sections["reclaim"]["properties"]["flag_file"]["default"]
    assert config.reclaim.inbox is sections["reclaim"]["properties"]["inbox"]["default"]
    training = TrainingSettings(command=("a",))
    assert training.restarts == sections["training"]["properties"]["restarts"]["default"]
    assert (
        readers.duration(sections["training"]["properties"]["stop_grace"]["default"]) == training.stop_grace
    )
    assert set(sections) == set(Config.__dataclass_fields__)


def test_a_run_may_be_called_what_the_format_allows() -> None:
    """The configuration has the store's rule for names."""
    assert f"^{RUN_NAME.pattern}$" == readers.RUN_PATTERN
