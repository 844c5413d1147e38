"""Whether a machine can be made from the job file: its secrets are there, and its user-data fits."""

from collections.abc import Mapping
from pathlib import Path

from outlive.errors import OutliveError
from outlive_agent.bootstrap.job import Job
from outlive_agent.bootstrap.plan import Archive
from outlive_agent.bootstrap.render import collect, render
from outlive_agent.bootstrap.size import LIMITS, fit
from outlive_agent.doctor.finding import Finding, failed, ok, problem
from outlive_agent.units import bytes_text


def job_file(job: Job, environ: Mapping[str, str], *, directory: Path) -> Finding:
    """The file itself was read already; this makes what ``outlive user-data`` would make of it."""
    source = job.training.source
    archive = None
    if isinstance(source, str) and "://" not in source:
        if not (directory / Path(source).expanduser()).is_file():
            return problem(
                "job", f"training.archive: there is no {source}", change="git archive -o code.tar.gz HEAD"
            )
        archive = Archive(key="code")
    try:
        size = len(fit(render(job, collect(job, environ), archive=archive), job.provider).encode())
    except OutliveError as error:
        return failed("job", error)
    limit = LIMITS[job.provider]
    figures = {"user_data_bytes": size, "user_data_limit_bytes": limit}
    seen = f"settings are right; user-data {bytes_text(size)} of {bytes_text(limit)} ({job.provider})"
    return ok("job", seen, **figures)
