from django.urls import URLPattern, path, re_path

from jobs import accountpage, exporting, reviews, views
from jobs.api import auth, tokens
from jobs.api.routing import PolicyView, SavingsView
from jobs.api.secrets import SecretsView, SecretView
from jobs.api.views import AnyAccept, JobViewSet

# With or without a closing slash: no client should have to guess.
api_urlpatterns: list[URLPattern] = [
    re_path(r"^auth/register/?$", auth.RegisterView.as_view(), name="api-register"),
    re_path(r"^auth/login/?$", auth.LoginView.as_view(), name="api-login"),
    re_path(r"^auth/refresh/?$", auth.RefreshView.as_view(), name="api-refresh"),
    re_path(r"^auth/logout/?$", auth.LogoutView.as_view(), name="api-logout"),
    re_path(r"^auth/me/?$", auth.MeView.as_view(), name="api-me"),
    re_path(r"^secrets/?$", SecretsView.as_view(), name="api-secrets"),
    re_path(
        r"^secrets/(?P<name>[^/]{1,200})/?$", SecretView.as_view(), name="api-secret"
    ),
    re_path(r"^auth/password/?$", auth.PasswordView.as_view(), name="api-password"),
    re_path(r"^auth/tokens/?$", tokens.TokensView.as_view(), name="api-tokens"),
    re_path(
        r"^auth/tokens/(?P<pk>[^/]+)/?$",
        tokens.TokenView.as_view(),
        name="api-token",
    ),
    re_path(r"^policies/?$", PolicyView.as_view(), name="api-policies"),
    re_path(
        r"^policies/(?P<policy>[a-z0-9._-]{1,63})/savings/?$",
        SavingsView.as_view(),
        name="api-savings",
    ),
]


def job_routes(viewset: type[JobViewSet]) -> list[URLPattern]:
    """The routes under /jobs, bound to the viewset that the project puts on top."""
    one = r"^jobs/(?P<pk>[^/]+)"

    return [
        re_path(
            r"^jobs/?$",
            viewset.as_view({"get": "list", "post": "create"}),
            name="api-jobs",
        ),
        re_path(
            rf"{one}/?$",
            viewset.as_view({"get": "retrieve", "delete": "destroy"}),
            name="api-job",
        ),
        *[
            re_path(
                rf"{one}/{verb}/?$", viewset.as_view({"post": verb}), name=f"api-{verb}"
            )
            for verb in ("cancel", "hold", "release", "top", "review")
        ],
        re_path(
            rf"{one}/logs/?$",
            viewset.as_view({"get": "logs"}, content_negotiation_class=AnyAccept),
            name="api-logs",
        ),
        *[
            re_path(
                rf"{one}/{part}/?$", viewset.as_view({"get": part}), name=f"api-{part}"
            )
            for part in ("events", "attempts", "decisions", "passport", "artifact")
        ],
        re_path(
            rf"{one}/artifact/download/?$",
            viewset.as_view(
                {"get": "artifact_download"}, content_negotiation_class=AnyAccept
            ),
            name="api-artifact-download",
        ),
    ]


def page_routes(submit: type[views.SubmitView]) -> list[URLPattern]:
    """The pages, with the form that the project puts on top."""
    return [
        path("jobs/", views.job_list, name="job-list"),
        path("jobs/<uuid:pk>/", views.job_detail, name="job-detail"),
        path("jobs/<uuid:pk>/cancel/", views.job_cancel, name="job-cancel"),
        path("jobs/<uuid:pk>/hold/", views.job_hold, name="job-hold"),
        path("jobs/<uuid:pk>/release/", views.job_release, name="job-release"),
        path("jobs/<uuid:pk>/top/", views.job_top, name="job-top"),
        path("jobs/<uuid:pk>/review/", reviews.job_review, name="job-review"),
        path("jobs/<uuid:pk>/delete/", views.job_delete, name="job-delete"),
        path("jobs.csv", exporting.job_csv, name="job-csv"),
        path("account/", accountpage.account, name="account"),
        path("account/tokens/", accountpage.token_add, name="token-add"),
        path(
            "account/tokens/<uuid:pk>/revoke/",
            accountpage.token_revoke,
            name="token-revoke",
        ),
        path("account/secrets/", accountpage.secret_write, name="secret-write"),
        path(
            "account/secrets/<slug:name>/remove/",
            accountpage.secret_remove,
            name="secret-remove",
        ),
        path("submit/", submit.as_view(), name="job-submit"),
        path("login/", views.LoginView.as_view(), name="login"),
        path("logout/", views.LogoutView.as_view(), name="logout"),
    ]
