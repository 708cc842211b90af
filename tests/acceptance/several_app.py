"""An app on two databases; run as a worker by test_cli_several.py."""

from __future__ import annotations

import os

from postlude import Event, Postlude, event


@event(type="several.noted", key="key")
class Noted(Event):
    key: str


app = Postlude(os.environ["SEVERAL_MAIN"], databases={"edge": os.environ["SEVERAL_EDGE"]})


@app.on(Noted, name="note")
def note(noted: Noted) -> None:
    print("noted", noted.key, flush=True)  # noqa: T201 - what the test reads
