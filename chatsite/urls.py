"""All addresses of the site."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/", include("chatsite.accounts.urls")),
    path("", include("generation.urls")),
    path("", include("chatsite.chat.urls")),
]

handler500 = "chatsite.chat.views.failed"
