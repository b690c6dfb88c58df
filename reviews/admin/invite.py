"""Admin: invite a person with one form, and send the link again."""

from __future__ import annotations

import pghistory
from django import forms
from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from criticizer import mail
from criticizer.admin_site.base import admin_page
from criticizer.admin_site.bulk_actions import AdminForm
from notifications import config
from reviews import invitations
from reviews.audit.history import origin
from reviews.intake.api_keys import check_tree
from reviews.roles import PURPOSE, ROLES

MAX_TREES = 50


class _RolesField(forms.ModelMultipleChoiceField[Group]):
    """Groups, each with its purpose."""

    def label_from_instance(self, obj: Group) -> str:
        return f"{obj.name}: {PURPOSE[obj.name]}"


class InviteForm(AdminForm):
    """A person, their roles, and what their team may read."""

    mail = forms.EmailField(max_length=254, help_text="The link is sent here, and messages of reviews later.")
    username = forms.CharField(
        max_length=150,
        strip=True,
        validators=[User.username_validator],
        help_text="For the login. For Perforce people, their name there.",
    )
    roles = _RolesField(Group.objects.none(), required=False, widget=forms.CheckboxSelectMultiple)
    is_staff = forms.BooleanField(
        required=False, label="Works in the admin", help_text="Operators, approvers and administrators."
    )
    team = forms.CharField(
        max_length=150,
        required=False,
        strip=True,
        help_text="The group whose members may read the depot trees below. A new name makes a new group.",
    )
    trees = forms.CharField(
        required=False,
        label="The team may read",
        widget=forms.Textarea(attrs={"rows": 3, "placeholder": "//depot/project/..."}),
        help_text="One depot tree a line, for all of the team. Trees that it has already stay.",
    )

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        roles = self.fields["roles"]
        assert isinstance(roles, forms.ModelMultipleChoiceField)
        roles.queryset = Group.objects.filter(name__in=ROLES).order_by("name")

    def clean_mail(self) -> str:
        mail = str(self.cleaned_data["mail"])
        if User.objects.filter(email__iexact=mail).exists():
            raise ValidationError("An account has this address already.")
        return mail

    def clean_username(self) -> str:
        name = str(User.normalize_username(self.cleaned_data["username"]))
        if User.objects.filter(username__iexact=name).exists():
            raise ValidationError("An account has this name already.")
        return name

    def clean_team(self) -> str:
        team = str(self.cleaned_data["team"])
        if team in ROLES:
            raise ValidationError("This is a role: its members are of every team. Enter the name of a team.")
        return team

    def clean_trees(self) -> list[str]:
        trees = list(dict.fromkeys(filter(None, map(str.strip, self.cleaned_data["trees"].splitlines()))))
        if len(trees) > MAX_TREES:
            raise ValidationError(f"At most {MAX_TREES} trees, not {len(trees)}.")
        for tree in trees:
            try:
                check_tree(tree)
            except ValueError as error:
                raise ValidationError(f"{tree[:80]}: {error}") from error
        return trees

    def clean(self) -> dict[str, object]:
        cleaned = super().clean() or {}
        if cleaned.get("trees") and not cleaned.get("team") and "team" not in self.errors:
            self.add_error("team", "Name the team that may read these trees.")
        return cleaned


@require_http_methods(["GET", "HEAD", "POST"])
def invite(request: HttpRequest) -> HttpResponse:
    """Show the form; POST makes the account and mails the link."""
    _require(request)
    form = InviteForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        came_from = origin(request)
        with pghistory.context(**came_from):
            user = invitations.create_person(
                actor=request.user.get_username(), origin=came_from, **form.cleaned_data
            )
        return _send(request, user, f"The account {user.username} was made")
    no_mail = invitations.why_no_mail()
    return admin_page(request, "admin/invite.html", "Invite a person", form=form, no_mail=no_mail)


def invite_again(request: HttpRequest, pk: int) -> HttpResponse:
    """Mail the link again to an account that has no password yet; POST, as its address asks for."""
    _require(request)
    return _send(request, get_object_or_404(User, pk=pk), "No change to the account")


def _require(request: HttpRequest) -> None:
    if not invitations.may_invite(request.user):
        raise PermissionDenied


def _send(request: HttpRequest, user: User, done: str) -> HttpResponse:
    if problem := invitations.send_link(user):
        messages.warning(request, f"{done}, but the link was not mailed: {problem}. Send it again below.")
    else:
        messages.success(request, f"{done}; {_sent_to(user.email)}.")
    return HttpResponseRedirect(reverse("admin:auth_user_change", args=[user.pk]))


def _sent_to(address: str) -> str:
    if config.providers()[invitations.CHANNEL].name == mail.MAILDIR:
        return f"no mail server is set: the link for {address} is in a file in mail/new of the data directory"
    return f"the link was mailed to {address}"
