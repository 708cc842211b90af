"""The app as `postlude run tests.acceptance.chaos_worker:app` finds it in a worker process."""

from __future__ import annotations

import os
from pathlib import Path

from tests.acceptance.chaos_app import make_app

app = make_app(None, Path(os.environ["CHAOS_TRACES"]))
