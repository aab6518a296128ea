"""Signing in by password or one-time link, and changing the password."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.views import LoginView, PasswordChangeView
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse_lazy
from django.utils.translation import gettext
from sesame.views import LoginView as LinkView


class SignIn(LoginView):
    template_name = "accounts/login.html"
    redirect_authenticated_user = True
    form_class = AuthenticationForm


class OneTimeLink(LinkView):  # type: ignore[misc]
    """Signs in whoever opens a fresh link; a used or old one is told so."""

    def login_failed(self) -> HttpResponse:
        return render(self.request, "accounts/link_used.html", status=403)


class ChangePassword(PasswordChangeView):
    """Asks for the old password, unless the person came by a link and never had one."""

    template_name = "accounts/password.html"
    success_url = reverse_lazy("password_change")

    def get_form_class(self) -> type[Any]:
        user = self.request.user
        has_password = isinstance(user, AbstractBaseUser) and user.has_usable_password()
        return PasswordChangeForm if has_password else SetPasswordForm

    def form_valid(self, form: Any) -> HttpResponse:
        messages.success(self.request, gettext("Your password is changed."))
        return super().form_valid(form)
