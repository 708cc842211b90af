"""What every Django project has; django_shop.py is the part with Postlude."""

SECRET_KEY = "example"  # noqa: S105 - of an example
ROOT_URLCONF = "django_shop"
ALLOWED_HOSTS = ["*"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
