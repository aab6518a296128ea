"""What every list of the admin here has in common: rows that only the program writes, and cheap counting."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

# Generic for the type checker only; at run time these classes take no parameter.
if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:
    _ModelAdmin, _Paginator = admin.ModelAdmin, Paginator

MAX_COUNTED = 10_000


def span(duration: timedelta) -> str:
    """`0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `3 days`."""
    seconds = max(0.0, duration.total_seconds())
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {rest} s"
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"


class CappedPaginator(_Paginator):
    """Counts no further than `MAX_COUNTED`: an exact count of a large table costs more than it tells."""

    @cached_property
    def count(self) -> int:
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        return rows.order_by().values("pk")[:MAX_COUNTED].count()


class ReadOnlyAdmin(_ModelAdmin):
    """Rows that only the program writes."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    """Facets count the whole table, once for each choice of each filter."""
    paginator = CappedPaginator
    list_per_page = 50

    class Media:
        css = {"all": ["generation/admin.css"]}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        title = str(self.opts.verbose_name_plural).capitalize()  # and not "Select … to change"
        return super().changelist_view(request, {"title": title} | (extra_context or {}))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
