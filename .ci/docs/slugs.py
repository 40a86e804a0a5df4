"""Anchors of headings as GitHub makes them, so that links work there and on the site."""

import re


def like_github(text: str, separator: str) -> str:
    """Return the anchor of a heading: "Clusters (Dask)" -> "clusters-dask"."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"<[^>]+>", "", text)).strip().lower().replace(" ", separator)
