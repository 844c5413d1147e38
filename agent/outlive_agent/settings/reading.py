"""From plain values to a frozen :class:`Config`: all checked before anything is said, nothing touched."""

from outlive.store.retention import Keep
from outlive_agent.settings import readers
from outlive_agent.settings.checks import KeyPath, Problems, Section
from outlive_agent.settings.values import (
    Config,
    CredentialsFrom,
    Every,
    HookSettings,
    ReclaimSettings,
    SaveSettings,
    StoreSettings,
    TrainingSettings,
)


def read_config(content: object, problems: Problems) -> Config:
    """The configuration in ``content``. What is wrong is in ``problems``: ask it before using the answer."""
    top = Section(content, (), problems)
    config = Config(
        run=top.require("run", readers.run_name, "run"),
        store=read_store(top.section("store"), problems),
        save=_save(top.section("save")),
        training=_training(top.optional("training")),
        reclaim=_reclaim(top.section("reclaim")),
        hooks=_hooks(top.section("hooks")),
    )
    top.close()
    return config


def read_store(section: Section, problems: Problems) -> StoreSettings:
    settings = StoreSettings(
        location=section.require("location", readers.location, "/"),
        endpoint=section.take("endpoint", readers.endpoint, None),
        region=section.take("region", readers.region, None),
        ca_bundle=section.take("ca_bundle", readers.absolute_path, None),
        credentials=_credentials(section.optional("credentials")),
        origin=problems.origins.get(("store", "location"), ""),
    )
    section.close()
    return settings


def _credentials(section: Section | None) -> CredentialsFrom | None:
    if section is None:
        return None
    problems = section.problems
    found = CredentialsFrom(
        env=section.take("env", readers.environment_names, None),
        file=section.take("file", readers.absolute_path, None),
        systemd=section.take("systemd", readers.systemd_name, None),
    )
    given = sorted(section.content.keys() & {"env", "file", "systemd"})
    if len(given) != 1:
        problems.add(
            section.path, f"needs exactly one of env, file, systemd; got {' and '.join(given) or 'none'}"
        )
    if any(path.startswith("store.credentials.env") for _, path in problems.found):
        problems.secrets = True
    section.close()
    return found


def _save(section: Section) -> SaveSettings:
    keep = section.section("keep")
    settings = SaveSettings(
        every=section.take("every", readers.every, Every()),
        keep=Keep(
            last=keep.take("last", readers.count(1), Keep().last),
            every_steps=keep.take("every", readers.steps, None),
            best=keep.take("best", readers.metric, None),
        ),
    )
    keep.close()
    section.close()
    return settings


def _training(section: Section | None) -> TrainingSettings | None:
    if section is None:
        return None
    default = TrainingSettings(command=("true",))
    settings = TrainingSettings(
        command=section.require("command", readers.command, default.command),
        user=section.take("user", readers.user, None),
        restarts=section.take("restarts", readers.count(0), default.restarts),
        stop_grace=section.take("stop_grace", readers.duration, default.stop_grace),
        directory=section.take("directory", readers.absolute_path, None),
    )
    section.close()
    return settings


def _reclaim(section: Section) -> ReclaimSettings:
    default = ReclaimSettings()
    settings = ReclaimSettings(
        provider=section.take("provider", readers.provider, default.provider),
        endpoint=section.take("endpoint", readers.metadata_endpoint, default.endpoint),
        acknowledge=section.take("acknowledge", readers.truth, default.acknowledge),
        token_file=section.take("token_file", readers.optional_path, default.token_file),
        flag_file=section.take("flag_file", readers.optional_path, default.flag_file),
        inbox=section.take("inbox", readers.truth, default.inbox),
    )
    section.close()
    return settings


def _hooks(section: Section) -> HookSettings:
    default = HookSettings()
    settings = HookSettings(
        on_notice=section.take("on_notice", readers.hook, None),
        on_saved=section.take("on_saved", readers.hook, None),
        on_end=section.take("on_end", readers.hook, None),
        timeout=section.take("timeout", readers.duration, default.timeout),
        requeue=section.take("requeue", readers.requeue, default.requeue),
    )
    section.close()
    return settings


COMMAND: KeyPath = ("training", "command")
HOOKS: tuple[KeyPath, ...] = (("hooks", "on_notice"), ("hooks", "on_saved"), ("hooks", "on_end"))
