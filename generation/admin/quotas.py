"""Quotas, which operators edit, and the ledger of used tokens, which they read."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import OuterRef, QuerySet, Subquery, Sum
from django.http import HttpRequest

from generation import instants, ledger
from generation.admin.read_only import ReadOnlyAdmin
from generation.models import Quota, TokenUse

NONE = "–"

# Generic for the type checker only; at run time the class takes no parameter.
if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Quota]
else:
    _ModelAdmin = admin.ModelAdmin


def _figure(tokens: int | None) -> str:
    return NONE if tokens is None else f"{tokens:,}"


@admin.register(Quota)
class QuotaAdmin(_ModelAdmin):
    list_display = ("__str__", "per_day", "used_today", "per_month", "used_this_month")
    list_select_related = ("user", "group")
    fields = ("user", "group", "tokens_per_day", "tokens_per_month")
    raw_id_fields = ("user",)
    ordering = ("group_id", "user_id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Quota]:
        today = ledger.day_of(instants.now())
        uses = TokenUse.objects.filter(user=OuterRef("user"), day__lte=today).order_by().values("user")

        def used(**days: Any) -> Subquery:
            return Subquery(uses.filter(**days).annotate(sum=Sum("tokens")).values("sum"))

        return (
            super()
            .get_queryset(request)
            .annotate(today=used(day=today), this_month=used(day__gte=today.replace(day=1)))
        )

    @admin.display(description="tokens per day")
    def per_day(self, quota: Quota) -> str:
        return _figure(quota.tokens_per_day)

    @admin.display(description="tokens per month")
    def per_month(self, quota: Quota) -> str:
        return _figure(quota.tokens_per_month)

    @admin.display
    def used_today(self, quota: Quota) -> str:
        return self._used(quota, "today")

    @admin.display
    def used_this_month(self, quota: Quota) -> str:
        return self._used(quota, "this_month")

    def _used(self, quota: Quota, period: str) -> str:
        """A group's and everybody's is a limit for each, so no one figure stands beside it."""
        return NONE if quota.user_id is None else _figure(getattr(quota, period) or 0)


@admin.register(TokenUse)
class TokenUseAdmin(ReadOnlyAdmin):
    list_display = ("user", "day", "tokens")
    list_select_related = ("user",)
    ordering = ("-day", "user_id")
    sortable_by = ()  # there is one index for the order of a large table
    fields = readonly_fields = ("user", "day", "tokens")
    search_help_text = "A person's name."

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        return [f"user__{get_user_model().USERNAME_FIELD}"]

    def has_delete_permission(self, request: HttpRequest, obj: TokenUse | None = None) -> bool:
        """Only with its person, whose page asks this too: no row is deleted by itself."""
        match = request.resolver_match
        if obj is None or match is None or str(match.url_name).startswith("generation_tokenuse_"):
            return False
        return admin.ModelAdmin.has_delete_permission(self, request, obj)
