"""Names of columns that sound as if somebody could be recognised by what is in them."""

from __future__ import annotations

import re
from itertools import pairwise

_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def words(name: str) -> list[str]:
    """`shipToEmail` and `ship_to_email` are the same three words."""
    return [word for word in re.split(r"[^a-z0-9]+", _BORDER.sub("_", name).lower()) if word]


STRONG = frozenset(
    words("""
    email mail phone telephone mobile fax surname firstname lastname fullname forename nickname username maiden
    address street postcode zip birth birthday birthdate dob ssn iban bic passport gender sex nationality citizenship
    religion ethnicity ip ipaddress lat lon lng latitude longitude geolocation avatar photo portrait signature diagnosis
    disability salary cvv imei msisdn fingerprint biometric
    """)
)
"""Wherever they stand."""

WEAK = frozenset({"name", "city", "town", "age", "title", "location", "language", "occupation", "employer", "notes"})
"""Only in tables that lead to the subject: products have names too."""

PAIRS = frozenset(
    {
        ("user", "agent"), ("tax", "id"), ("tax", "number"), ("national", "id"), ("account", "number"),
        ("card", "number"), ("device", "id"), ("license", "plate"), ("driver", "license"), ("driving", "licence"),
        ("social", "security"), ("vat", "id"), ("bank", "account"), ("contact", "name"), ("customer", "name"),
        ("first", "name"), ("last", "name"), ("full", "name"), ("family", "name"), ("given", "name"), ("middle", "name"),
        ("user", "name"), ("nick", "name"), ("postal", "code"), ("zip", "code"),
    }
)  # fmt: skip

THINGS = frozenset(
    words("""
    attribute branch brand bucket category channel class column company country currency database display domain event
    field file folder group handler host image index item job key language metric model module package plan product
    project queue role schema server service step table tag task team template tenant topic type
    """)
)
"""Whose name, title or address is nobody's."""


def looks_personal(name: str, *, near_subject: bool) -> str | None:
    """The word that gives it away."""
    found = words(name)
    pairs = list(pairwise(found))
    for before, word in pairwise(["", *found]):
        if (before, word) in PAIRS:
            return f"{before} {word}"
        if word in STRONG and not (before in THINGS and word in {"address", "signature", "fingerprint", "photo"}):
            return next((" ".join(pair) for pair in pairs if pair in PAIRS and word in pair), word)
        if near_subject and word in WEAK and before not in THINGS:
            return word
    return None
