"""`l2d serve` on a Ray cluster, which `serve run l2d.commands.on_ray:app run=RUN log=postgresql://… replicas=2` starts."""

from typing import Any

from ray import serve

from l2d.commands.serve import make_app_of, serve_options, swaps_in_log


def app(given: dict[str, Any]) -> serve.Application:
    """given: run, replicas, and the flags of `l2d serve` without dashes in front. All replicas share the log, so it must be a
    PostgreSQL URL if they are on several machines."""
    run, replicas = given.pop("run"), int(given.pop("replicas", 1))
    options = serve_options([str(run), *(f"--{name}={value}" for name, value in given.items())])

    swaps = swaps_in_log(options)  # a replica that replaces another one follows the reloads since now

    @serve.deployment(num_replicas=replicas)
    @serve.ingress(lambda: make_app_of(options, swaps))
    class ServedRouter:
        pass

    found: serve.Application = ServedRouter.bind()  # type: ignore[attr-defined]
    return found
