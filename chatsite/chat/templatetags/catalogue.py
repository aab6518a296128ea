"""`{% catalogue %}`: the address of the scripts' texts in the reader's language."""

from django import template
from django.utils.translation import get_language

from chatsite.chat.catalogue import address

register = template.Library()


@register.simple_tag
def catalogue() -> str:
    return address(get_language())
