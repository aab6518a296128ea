"""Addresses of the chat's pages."""

from django.urls import path

from chatsite.chat import catalogue, installing, keeping_views, preference_views, turning, views

urlpatterns = [
    path("", views.new_conversation, name="new-conversation"),
    path("favicon.ico", views.icon),
    path("catalogue/<str:language>/<str:version>.js", catalogue.script, name="catalogue"),
    path("manifest.webmanifest", installing.manifest, name="manifest"),
    path("search/", views.find, name="search"),
    path("c/<uuid:conversation_id>/", views.conversation, name="conversation"),
    path("c/<uuid:conversation_id>/<uuid:message_id>/step/", turning.step),
    path("c/<uuid:conversation_id>/<uuid:message_id>/context/", turning.clear_context),
    path("c/<uuid:conversation_id>/<uuid:message_id>/feedback/", turning.judge),
    path("c/<uuid:conversation_id>/<uuid:message_id>/markdown/", turning.markdown),
    path("c/<uuid:conversation_id>/rename/", keeping_views.rename, name="rename"),
    path("c/<uuid:conversation_id>/pin/", keeping_views.pin, name="pin"),
    path("c/<uuid:conversation_id>/delete/", keeping_views.delete, name="delete"),
    path("c/<uuid:conversation_id>/restore/", keeping_views.restore, name="restore"),
    path("c/<uuid:conversation_id>/export/<kind>/", keeping_views.export, name="export"),
    path("c/<uuid:conversation_id>/settings/", preference_views.of_conversation, name="conversation-settings"),
    path("settings/", preference_views.of_person, name="settings"),
    path("conversations/", views.conversations, name="conversations"),
    path("conversations/export/<kind>/", keeping_views.export_all, name="export-all"),
    path("conversations/import/", keeping_views.take_in, name="import"),
]
