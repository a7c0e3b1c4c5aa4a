"""A site of Django with its administration, a database in a file, and pages of its own."""

import os
import pathlib
import time
import zlib

import django
from django.conf import settings
from django.core.management import call_command
from django.http import HttpResponse, StreamingHttpResponse
from django.middleware.csrf import get_token
from django.utils.html import escape

DIR = pathlib.Path(os.environ["SITE_DIR"])

settings.configure(
    SECRET_KEY="the secret of a test",
    ALLOWED_HOSTS=["localhost"],
    ROOT_URLCONF="django_site",
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "django.contrib.staticfiles",
    ],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DIR / "database"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    FILE_UPLOAD_TEMP_DIR=str(DIR),
    STATIC_URL="/static/",
    STATIC_ROOT=DIR / "static",
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.auth import get_user_model  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.urls import path  # noqa: E402


def form(request):
    """A form that has to know the secret of its visitor."""
    if request.method == "POST":
        return HttpResponse("Hello, " + escape(request.POST["name"]))
    return HttpResponse(f'<input name="csrfmiddlewaretoken" value="{get_token(request)}">')


def upload(request):
    """What a file consists of."""
    size, check = 0, 1
    for piece in request.FILES["file"].chunks():
        size, check = size + len(piece), zlib.adler32(piece, check)
    return HttpResponse(f"{size} {check:08x} {request.POST['label']}")


def stream(request):
    """A response whose end comes when another request has been made."""
    marker = DIR / "released"
    marker.unlink(missing_ok=True)

    def parts():
        yield "first "
        while not marker.exists():
            time.sleep(0.005)
        yield "second"

    return StreamingHttpResponse(parts(), headers={"X-Accel-Buffering": "no"})


def release(request):
    (DIR / "released").touch()
    return HttpResponse(status=204)


urlpatterns = [
    path("admin/", admin.site.urls),
    path("form/", form),
    path("upload/", upload),
    path("stream/", stream),
    path("release/", release),
]

call_command("migrate", verbosity=0)
call_command("collectstatic", verbosity=0, interactive=False)
get_user_model().objects.create_superuser("editor", "editor@example.org", "a secret of a test")
application = get_wsgi_application()
