"""What a browser needs to install the site as an app: its manifest, with the icons under their hashed names."""

from django.http import HttpRequest, JsonResponse
from django.templatetags.static import static
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_safe

THEME = "#fbfbfa"
"""The page's ground (base.css) in light; in dark the page itself says it."""

ICONS = {
    "icon-192.png": ("192x192", "any"),
    "icon-512.png": ("512x512", "any"),
    "icon-mask.png": ("512x512", "maskable"),
}


@require_safe
def manifest(request: HttpRequest) -> JsonResponse:
    start = reverse("new-conversation")
    content = {
        "id": start,
        "name": "Tokenline",
        "short_name": "Tokenline",
        "description": gettext("Chat with language models on our own hardware."),
        "start_url": start,
        "scope": start,
        "display": "standalone",
        "background_color": THEME,
        "theme_color": THEME,
        "icons": [
            {"src": static("chat/icon.svg"), "type": "image/svg+xml", "sizes": "any", "purpose": "any"},
            *(
                {"src": static(f"chat/{name}"), "type": "image/png", "sizes": sizes, "purpose": purpose}
                for name, (sizes, purpose) in ICONS.items()
            ),
        ],
    }
    return JsonResponse(content, content_type="application/manifest+json")
