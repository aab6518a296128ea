"""Addresses of the chat's pages."""

from django.urls import path

from chatsite.chat import views

urlpatterns = [
    path("", views.new_conversation, name="new-conversation"),
    path("favicon.ico", views.icon),
    path("c/<uuid:conversation_id>/", views.conversation, name="conversation"),
]
