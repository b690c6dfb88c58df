"""Addresses of the pages. `reviews:list` and `reviews:detail` are linked to from outside."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

from reviews import views

_pages = [
    path("", views.review_list, name="list"),
    path("reviews/live/", views.review_list_live, name="list-live"),
    path("reviews/<int:job_id>/", views.review_detail, name="detail"),
    path("reviews/<int:job_id>/live/", views.review_detail_live, name="detail-live"),
]

urlpatterns = [
    path("", include((_pages, "reviews"))),
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
