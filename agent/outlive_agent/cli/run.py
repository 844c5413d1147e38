"""``outlive exec`` and ``outlive agent``: the verbs that guard a training."""

import os
from pathlib import Path

from outlive_agent import config as configuration
from outlive_agent.cli.parser import VerbParser, add_exec_options
from outlive_agent.exits import Exit

_CODES: dict[int, str] = {
    Exit.FINISHED: "the run is finished",
    Exit.FAILED: "the command failed",
    Exit.SAVE_FAILED: "stopped, but the last save failed: resuming loses steps",
    Exit.RESUME: "stopped and saved: start it again to go on",
    Exit.SUPERSEDED: "a newer machine has taken the run over; this one deleted nothing",
}


def exec_main(argv: list[str]) -> int:
    """Run a command, and let its training outlive this machine."""
    parser = VerbParser(
        "exec",
        "Run a command whose training calls outlive.attach: save it, restore it, and stop it in time.\n"
        "What follows -- is the command. Ctrl-C or SIGTERM: save and stop. SIGUSR1: save and go on.",
        codes=_CODES,
        examples=[
            ("outlive exec -- python train.py", "saves below ~/.local/share/outlive"),
            ("outlive exec --store s3://bucket/runs --run gpt -- python train.py", ""),
            ("outlive exec --every '200 steps' --restarts 3 -- bash train.sh", ""),
            (
                "outlive exec --rewind 1200 -- python train.py",
                "go back to step 1,200, leaving what came after",
            ),
        ],
    )
    add_exec_options(parser)
    parser.add_argument("--rewind", metavar="STEP", type=int, help="resume from the checkpoint of this step")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="the command and its arguments")
    options = parser.parse_args(argv)
    file = options.config or os.environ.get("OUTLIVE_CONFIG")
    if not options.command and not file:
        parser.error("there is no command to run")
    config = configuration.for_exec(options, os.environ)
    if config.training is None:
        parser.error("there is no command to run")
    given = options.restarts is not None or file is not None
    from outlive_agent.cli.starting import guard_command

    return guard_command(
        config,
        rewind=options.rewind,
        # Who starts a script by hand wants to see it fail; who writes a configuration wants it to go on.
        restarts=config.training.restarts if given else 0,
        config_file=file,
        named=bool(options.run or os.environ.get("OUTLIVE_RUN") or file),
    )


def agent_main(argv: list[str]) -> int:
    """The daemon beside outlive-train.service."""
    parser = VerbParser(
        "agent",
        "Guard the training that systemd runs beside this daemon (outlive-train.service). On a machine that\n"
        "'outlive user-data' has set up, systemd starts it; by hand nobody needs it.",
        examples=[("outlive agent --config /etc/outlive/outlive.yaml", "")],
        codes=_CODES,
    )
    parser.add_argument(
        "--config", metavar="FILE", help=f"the configuration file ({configuration.DEFAULT_PATH})"
    )
    options = parser.parse_args(argv)
    config = configuration.load(Path(options.config or configuration.DEFAULT_PATH))
    from outlive_agent.cli.starting import guard_unit

    return guard_unit(config)
