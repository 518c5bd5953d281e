from csp.constants import SELF, UNSAFE_INLINE
from csp.decorators import csp_update
from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

import scheduler.urls
from jobs.urls import api_urlpatterns
from jobs.views import LoginView, LogoutView
from scheduler.api import HealthView

# Swagger sets styles from its script; nowhere else is that allowed.
docs = csp_update({"style-src": [SELF, UNSAFE_INLINE]})(
    SpectacularSwaggerSplitView.as_view(url_name="api-schema")
)

v1: list[URLPattern | URLResolver] = [
    *api_urlpatterns,
    *scheduler.urls.api_urlpatterns,
    re_path(r"^schema/?$", SpectacularAPIView.as_view(), name="api-schema"),
    re_path(r"^docs/?$", docs, name="api-docs"),
]
session: list[URLPattern] = [
    path("login/", LoginView.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
urlpatterns: list[URLPattern | URLResolver] = [
    *scheduler.urls.page_urlpatterns,
    path("admin/", admin.site.urls),
    re_path(r"^api/v1/?$", RedirectView.as_view(pattern_name="api-docs")),
    path("api/v1/", include(v1)),
    # The browsable pages of the API link to these, to log in and out.
    path("api/session/", include((session, "rest_framework"))),
    re_path(r"^health/?$", HealthView.as_view(), name="health"),
]

handler400 = "jobs.api.problems.bad_request"
handler404 = "jobs.api.problems.not_found"
handler500 = "jobs.api.problems.server_error"
