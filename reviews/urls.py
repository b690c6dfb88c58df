"""Addresses of the pages. `reviews:list` and `reviews:detail` are linked to from outside."""

from django.contrib import admin
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
    # Before the console's own addresses, which end with "there is no such page".
    path("admin/failure-codes/", admin.site.admin_view(views.failure_codes), name="failure-codes"),
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
