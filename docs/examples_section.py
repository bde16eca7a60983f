"""For mkdocstrings: `Example:` in a docstring is shown as code, as `Examples:` is."""

from typing import Any

from griffe import Extension, Object


class ExampleSections(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
