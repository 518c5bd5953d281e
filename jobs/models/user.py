from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone


class UserManager(BaseUserManager["User"]):
    def create_user(
        self, email: str, password: str | None = None, **fields: Any
    ) -> "User":
        """Create an approved account that may log in at once."""
        if not email:
            raise ValueError("An account needs an e-mail address.")
        fields.setdefault("approved_at", timezone.now())
        user = self.model(email=self.normalize_email(email), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(
        self, email: str, password: str | None = None, **fields: Any
    ) -> "User":
        return self.create_user(
            email, password, **{**fields, "is_staff": True, "is_superuser": True}
        )

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email__iexact=username)


class User(AbstractBaseUser, PermissionsMixin):  # type: ignore[django-manager-missing]
    """A person, known by e-mail address. `is_staff` makes an operator."""

    email = models.EmailField("e-mail address", unique=True)
    name = models.CharField(max_length=150, blank=True)
    # Whose files a job's files are; both or neither.
    uid = models.PositiveIntegerField(null=True, blank=True)
    gid = models.PositiveIntegerField(null=True, blank=True)
    time_zone = models.CharField(max_length=64, default="UTC")
    is_staff = models.BooleanField("operator", default=False)
    created_at = models.DateTimeField(default=timezone.now)
    approved_at = models.DateTimeField(null=True, blank=True)
    suspended_at = models.DateTimeField(null=True, blank=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects: ClassVar[UserManager] = UserManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(Lower("email"), name="user_email_any_case"),
            models.CheckConstraint(
                name="user_uid_and_gid",
                condition=Q(uid__isnull=True, gid__isnull=True)
                | Q(uid__isnull=False, gid__isnull=False, uid__gt=0, gid__gt=0),
            ),
        ]

    def __str__(self) -> str:
        return self.email

    def group_for(self, asked: str) -> str:
        """Which of the person's groups a job is accounted to: the one asked for, else
        the first by name; empty for a person in none."""
        mine = sorted(self.groups.values_list("name", flat=True), key=str.casefold)
        if asked and asked not in mine:
            known = f"Yours: {', '.join(mine)}." if mine else "You are in none."
            text = f"You are in no group of this name. {known}"
            raise ValidationError(text, "not_your_group")
        return asked or (mine[0] if mine else "")

    # Derived, so that approval and suspension can not disagree with it.
    @property
    def is_active(self) -> bool:  # type: ignore[override]
        return self.approved_at is not None and self.suspended_at is None
