"""`l2d serve` on a Ray cluster, which `serve run l2d.commands.on_ray:app run=RUN log=postgresql://… replicas=2` starts."""

from typing import Any

from ray import serve

from l2d.commands.serve import make_app_of, read_tokens, serve_options, swaps_in_log
from l2d.utils.user_errors import answering


def app(given: dict[str, Any]) -> serve.Application:
    """given: run, replicas, and the flags of `l2d serve` without dashes in front (raw=true for --raw). Replicas share the log, so
    it must be a PostgreSQL URL if they are on several machines."""
    others = {name: value for name, value in given.items() if name not in ("run", "replicas")}
    flags = [f"--{name}" if str(value).lower() == "true" else f"--{name}={value}" for name, value in others.items()]
    with answering():
        options = serve_options([*([str(given["run"])] if "run" in given else []), *flags])
        # Now: a replica has another environment, and one that replaces another follows the reloads since this moment.
        tokens, swaps = read_tokens(), swaps_in_log(options)

    @serve.deployment(num_replicas=int(given.get("replicas", 1)))
    @serve.ingress(lambda: make_app_of(options, swaps, tokens))
    class ServedRouter:
        pass

    return ServedRouter.bind()  # type: ignore[attr-defined]
