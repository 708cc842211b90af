"""Everything that can be set, where it is read from, and what is refused."""

from postlude.settings.settings import Settings as Settings
from postlude.settings.tables import LogSettings as LogSettings
