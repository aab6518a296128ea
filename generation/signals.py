"""Django signals about jobs, sent after commit in the process that changed the row.

Receivers get `job`, freshly read. A receiver that raises is logged and never touches the job.
"""

from django.dispatch import Signal

job_started = Signal()
job_finished = Signal()
job_failed = Signal()
job_cancelled = Signal()

tick = Signal()
"""Sent by `reaper.sweep`: every few seconds by each worker and web process, for what a site sweeps away itself."""
