"""A worker beside the one that `up` runs, as on another machine."""

import subprocess
import sys

from tests.environment import ROOT
from tests.site import PATIENCE_SECONDS, Lines, Site


class SecondWorker:
    """Ready when it is made; two jobs at once, and as faulty as the site's own."""

    def __init__(self, site: Site) -> None:
        command = "-m celery -A chatsite worker -Q gpu -P threads -c 2 -n second@%h --without-mingle --without-gossip"
        self.process = subprocess.Popen(
            [sys.executable, *command.split(), "-E", "-l", "INFO"],
            cwd=ROOT,
            env=site.env | {"DJANGO_SETTINGS_MODULE": "tests.faults.settings"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines = Lines(self.process)
        self.lines.wait_for(" ready.")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)
        self.lines.wait_for_end()
