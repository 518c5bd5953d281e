"""A person's own account: API tokens and secrets, made and ended."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from jobs import accounts, vault
from jobs.exceptions import TooManyTokens
from jobs.forms import SecretForm, TokenForm
from jobs.models import ApiToken, User


def _me(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # every page here asks for a login
    return request.user


@login_required
@require_GET
def account(request: HttpRequest) -> HttpResponse:
    return _page(request)


def _page(request: HttpRequest, status: int = 200, **more: Any) -> HttpResponse:
    me = _me(request)
    context = {
        "tokens": ApiToken.objects.filter(user=me).order_by("-created"),
        "secrets": me.secrets.order_by("name"),
        "token_form": TokenForm(user=me, prefix="token"),
        "secret_form": SecretForm(prefix="secret"),
        **more,
    }
    return render(request, "jobs/account.html", context, status=status)


@login_required
@require_POST
@never_cache
def token_add(request: HttpRequest) -> HttpResponse:
    """The one page that shows the token, which is kept nowhere."""
    form = TokenForm(request.POST, user=_me(request), prefix="token")
    if not form.is_valid():
        return _page(request, token_form=form)
    try:
        token, text = accounts.issue_token(_me(request), **form.asked)
    except TooManyTokens as refusal:
        form.add_error(None, str(refusal))
        return _page(request, 409, token_form=form)
    return _page(request, 201, new_token=token, new_text=text)


@login_required
@require_POST
def token_revoke(request: HttpRequest, pk: UUID) -> HttpResponse:
    token = get_object_or_404(ApiToken, user=_me(request), pk=pk)
    accounts.revoke_token(token, by=request.user)
    messages.success(request, f"The token {token.name} is revoked.")
    return redirect("account")


@login_required
@require_POST
def secret_write(request: HttpRequest) -> HttpResponse:
    form = SecretForm(request.POST, prefix="secret")
    if not form.is_valid():
        return _page(request, secret_form=form)
    name = form.cleaned_data["name"]
    try:
        _, is_new = vault.write_secret(_me(request), name, form.cleaned_data["value"])
    except ValidationError as refusal:
        form.add_error(None, " ".join(refusal.messages))
        return _page(request, 409, secret_form=form)
    messages.success(request, f"{name} is {'kept' if is_new else 'written anew'}.")
    return redirect("account")


@login_required
@require_POST
def secret_remove(request: HttpRequest, name: str) -> HttpResponse:
    if vault.remove_secret(_me(request), name):
        messages.success(
            request, f"{name} is removed. Jobs that name it will not start."
        )
    else:
        messages.warning(request, f"There is no secret {name}.")
    return redirect("account")
