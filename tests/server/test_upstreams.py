"""upstreams.yaml: what it says, and how a mistake in it is told."""

from pathlib import Path

import pytest

from l2d.server.upstreams import Upstream, read_upstreams
from l2d.utils.errors import L2DError

GOOD = """
small:
  base_url: http://localhost:8001/v1/
  model: llama
large:
  base_url: https://example.org/v1
  model: big
  key_variable: LARGE_KEY
  timeout: 30
  input_price: 0.000001
  output_price: 2e-6
"""


def write_yaml(folder: Path, text: str) -> Path:
    file = folder / "upstreams.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_upstreams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LARGE_KEY", "secret")
    found = read_upstreams(write_yaml(tmp_path, GOOD), ["large", "small"])
    assert list(found) == ["large", "small"]
    assert found["small"] == [Upstream("http://localhost:8001/v1/", "llama")]
    assert found["large"] == [Upstream("https://example.org/v1", "big", "LARGE_KEY", 30.0, 1e-6, 2e-6)]
    assert found["large"][0].headers["authorization"] == "Bearer secret"
    assert "authorization" not in found["small"][0].headers


SEVERAL = """
small: {base_url: http://x, model: llama}
large:
  - {base_url: http://y, model: big, retries: 0}
  - {base_url: http://z, model: great, key_variable: LARGE_KEY, rest: 5}
"""


def test_several_servers_of_one_expert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LARGE_KEY", "secret")
    found = read_upstreams(write_yaml(tmp_path, SEVERAL), ["small", "large"])
    one, two = Upstream("http://y", "big", retries=0), Upstream("http://z", "great", "LARGE_KEY", rest=5.0)
    assert found == {"small": [Upstream("http://x", "llama")], "large": [one, two]}


def test_the_price_of_an_answer() -> None:
    """3 tokens in at 0.1, 2 out at 10: 20.3."""
    upstream = Upstream("http://x", "m", input_price=0.1, output_price=10.0)
    assert upstream.price_of({"prompt_tokens": 3, "completion_tokens": 2}) == pytest.approx(20.3)
    odd = [{"prompt_tokens": tokens, "completion_tokens": 2} for tokens in ("3", -3)]
    assert upstream.price_of({"input_tokens": 3, "output_tokens": 2}) == pytest.approx(20.3)
    assert upstream.price_of({"prompt_tokens": 3, "total_tokens": 3}) == pytest.approx(0.3)  # embeddings
    for usage in (None, {}, {"prompt_tokens": 3}, *odd):
        assert upstream.price_of(usage) is None
    assert Upstream("http://x", "m").price_of({"prompt_tokens": 3, "completion_tokens": 2}) is None


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("model: llama", "modle: llama", "small.mod"),
        ("small:", "smal:", "smal"),
        ("timeout: 30", "timeout: 0", "large.timeout=0"),
        ("timeout: 30", "timeout: soon", "large.timeout=soon"),
        ("0.000001", "-1", "large.input_price=-1"),
        ("http://localhost:8001/v1/", "localhost:8001", "small.base_url=localhost:8001"),
        ("key_variable: LARGE_KEY", "key_variable: NO_KEY", "large.key_variable=NO_KEY"),
        ("key_variable: LARGE_KEY", "key_variable: sk-proj-abc", "large.key_variable"),
        ("model: big", "model: 3", "large.model=3"),
        ("model: llama", "model: [", "line 6"),
        (GOOD, "- a", "dictionary"),
        ("timeout: 30", "rest: 0", "large.rest=0"),
        ("timeout: 30", "retries: -1", "large.retries=-1"),
        (GOOD, "small: 3\nlarge: []", "small=3"),
        (GOOD, SEVERAL.replace("http://x", "x"), "small.base_url=x"),
        (GOOD, SEVERAL.replace("http://z", "z"), "large.1.base_url=z"),
        (GOOD, SEVERAL.replace("rest: 5", "rest: -5"), "large.1.rest=-5"),
        (GOOD, "small: {base_url: http://x, model: llama}\nlarge: []", "large=[]"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, said: str
) -> None:
    monkeypatch.setenv("LARGE_KEY", "secret")
    assert before in GOOD
    file = write_yaml(tmp_path, GOOD.replace(before, after) if before != GOOD else after)
    with pytest.raises(L2DError) as caught:
        read_upstreams(file, ["small", "large"])
    told = str(caught.value)
    assert told.startswith(str(file))
    assert said in told
    assert "\n" not in told
    assert "sk-proj-abc" not in told  # a key by mistake
