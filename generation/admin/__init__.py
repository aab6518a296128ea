"""The operator's view: jobs, queues and workers, quotas and what was used of them.

Every list costs the same number of queries for one row as for a page of them, and none counts a whole table.
"""

from generation.admin.jobs import JobAdmin
from generation.admin.quotas import QuotaAdmin, TokenUseAdmin
from generation.admin.workers import QueueAdmin, WorkerAdmin

__all__ = ["JobAdmin", "QueueAdmin", "QuotaAdmin", "TokenUseAdmin", "WorkerAdmin"]
