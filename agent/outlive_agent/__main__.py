"""The command line: picks the verb, loads only what that verb needs, and prints errors for people."""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from outlive import __version__
from outlive.errors import ConfigError, OutliveError, Superseded
from outlive_agent.exits import Exit


class Verb(NamedTuple):
    """Where a verb lives (``module:function``, which takes the rest of the arguments), and its purpose."""

    entry: str
    summary: str


_CLI = "outlive_agent.cli"
VERBS: dict[str, Verb] = {
    "exec": Verb(f"{_CLI}.run:exec_main", "run a command, and let its training outlive this machine"),
    "agent": Verb(f"{_CLI}.run:agent_main", "the daemon beside outlive-train.service"),
    "ls": Verb(f"{_CLI}.runs:ls_main", "list runs, or the checkpoints of one run"),
    "show": Verb(f"{_CLI}.runs:show_main", "one checkpoint in detail"),
    "history": Verb(f"{_CLI}.runs:history_main", "what happened to a run, life by life"),
    "verify": Verb(f"{_CLI}.upkeep:verify_main", "read and check every byte of a checkpoint"),
    "prune": Verb(f"{_CLI}.upkeep:prune_main", "remove what the keep policy lets go"),
    "export": Verb(f"{_CLI}.export:export_main", "a checkpoint's model as a safetensors file"),
    "import": Verb(f"{_CLI}.importing:import_main", "a model from elsewhere, for a new run to begin with"),
    "status": Verb(f"{_CLI}.local:status_main", "what the agents on this machine are doing"),
    "reclaim": Verb(f"{_CLI}.local:reclaim_main", "tell a run, from anywhere, that its machine goes away"),
    "rehearse": Verb(f"{_CLI}.rehearse:rehearse_main", "prove on your own command that a resume is exact"),
    "doctor": Verb(f"{_CLI}.doctor:doctor_main", "whether this machine, bucket and job can keep the promise"),
    "emulate": Verb(f"{_CLI}.emulate:emulate_main", "a metadata server to rehearse a reclaim with"),
    "user-data": Verb(f"{_CLI}.user_data:user_data_main", "the cloud-init text for a new machine"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code (docs in :mod:`outlive_agent.exits`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(_usage(), end="")
        return Exit.FINISHED if arguments else Exit.USAGE
    if arguments[0] in {"--version", "version"}:
        print(f"outlive {__version__}")
        return Exit.FINISHED
    verb = VERBS.get(arguments[0])
    if verb is None:
        print(f"Error: there is no verb {arguments[0]!r}\nTry:   outlive --help", file=sys.stderr)
        return Exit.USAGE
    module, _, function = verb.entry.partition(":")
    try:
        run = cast("Callable[[list[str]], int]", getattr(importlib.import_module(module), function))
        return run(arguments[1:])
    except OutliveError as error:
        return report(error)
    except BrokenPipeError:  # `outlive ls | head`
        sys.stderr.close()
        return Exit.FAILED
    except (MemoryError, OSError, RuntimeError) as error:
        from outlive_agent.shortage import shortage  # late: nobody needs it as a rule

        short = shortage(error)
        if short is None:
            raise
        return report(short)
    except KeyboardInterrupt:
        return 130


def report(error: OutliveError) -> int:
    """Print what went wrong and what to do next; returns the exit code that says the same."""
    print(f"Error: {error}", file=sys.stderr)
    if error.hint:
        print(f"Try:   {error.hint}", file=sys.stderr)
    if isinstance(error, ConfigError):
        return Exit.CONFIG
    return Exit.SUPERSEDED if isinstance(error, Superseded) else Exit.FAILED


def _usage() -> str:
    lines = ["usage: outlive VERB [arguments]", ""]
    lines += [f"  {name:<10} {verb.summary}" for name, verb in VERBS.items()]
    lines += ["", "outlive VERB --help says more, with examples", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
