from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("fastapi") else ["test_*.py"]  # the extra `serve`
