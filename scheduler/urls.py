from django.urls import URLPattern, path, re_path

from jobs.urls import job_routes, page_routes
from scheduler.api import GPUView, HealthView, JobViewSet, NodeView
from scheduler.taskpage import PoliciesView, PolicyView
from scheduler.views import SubmitView, cluster

api_urlpatterns: list[URLPattern] = [
    *job_routes(JobViewSet),
    re_path(
        r"^jobs/(?P<pk>[^/]+)/explain/?$",
        JobViewSet.as_view({"get": "explain"}),
        name="api-explain",
    ),
    re_path(r"^health/?$", HealthView.as_view(), name="api-health"),
    re_path(r"^gpus/?$", GPUView.as_view(), name="api-gpus"),
    re_path(r"^nodes/?$", NodeView.as_view(), name="api-nodes"),
]
page_urlpatterns: list[URLPattern] = [
    path("", cluster, name="cluster"),
    path("policies/", PoliciesView.as_view(), name="policies"),
    path("policies/<str:policy>/", PolicyView.as_view(), name="policy"),
    *page_routes(SubmitView),
]
