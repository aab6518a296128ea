"""Addresses of signing in and out."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from chatsite.accounts import views

urlpatterns = [
    path("login/", views.SignIn.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("link/", views.OneTimeLink.as_view(), name="one-time-link"),
    path("password/", views.ChangePassword.as_view(), name="password_change"),
]
