"""The page behind the link of an invitation: a person chooses their own password."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.views import INTERNAL_RESET_SESSION_TOKEN, PasswordResetConfirmView
from django.db import transaction
from django.http import HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from criticizer.security.reauthentication import PasswordAloneMixin
from reviews.invitations import may_be_invited

_PERSON = "invited_person"


class ChoosePasswordForm(PasswordAloneMixin, SetPasswordForm):  # type: ignore[type-arg]
    """The password of an account that has none, twice."""


@method_decorator(sensitive_post_parameters(), name="dispatch")
@method_decorator(never_cache, name="dispatch")
class Welcome(PasswordResetConfirmView):
    """Django's page for a new password, for accounts without one.

    The key moves from the address into the session: it is in no history and in no Referer.
    """

    form_class = ChoosePasswordForm
    template_name = "registration/welcome.html"
    success_url = reverse_lazy("login")  # which leads each person on to their first page
    post_reset_login = True

    def dispatch(self, *args: Any, **kwargs: Any) -> HttpResponseBase:
        session, given = self.request.session, self.request.GET
        if "key" in given:
            session[INTERNAL_RESET_SESSION_TOKEN] = given["key"][:200]
            session[_PERSON] = given.get("person", "")[:64]
            return HttpResponseRedirect(self.request.path)
        user = self.get_user(session.get(_PERSON, ""))
        key = session.get(INTERNAL_RESET_SESSION_TOKEN, "")
        if isinstance(user, User) and may_be_invited(user) and self.token_generator.check_token(user, key):
            self.validlink, self.user = True, user
            # Past Django's own dispatch, which reads the key from the address.
            return super(PasswordResetConfirmView, self).dispatch(*args, **kwargs)
        return self._refused()

    def form_valid(self, form: Any) -> HttpResponse:
        """Set the password unless another request with the link has.

        Of two such requests one waits for the other here.
        """
        with transaction.atomic():
            key = self.request.session.get(INTERNAL_RESET_SESSION_TOKEN, "")
            user = User.objects.select_for_update().filter(pk=form.user.pk).first()
            if user is None or not may_be_invited(user) or not self.token_generator.check_token(user, key):
                return self._refused()
            form.user = user
            return super().form_valid(form)

    def _refused(self) -> HttpResponse:
        self.user, self.validlink = None, False
        return self.render_to_response(self.get_context_data())
