from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request


class Pages(PageNumberPagination):
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200
    page_size_query_description = "Results per page, 1 to 200."
    invalid_page_message = "There is no such page."

    def get_page_number(self, request: Request, paginator: Any) -> Any:
        if request.query_params.get(self.page_query_param) == "":
            raise ValidationError({"page": "Give a number from 1 on."}, "bad_page")
        return super().get_page_number(request, paginator)

    def get_page_size(self, request: Request) -> int:
        limit = request.query_params.get(self.page_size_query_param)
        if limit is None:
            return self.page_size
        # Checked as text first: int() takes '1_0' and fails on 5,000 digits.
        if limit.isascii() and limit.isdigit() and len(limit) <= 3:
            size = int(limit)
            if 1 <= size <= self.max_page_size:
                return size
        raise ValidationError({"limit": "Give a number from 1 to 200."}, "bad_limit")

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        page = super().get_paginated_response_schema(schema)
        return {**page, "required": ["count", "next", "previous", "results"]}
