"""Addresses of the chat's pages."""

from django.urls import path

from chatsite.chat import turning, views

urlpatterns = [
    path("", views.new_conversation, name="new-conversation"),
    path("favicon.ico", views.icon),
    path("c/<uuid:conversation_id>/", views.conversation, name="conversation"),
    path("c/<uuid:conversation_id>/<uuid:message_id>/step/", turning.step),
    path("c/<uuid:conversation_id>/<uuid:message_id>/context/", turning.clear_context),
    path("c/<uuid:conversation_id>/<uuid:message_id>/feedback/", turning.judge),
    path("c/<uuid:conversation_id>/<uuid:message_id>/markdown/", turning.markdown),
]
