"""All addresses of the site."""

from django.contrib import admin
from django.urls import include, path
from django.views.i18n import set_language

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/", include("chatsite.accounts.urls")),
    path("language/", set_language, name="set_language"),
    path("", include("generation.urls")),
    path("", include("chatsite.chat.urls")),
]

handler500 = "chatsite.chat.views.failed"
